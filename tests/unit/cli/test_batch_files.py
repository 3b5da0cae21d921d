"""Files to publish: events and clouds, plain and gzip, checked before anything is sent."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from streamer.cli.publish import publications
from streamer.clouds.cloud_files import content_of
from streamer.errors import UsageError
from streamer.events.labels import decode_label
from streamer.events.limits import Limits
from streamer.events.responses import decode_responses
from tests.made import an_event

CLOUD = {
    "question_id": "q1",
    "question": "Where?",
    "references": ["here"],
    "responses": [
        {"text": "here", "label": 0, "meta": {"label_kind": "human"}},
        {"text": "there", "label": 1.0, "meta": {"label_kind": "human"}},
    ],
}
EVENT = an_event("g", "b1", ["here", "there"])


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def read(file: Path | str, **options):
    return list(
        publications(
            str(file), **({"gate": None, "labels": False, "labeller": None, "limits": Limits()} | options)
        )
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_clouds_become_events_and_labels(pack, tmp_path: Path) -> None:
    file = tmp_path / "clouds.jsonl"
    file.write_bytes(pack(lines(CLOUD)))
    assert content_of(str(file)) == "clouds"
    (one,) = read(file, gate="g", labels=True)
    event = decode_responses(one.value)
    assert (event.gate, event.batch_id, [r.text for r in event.responses]) == ("g", "q1", ["here", "there"])
    labels = [decode_label(label) for label in one.labels]
    wanted = [("g", "q1", 0.0, "file:clouds.jsonl"), ("g", "q1", 1.0, "file:clouds.jsonl")]
    assert [(x.gate, x.batch_id, x.severity, x.labeller) for x in labels] == wanted
    assert one.key == b"q1"
    (named,) = read(file, gate="g", labels=True, labeller="ann")
    assert decode_label(named.labels[0]).labeller == "ann"
    assert read(file, gate="g")[0].labels == ()
    stated = [{"text": "here", "label": 0}, CLOUD["responses"][1]]
    file.write_bytes(pack(lines(CLOUD | {"responses": stated})))
    (mixed,) = read(file, gate="g", labels=True, kind="judge")
    assert [decode_label(label).kind for label in mixed.labels] == ["judge", "human"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_events_are_published_as_they_are(pack, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(pack(lines(EVENT) + b"\n" + lines(EVENT | {"batch_id": "b2", "unknown": 1})))
    assert content_of(str(file)) == "events"
    first, second = read(file)
    assert first.value == json.dumps(EVENT).encode()
    assert second.key == b"b2"
    assert decode_responses(read(file, gate="other")[0].value).gate == "other"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(lines(EVENT)))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert [one.key for one in read("-")] == [b"b1"]


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (lines(CLOUD), {}, "say which with --gate"),
        (lines(EVENT), {"labels": True}, "--labels is for response clouds"),
        (
            lines(CLOUD),
            {"gate": "g", "limits": Limits(max_text_bytes=4)},
            "question 'q1' would be refused: the text of response 'r01' has 5 bytes",
        ),
        (lines(EVENT, EVENT | {"responses": "x"}), {}, "line 2 would be refused"),
        (lines(EVENT)[:-30], {}, "line 1 would be refused: not JSON: cut off in the middle"),
        (lines(EVENT)[:-30], {"gate": "g"}, "line 1: not JSON: cut off in the middle"),
        (lines(EVENT) + b"{", {"gate": "g"}, "line 2: not JSON: cut off in the middle"),
        (lines(EVENT) + b"[1]", {"gate": "g"}, "line 2: not a JSON object"),
        (b"hello\n", {}, "line 1 is not JSON"),
        (b"", {}, "f.jsonl is empty"),
        (gzip.compress(lines(EVENT), mtime=0)[:-12], {}, "damaged gzip"),
        (b"\x1f\x8bxxxx", {}, "damaged gzip"),
    ],
)
def test_what_cannot_be_published_is_named(content: bytes, options: dict, says: str, tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read(file, **options)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path / "absent")


@pytest.mark.parametrize(("value", "gate"), [(EVENT, None), (CLOUD, "g")], ids=["events", "clouds"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(value, gate: str | None, tmp_path: Path) -> None:
    file = tmp_path / "saved-by-an-editor.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + lines(value))
    (one,) = read(file, gate=gate)
    assert decode_responses(one.value).gate == "g"
