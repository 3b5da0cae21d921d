"""What evaluation tools write is read as it is: here by hand in the shape in which each tool's newest release wrote it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamer
from streamer.cli.batch_files import publications
from streamer.clouds.cloud import cloud_row, parse_cloud
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.formats import FORMATS
from streamer.errors import UsageError
from streamer.events.limits import Limits
from streamer.labels.label_files import open_labels
from tests.unit.labelling.test_label_files import NOW

ASK, RIGHT = "What is 2 + 2?", (True, False)
TEXTS = ("It is 4.", "It is 5.")


def both(make: Any) -> list[Any]:
    return [make(text, right) for text, right in zip(TEXTS, RIGHT, strict=True)]


def evals_events() -> list[Any]:
    """A log of `oaieval`: two runs of one sample, whose events come mixed; the second sampling of a run is the grader's."""
    runs = [
        {"run_id": f"r{run}", "event_id": 0, "sample_id": "sums.dev.0", "type": kind, "data": data, "created_by": ""}
        for kind in ("sampling", "match", "grader")
        for run in range(2)
        for data in (
            {"correct": RIGHT[run], "expected": "4", "picked": None, "sampled": TEXTS[run]}
            if kind == "match"
            else {"prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": ASK}],
                  "sampled": ["A" if kind == "grader" else TEXTS[run]]},
        )
        for kind in ("sampling" if kind == "grader" else kind,)
    ]  # fmt: skip
    return [{"spec": {"run_id": "r0", "completion_fns": ["m"]}}, *runs, {"final_report": {"accuracy": 0.5}}]


def lm_eval(text: str, right: bool, filtered: str = "strict-match") -> dict[str, Any]:
    return {
        "doc_id": 3, "doc": {"question": ASK, "answer": "4"}, "target": "4",
        "arguments": {"gen_args_0": {"arg_0": f"Q: {ASK}\nA:", "arg_1": {"until": ["\n"]}}},
        "resps": [[text]], "filtered_resps": [text], "filter": filtered, "metrics": ["exact_match"], "exact_match": float(right),
    }  # fmt: skip


def promptfoo(text: str, right: bool) -> dict[str, Any]:
    return {
        "promptIdx": 0, "testIdx": 0, "prompt": {"raw": ASK, "label": "plain"}, "vars": {"a": 2}, "success": right,
        "response": {"output": text, "tokenUsage": {"total": 9}}, "score": float(right), "namedScores": {},
    }  # fmt: skip


def deepeval(text: str, right: bool) -> dict[str, Any]:
    return {
        "name": "test_case_0",
        "input": ASK,
        "actualOutput": text,
        "expectedOutput": "4",
        "success": right,
        "metricsData": [],
    }


def langfuse(text: str, right: bool) -> dict[str, Any]:
    return {
        "id": f"t-{right}", "name": "chat", "userId": None, "sessionId": "s", "tags": [], "correctness": [float(right)],
        "input": [{"role": "user", "content": ASK}], "output": {"role": "assistant", "content": text},
    }  # fmt: skip


SQUAD = {
    "id": "q1",
    "question": ASK,
    "answers": {"text": ["4", "four"], "answer_start": [0, 9]},
    "is_impossible": False,
}
FILES: dict[str, tuple[str, Any]] = {
    "lm-eval": ("lines", [*both(lm_eval), *both(lambda text, right: lm_eval(text, not right, "flexible-extract"))]),
    "promptfoo": ("lines", both(promptfoo)),
    "promptfoo, all of it": ("json", {"evalId": "e", "results": {"version": 3, "results": both(promptfoo), "stats": {}}, "config": {}}),
    "deepeval": ("line", {"testCases": both(deepeval), "conversationalTestCases": [], "metricsScores": []}),
    "deepeval, latest": ("line", {"testRunData": {"testCases": both(deepeval)}, "testRunLink": None}),
    "deepeval, results": ("json", both(lambda text, right: {"input": ASK, "actual_output": text, "expected_output": "4", "success": right})),
    "langfuse": ("json", both(langfuse)),
    "langfuse, by its API": ("json", {"data": both(langfuse), "meta": {"page": 1}}),
    "openai-evals": ("lines", evals_events()),
    "ragas": ("lines", both(lambda text, right: {
        "user_input": ASK, "retrieved_contexts": ["sums"], "response": text, "reference": "4", "answer_correctness": float(right)})),
}  # fmt: skip


def written(path: Path, shape: str, content: Any) -> Path:
    lines = content if shape == "lines" else [content]
    whole = (
        json.dumps(content, indent=2) if shape == "json" else "".join(json.dumps(one) + "\n" for one in lines)
    )
    path.write_text(whole)
    return path


