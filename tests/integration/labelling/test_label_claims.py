"""`streamer label claims`: from answers that nobody cut to what `streamer evaluate` reads."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from streamer.cli import main
from streamer.clouds.cloud_files import read_clouds
from tests.services.openai_server import ChatReply, ChatRequest, OpenAIServer

TEXT = "<think>No?</think>=1+1 is two.\n- She was born in 1815, see below\n- She died in 1820\n"
SAID = ("=1+1 is two.", "- She was born in 1815, see below", "- She died in 1820")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def row(name: str, first: str) -> str:
        texts = [("m2", "Two. Born in 1815."), ("m1", first), ("m3", "1+1 is 2; she died in 1852")]
        responses = [{"text": text, "model": model} for model, text in texts]
        return json.dumps({"question_id": name, "question": "?", "responses": responses})

    Path("in.jsonl").write_text("\n".join([row("a", TEXT), row("b", TEXT), row("c", " ")]))


def evaluated(file: str, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    capsys.readouterr()
    assert main(["evaluate", file, *more, "--unlabelled", "fail", "--splits", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    return {name: value for name, value in found.items() if name not in ("name", "answer")}


def test_people_fill_in_a_table_or_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["label", "claims", "in.jsonl", "--answer", "m1", "--out"]
    assert main([*asked[:-2], "m9", "--out", "out.csv"]) == 2
    assert not Path("out.csv").exists()
    assert main([*asked, "out.csv"]) == 0
    said = capsys.readouterr()
    assert "6 claims of 2 prompts" in said.out
    assert "held whatever the threshold: the answer has no claims" in said.err
    assert "streamer evaluate out.csv\n" in said.err
    with Path("out.csv").open(newline="") as lines:
        head, *rows = csv.reader(lines)
    assert [row[-2] for row in rows[:4]] == [*("'" + said for said in SAID), ""]
    for row in rows:
        row[-1] = str(float("1820" in row[-2])) if row[-2] else ""
    with Path("out.csv").open("w", newline="") as lines:
        csv.writer(lines).writerows([head, *rows])
    (first, *_) = read_clouds("out.csv")
    assert first.responses[0].text == TEXT
    wanted = list(zip(SAID, (0.0, 0.0, 1.0), strict=True))
    assert [(one.text, one.severity) for one in first.responses[0].claims or ()] == wanted
    assert main([*asked, "out.jsonl"]) == 0
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    for line in lines:
        for claim in line["responses"][1].get("claims", ()):
            assert line["responses"][1]["text"][slice(*claim["span"])] == claim["text"]
            claim["label"] = float("1820" in claim["text"])
    Path("out.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert evaluated("out.csv", capsys) == evaluated("out.jsonl", capsys, "--answer", "m1")
    for wrong in ("out.csv", "out.txt"):
        assert main([*asked, wrong]) == 2
    assert "may be filled in" in capsys.readouterr().err


def test_a_judge_reads_each_claim_in_its_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = True

    def reply(request: ChatRequest) -> ChatReply:
        case = request.body["messages"][1]["content"]
        shown = json.loads(case[case.index("{") : case.rindex("}") + 1])
        asked.append(shown["candidate"].strip())
        assert shown["answer"].startswith("=1+1")
        wrong = "1820" in shown["candidate"]
        if wrong and refused:
            return ChatReply('{"score": 5, "subscores": {}}')
        return ChatReply(json.dumps({"score": 5 if wrong else 100}))

    asked: list[str] = []
    with OpenAIServer(reply) as server:
        monkeypatch.setenv("STREAMER_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("STREAMER_JUDGE_MODEL", "grader")
        command = ["label", "claims", "in.jsonl", "--answer", "m1", "--by", "judge", "--out"]
        assert main([*command[:4], "m9", *command[5:], "out.jsonl"]) == 2
        assert "no answer is by the model 'm9'" in capsys.readouterr().err
        assert Path("out.jsonl").read_text() == ""
        assert main([*command, "out.jsonl"]) == 1
        assert "2 claims not labelled" in capsys.readouterr().err
        assert [one.question_id for one in read_clouds("out.jsonl")] == ["c"]  # nothing to label
        assert sorted(set(asked)) == sorted(SAID)
        refused = False
        asked.clear()
        assert main([*command, "out.jsonl"]) == 0
        assert asked == [SAID[2]] * 2  # the others' labels were kept
        assert main([*command, "out.csv"]) == 2
    line = json.loads(Path("out.jsonl").read_text().splitlines()[-1])
    assert line["labelled_by"].startswith("grader/rubric-")
    assert [one["label"] for one in line["responses"][1]["claims"]] == [0.0, 0.0, 0.95]
    assert evaluated("out.jsonl", capsys, "--answer", "m1")["claims"] == 6
    assert main(["label", "claims", "in.jsonl", "--by", "lexical", "--out", "x.jsonl"]) == 2
