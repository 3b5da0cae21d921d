"""Reading response clouds, naming their parts, halving them, and turning them into events."""

import gzip
import hashlib
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.clouds.cloud import (
    Cloud,
    CloudResponse,
    cloud_labels,
    cloud_row,
    cloud_to_event,
    identifier,
    kind_of_label,
    severity_kind,
    split_clouds,
)
from streamer.clouds.cloud_files import read_clouds
from streamer.errors import UsageError
from streamer.events.identifiers import is_identifier
from streamer.events.labels import decode_label, encode_label
from streamer.events.limits import DEFAULT_LIMITS
from streamer.events.responses import decode_responses, encode_responses, numbers_given


def line(question_id: Any = "q1", **changes: Any) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "question": "Which colour is the sky?",
        "references": ["blue"],
        "responses": [
            {"text": "blue", "label": 0, "meta": {"label_kind": "lexical (alias contained)"}},
            {"text": "green", "label": 1.0, "meta": {"label_kind": "lexical"}},
            {"text": "", "label": None, "meta": {}},
        ],
        "source": "somewhere",
    } | changes


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def clouds_named(*ids: str) -> list[Cloud]:
    responses = (CloudResponse("r00", "a", 0.0, "human"), CloudResponse("r01", "b", 1.0, "human"))
    return [Cloud(name, "?", (), responses) for name in ids]


def test_a_question_that_is_not_known_is_empty(tmp_path: Path) -> None:
    (cloud,) = read_clouds(write(tmp_path / "clouds.jsonl", line(question=None)))
    assert cloud.question == ""


def test_a_plain_and_a_gzip_file_read_alike_whatever_they_are_called(tmp_path: Path) -> None:
    plain = write(tmp_path / "clouds.gz", line("a"), line(7))
    zipped = tmp_path / "clouds.jsonl"
    zipped.write_bytes(gzip.compress(b"\xef\xbb\xbf" + plain.read_bytes() + b"\n  \n"))
    first, second = read_clouds(plain)
    assert list(read_clouds(str(zipped))) == [first, second]
    assert (first.question_id, second.question_id) == ("a", "7")
    assert first.references == ("blue",)
    assert [r.id for r in first.responses] == ["r00", "r01", "r02"]
    assert first.severities == (0.0, 1.0, None)
    assert [r.kind for r in first.responses] == ["lexical", "lexical", "unstated"]


def test_standard_input_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress(json.dumps(line("a")).encode())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content))))
    assert [cloud.question_id for cloud in read_clouds("-")] == ["a"]


def test_clouds_before_a_broken_line_are_handed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "f", line("a"))
    path.write_text(path.read_text() + "{oops\n")
    reader = read_clouds(path)
    assert next(reader).question_id == "a"
    with pytest.raises(UsageError, match=r"line 2: not JSON"):
        next(reader)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (line(question=7), r"line 2: .*question"),
        (line(responses=[]), r"line 2: .*question and responses"),
        (
            line(responses=[{"text": "a", "label": 2}, {"text": "b", "label": 0}]),
            r"line 2: .*label in \[0, 1\]",
        ),
        (line(responses=[{"text": "a", "label": "bad"}, {"text": "b", "label": 0}]), r"line 2: .*label"),
        (line(responses=[{"label": 1}, {"text": "b", "label": 0}]), r"line 2: .*text"),
        (line(question="nul \0"), r"line 2: .*NUL"),
        (line("a"), r"line 2: question_id 'a' was already on line 1"),
        ([1], r"line 2: .*a cloud needs"),
    ],
)
def test_a_line_that_is_no_cloud_is_named_with_what_to_do(tmp_path: Path, row: Any, complaint: str) -> None:
    path = write(tmp_path / "f", line("a"), row)
    with pytest.raises(UsageError, match=complaint):
        list(read_clouds(path))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (gzip.compress(json.dumps(line()).encode(), mtime=0)[:-20], "damaged gzip"),
        (gzip.compress(json.dumps(line()).encode()[:40], mtime=0)[:12] + b"\xff" * 30, "damaged gzip"),
        (b'{"question_id": "\xff\xfe"}', "line 1"),
        (json.dumps(line(question="half \ud800")).encode(), "line 1"),
        (b'{"question_id": NaN}', "line 1: NaN or Infinity .* write null"),
        (b"[" * 5000, "one JSON array"),
    ],
)
def test_a_damaged_file_says_so(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint):
        list(read_clouds(path))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        list(read_clouds(tmp_path / "none"))


@given(st.text(max_size=300))
def test_any_name_gives_an_identifier_that_events_accept(name: str) -> None:
    made = identifier(name)
    assert is_identifier(made, DEFAULT_LIMITS.max_identifier)
    assert made == identifier(name)
    if is_identifier(name, DEFAULT_LIMITS.max_identifier):
        assert made == name