@pytest.mark.parametrize("name", FILES)
def test_what_evaluation_tools_write_needs_no_option(name: str, tmp_path: Path) -> None:
    path, tool = written(tmp_path / "results.json", *FILES[name]), name.partition(",")[0]
    told: list[str] = []
    (cloud,) = read_clouds(path, report=told.append)
    assert (cloud.question, cloud.texts, cloud.severities) == (ASK, TEXTS, (0.0, 1.0))
    assert cloud.own_scores is None, "a tool's score is the mark itself"
    assert f" of {tool}" in told[0]
    assert list(read_clouds(path, Reading(written_by=tool))) == [cloud]
    (other,) = read_clouds(path, Reading(columns={"correct": (), "severity": ()}))
    assert other.severities == (None, None), "what somebody names goes before"
    if tool == "langfuse":
        return  # what is imported from it are the scores that people gave there
    given: Any = {
        "now": NOW,
        "gate": "g",
        "kind": "k",
        "labeller": "ann",
        "columns": {},
        "reading": Reading(),
    }
    with open_labels(path, bridge=tool, **given) as labels:
        found = [(one.key.batch_id, one.response_id, one.severity) for one in labels]
    assert found == [(cloud.batch_id, one.id, one.severity) for one in cloud.responses]


def test_a_shape_that_is_not_recognised_says_its_fields_and_the_option(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.json", "json", [{"turn": {"said": "4"}, "asked": ASK}])
    with pytest.raises(
        UsageError, match=r"columns turn, asked, turn\.said; none .*--column answer=NAME, or .*--format TOOL"
    ):
        list(read_clouds(path))
    with pytest.raises(
        UsageError, match=r"nothing that promptfoo writes \(prompt\.raw, response\.output.*it has turn, asked"
    ):
        list(read_clouds(path, Reading(written_by="promptfoo")))
    with pytest.raises(UsageError, match="the formats of tools are lm-eval, promptfoo"):
        Reading(written_by="promptfo")


def test_squad_holds_no_answers_of_a_model(tmp_path: Path) -> None:
    def squad(*questions: dict[str, Any]) -> Path:
        data = [{"title": "t", "paragraphs": [{"context": "c", "qas": questions}]}]
        return written(tmp_path / "squad.json", "line", {"version": "v2.0", "data": data})

    with pytest.raises(UsageError, match="none is recognised as the answers' texts"):
        list(read_clouds(squad(SQUAD, SQUAD)))  # the known good ones are not the model's
    path = squad(*(SQUAD | {"prediction_text": text} for text in TEXTS))
    (cloud,) = read_clouds(path, Reading(columns={"answer": ("prediction_text",)}))
    assert (cloud.question_id, cloud.texts, cloud.references) == ("q1", TEXTS, ("4", "four"))


def uqlm(place: int) -> dict[str, Any]:
    right = place % 3 > 0
    samples = [f"It is {place}.", f"It is {place}.", f"{place}"]
    return {
        "prompt": f"What is {place} + 0?", "response": f"It is {place}." if right else "Nobody knows.",
        "sampled_responses": samples, "semantic_negentropy": 0.5, "response_correct": right,
    }  # fmt: skip


def encoded(texts: list[str]) -> Any:
    """An array of shape (n, 2): what says that nobody knows lies across from all else."""
    return np.array([[0.0, 1.0] if "Nobody" in text else [1.0, 0.1 * (len(text) % 3)] for text in texts])


def test_witnesses_count_for_the_signals_and_never_ship(tmp_path: Path) -> None:
    rows = [uqlm(place) for place in range(60)]
    path = written(tmp_path / "uqlm.jsonl", "lines", rows)
    columnar = {
        "data": {
            f"{name}s" if name in ("prompt", "response") else name: [row[name] for row in rows]
            for name in rows[0]
        }
    }
    clouds = list(read_clouds(path))
    assert list(read_clouds(written(tmp_path / "uqlm.json", "line", columnar))) == clouds
    assert [len(cloud.responses) for cloud in clouds] == [1] * 60
    assert [one.text for one in clouds[3].witnesses] == rows[3]["sampled_responses"]
    named: Any = {
        "answer": ("response",),
        "witnesses": ("sampled_responses",),
        "correct": ("response_correct",),
    }
    for row in rows:
        row["asked"] = row.pop("prompt")
    other = written(tmp_path / "own.jsonl", "lines", rows)
    assert [one.witnesses for one in read_clouds(other, Reading(columns=named))] == [
        one.witnesses for one in clouds
    ]
    line = json.dumps(cloud_row(clouds[0])).encode()
    assert parse_cloud(line, "x").witnesses == clouds[0].witnesses
    with pytest.raises(UsageError, match="of all samples in an event any may ship"):
        list(publications(str(path), gate="g", labels=False, labeller=None, limits=Limits()))
    for method in ("mean", "full"):
        gate = streamer.Gate(alpha=0.02, method=method, encoder=encoded).fit(str(path))
        decided = gate.decide(str(path))
        assert len(decided.ship) == 60
        for row, ships in zip(rows, decided.ship, strict=True):
            assert ships == row["response_correct"], "the witnesses tell what nobody else gave"
        for row in rows:
            row |= {"prompt": row["asked"], "response": " "}
        assert not any(gate.decide(rows).ship)
        rows = [uqlm(place) | {"asked": "?"} for place in range(60)]
    assert set(FORMATS) == {name.partition(",")[0] for name in FILES} | {"uqlm", "squad"}
