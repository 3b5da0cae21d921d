"""The judge's scores for an evaluation: asked once, kept at once, gone on with, and clear when nobody answers."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from streamer.cli import main
from streamer.errors import Unavailable, UsageError
from streamer.labels.judge import JudgeClient, JudgeEndpoint
from streamer.research.evaluation import evaluate
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer
from tests.unit.evaluation.made_up import rows, write

ASKED = {"alphas": (0.2,), "splits": 3, "units": ("response",)}


@pytest.fixture
def clouds(tmp_path: Path) -> Path:
    """16 questions with 3 answers each, copies among them; one is blank."""
    made = rows(16, 3)
    for q, row in enumerate(made):
        for i, response in enumerate(row["responses"]):
            response["text"] = f"answer {i % 2}" if q else f"answer {i}"
    made[1]["responses"][0]["text"] = " \u200b"  # nothing that anybody sees
    return write(tmp_path / "clouds.jsonl", made)


DISTINCT = 3 + 15 * 2
"""A blank answer is nobody's to judge, but its copy stands twice in its question."""


def mark(request: ChatRequest) -> float:
    """A mark that follows from what was asked, in [0, 100]."""
    case = re.search(r"\{.*\}", request.texts[-1], re.DOTALL)
    return hashlib.sha256(case.group().encode()).digest()[0] / 2.56


def reply(request: ChatRequest) -> ChatReply:
    subscores = {"correctness": 10.0, "faithfulness": 5.0, "completeness": 2.0, "clarity": 1.0}
    return ChatReply(json.dumps({"score": round(mark(request), 1), "subscores": subscores}))


def endpoint(server: OpenAIServer, **options: object) -> JudgeEndpoint:
    chosen = {"model": "judge", "tries": 2, "first_delay": 0.0, "concurrency": 4, "timeout": 240.0} | options
    return JudgeEndpoint(base_url=server.url, **chosen)


def judged(server: OpenAIServer, clouds: Path, cache: Path, **options: object):
    with JudgeClient(endpoint(server, **options)) as judge:
        return evaluate(clouds, judge=judge, cache=cache, **ASKED)


def test_each_distinct_answer_is_asked_about_once_and_without_references(clouds, tmp_path):
    with OpenAIServer(reply) as server:
        found = judged(server, clouds, tmp_path / "cache")
        assert len(server.requests) == DISTINCT
        assert all('"references": null' in request.texts[-1] for request in server.requests)
        again = judged(server, clouds, tmp_path / "cache")
        assert len(server.requests) == DISTINCT, "and never again"
    assert again == found
    (result,) = found.data_sets
    assert result.judge.startswith("judge/rubric-")
    assert [row.mode for row in result.modes("response")] == ["G-Eval-Naive", "G-Eval-CRC", "Gram-CRC"]


def test_marks_reach_the_csv_with_their_parts(clouds, tmp_path):
    with OpenAIServer(reply) as server, JudgeClient(endpoint(server)) as judge:
        evaluate(clouds, judge=judge, cache=tmp_path / "cache", out=tmp_path / "out", **ASKED)
    lines = (tmp_path / "out" / "responses.csv").read_text().splitlines()
    head = lines[0].split(",")
    row = dict(zip(head, lines[1].split(","), strict=True))
    assert (row["judge_correctness"], row["judge_clarity"]) == ("10.0", "1.0")
    assert 0 <= float(row["judge_score"]) <= 1
    blank = next(dict(zip(head, line.split(","), strict=True)) for line in lines if ",1,0.0," in line)
    assert (blank["judge_score"], blank["judge_correctness"]) == ("0.0", "")


def test_a_judge_that_stops_answering_loses_nothing(clouds, tmp_path):
    """After ten marks the endpoint says 429 to everything: the run ends with a clear error, the next one does the rest."""

    def for_ten(request: ChatRequest) -> ChatReply:
        return reply(request) if request.number < 10 else ChatReply(status=429)

    with OpenAIServer(for_ten) as server:
        with pytest.raises(
            Unavailable, match=rf"rate_limited.*1\d of {DISTINCT} ratings are kept|10 of {DISTINCT}"
        ):
            judged(server, clouds, tmp_path / "cache", concurrency=1, tries=1)
        asked_before = len(server.requests)
        assert asked_before >= 30
    with OpenAIServer(reply) as server:
        found = judged(server, clouds, tmp_path / "cache")
        assert len(server.requests) == DISTINCT - 10
    with OpenAIServer(reply) as server:
        assert judged(server, clouds, tmp_path / "other").data_sets[0].gates == found.data_sets[0].gates


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (ChatReply("It is about 80, I think."), "malformed_reply"),
        (ChatReply(hang_up=True), "unreachable|server_error"),
    ],
    ids=["rubbish", "hangs up"],
)
def test_an_answer_without_a_mark_is_held_and_told_of(clouds, tmp_path, bad, code):
    def for_most(request: ChatRequest) -> ChatReply:
        return bad if "question 5?" in request.texts[1] else reply(request)

    with OpenAIServer(for_most) as server:
        found = judged(server, clouds, tmp_path / "cache", tries=1)
    (result,) = found.data_sets
    (note,) = [note for note in result.notes if "gave no rating" in note]
    assert re.search(rf"no rating to 2 of {DISTINCT} distinct answers \(({code}) 2\)", note), note
    with OpenAIServer(reply) as server:
        later = judged(server, clouds, tmp_path / "cache")
        assert len(server.requests) == 2, "only what was not marked is asked again"
    assert not any("gave no rating" in note for note in later.data_sets[0].notes)


def test_damaged_marks_are_asked_for_again(clouds, tmp_path):
    with OpenAIServer(reply) as server:
        found = judged(server, clouds, tmp_path / "cache")
        (record,) = (tmp_path / "cache" / "marks").iterdir()
        lines = record.read_bytes().split(b"\n")
        marks = [i for i, line in enumerate(lines) if line]
        lines[marks[3]] = lines[marks[3]].replace(b'"score":', b'"score":1')
        lines[marks[7]] = lines[marks[7]][:30]
        record.write_bytes(b"\n".join(lines))
        assert judged(server, clouds, tmp_path / "cache") == found
        assert len(server.requests) == DISTINCT + 2


def test_a_wrong_key_ends_the_command_at_once(clouds, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with OpenAIServer(lambda _: ChatReply(status=401)) as server:
        with pytest.raises(UsageError):
            judged(server, clouds, tmp_path / "cache")
        words = [
            "evaluate", str(clouds), "--judge-model", "m", "--judge-base-url", server.url,
            "--processes", "1",
        ]  # fmt: skip
        assert main(words) == 2
    assert "key" in capsys.readouterr().err
    assert main(["evaluate", str(clouds), "--judge"]) == 2
    assert "no judge is configured" in capsys.readouterr().err