def test_names_that_differ_only_where_they_are_cut_or_cleaned_stay_apart() -> None:
    assert identifier("a\tb") != identifier("a\nb")
    assert identifier("x" * 300) != identifier("x" * 301)
    assert identifier("") != ""


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ("lexical (alias contained in normalised answer); computed by extractor", "lexical"),
        ("LLM judge: 1-(mean-1)/9", "llm-judge"),
        ("simulated", "simulated"),
        ("  (?)", "unstated"),
        (None, "unstated"),
        (3, "unstated"),
        ("Ä" * 90, "unstated"),
        ("x" * 90, "x" * 64),
    ],
)
def test_the_kind_of_a_severity_is_the_head_of_what_its_file_says(stated: object, kind: str) -> None:
    assert kind_of_label({"label_kind": stated}) == kind


def test_one_kind_controls_a_gate() -> None:
    one = Cloud(
        "a", "?", (), (CloudResponse("r00", "a", 0.5, "human"), CloudResponse("r01", "b", None, "judge"))
    )
    other = Cloud("b", "?", (), (CloudResponse("r00", "a", 0.5, "judge"), CloudResponse("r01", "b")))
    assert severity_kind([one]) == "human"
    with pytest.raises(UsageError, match=r"several kinds \(human, judge\)"):
        severity_kind([one, other])
    with pytest.raises(UsageError, match="nothing can be calibrated"):
        severity_kind([])


def test_the_split_is_the_documented_order_and_ignores_the_files_order() -> None:
    clouds = clouds_named(*(f"q{i}" for i in range(11)))
    first, second = split_clouds(clouds, 3)
    expected = sorted(
        (f"q{i}" for i in range(11)), key=lambda q: hashlib.sha256(f"3:{q}".encode()).hexdigest()
    )
    assert [c.question_id for c in (*first, *second)] == expected
    assert (len(first), len(second)) == (5, 6)
    assert split_clouds(clouds[::-1], 3) == (first, second)
    assert split_clouds(clouds, 4) != (first, second)


def test_events_of_a_cloud_are_read_back_by_the_stream(tmp_path: Path) -> None:
    (cloud,) = read_clouds(write(tmp_path / "f", line("a\tb")))
    event = decode_responses(encode_responses(cloud_to_event(cloud, "support-bot")))
    assert (event.gate, event.batch_id, event.prompt) == ("support-bot", cloud.batch_id, cloud.question)
    assert [(r.id, r.text) for r in event.responses] == [("r00", "blue"), ("r01", "green"), ("r02", "")]
    assert event.references == ("blue",)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    labels = [decode_label(encode_label(e)) for e in cloud_labels(cloud, "support-bot", "file f", at)]
    wanted = [("r00", 0.0, "lexical"), ("r01", 1.0, "lexical")]
    assert [(e.response_id, e.severity, e.kind) for e in labels] == wanted
    wanted = {("support-bot", cloud.batch_id, 1, "file f", at)}
    assert {(e.gate, e.batch_id, e.attempt, e.labeller, e.labelled_at) for e in labels} == wanted


def test_what_comes_with_a_response_goes_with_it_into_events_and_files(tmp_path: Path) -> None:
    came = {"text": "blue", "label": 0, "logprob": 0, "model": "small", "embedding": [1, 0.5]}
    row = line(
        responses=[
            {**came, "signals": {"retrieval": 1, "toxicity": None}},
            {"text": "green", "embedding": [0, 1], "signals": {}},
        ]
    )
    (cloud,) = read_clouds(write(tmp_path / "f", row))
    (again,) = read_clouds(write(tmp_path / "again", cloud_row(cloud)))
    assert again == cloud
    event = decode_responses(encode_responses(cloud_to_event(again, "support-bot")))
    wanted = [(0.0, "small", {"retrieval": 1.0}), (None, None, {})]
    assert [(one.logprob, one.model, one.signals) for one in event.responses] == wanted
    assert numbers_given(cloud.responses) == numbers_given(event.responses)


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        ({"score": 0.5}, "the signals have score"),
        ({"a b": 1}, "key"),
        ({"a": "x"}, "float"),
        (["a"], "object"),
    ],
)
def test_signals_of_a_cloud_that_are_none_are_refused(tmp_path: Path, signals: Any, said: str) -> None:
    row = line(responses=[{"text": "a"}, {"text": "b", "signals": signals}])
    with pytest.raises(UsageError, match=f"line 1.*{said}"):
        list(read_clouds(write(tmp_path / "f", row)))
