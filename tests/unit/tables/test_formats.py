"""What evaluation tools write is read as it is: by hand here, in the shape that each tool's newest release writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamer
from streamer.cli.publish import publications
from streamer.clouds.cloud import cloud_row, parse_cloud
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.formats import FORMATS
from streamer.errors import UsageError
from streamer.events.limits import Limits
from streamer.events.responses import decode_responses
from streamer.frames.gate import FewerAnswersWarning
from streamer.labels.label_files import open_labels
from tests.unit.labelling.test_label_files import NOW

ASK = "What is 2 + 2?"
FAILURE = "API error: 429 Too Many Requests"
TURN = {"role": "user", "content": ASK}
TURNS = [{"role": "system", "content": "Be brief."}, TURN, {"role": "assistant", "content": "Hm."}]
TEXTS, RIGHT = ("It is 4.", "It is 5."), (True, False)
BOTH = tuple(zip(TEXTS, RIGHT, strict=True))


def lm_eval(text: str, right: bool, name: str) -> dict[str, Any]:
    row = {"doc_id": 3, "doc": {"question": ASK, "answer": "4"}, "target": "4", "filter": name}
    return row | {"resps": [[text]], "filtered_resps": [text], "exact_match": float(right)}


def event(run: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"run_id": f"r{run}", "event_id": 0, "sample_id": "sums.0", "type": kind, "data": data}


PROMPTFOO: list[dict[str, Any]] = [
    {"prompt": {"raw": ASK, "label": "plain"}, "success": right, "score": 1, "response": {"output": text}}
    | {"failureReason": int(not right)}
    for text, right in BOTH
]
DEEPEVAL = [
    {"input": ASK, "actualOutput": text, "expectedOutput": "4", "success": right} for text, right in BOTH
]
METRICS = [
    {name: one for name, one in lm_eval(text, right, "none").items() if name != "exact_match"}
    | {"metrics": ["listed", "strict"], "listed": [right], "strict": right}
    for text, right in BOTH
]
RESULTS = [{"input": ASK, "actual_output": text, "success": right} for text, right in BOTH]
LANGFUSE = [
    {"id": text, "sessionId": "s", "input": [TURN], "output": {"content": text}, "correctness": [int(right)]}
    for text, right in BOTH
]
RUNS = [
    {"datasource_item_id": 7, "datasource_item": {"asked": ASK}, "status": "pass" if right else "fail"}
    | {"sample": {"input": [TURN], "output": [{"role": "assistant", "content": text}], "error": None}}
    | {"results": [{"name": "equals", "passed": right}, {"name": "short", "passed": True}]}
    for text, right in BOTH
]
# Events of runs come mixed, and a grader's sampling comes after the model's.
OAIEVAL = [
    {"spec": {"run_id": "r0", "completion_fns": ["m"]}},
    *(event(run, "sampling", prompt=[TURN], sampled=[text]) for run, text in enumerate(TEXTS)),
    *(event(run, "match", correct=right, expected="4") for run, right in enumerate(RIGHT)),
    *(event(run, "sampling", prompt=[TURN], sampled=["A"]) for run in range(2)),
    {"final_report": {"accuracy": 0.5}},
]
RAGAS = [
    {"user_input": ASK, "response": text, "reference": "4", "answer_correctness": int(right)}
    for text, right in BOTH
]
FILES: dict[str, tuple[str, Any]] = {
    "lm-eval": ("lines", [lm_eval(*one, name) for name in ("strict", "flexible") for one in BOTH]),
    "promptfoo": ("lines", PROMPTFOO),
    "promptfoo, all of it": ("json", {"evalId": "e", "results": {"results": PROMPTFOO}, "config": {}}),
    "deepeval": ("line", {"testCases": DEEPEVAL, "metricsScores": []}),
    "deepeval, latest": ("line", {"testRunData": {"testCases": DEEPEVAL}, "testRunLink": None}),
    "langfuse": ("json", LANGFUSE),
    "langfuse, by its API": ("json", {"data": LANGFUSE, "meta": {"page": 1}}),
    **{
        f"langfuse, {kind}": ("json", [one | {"input": asked, "sessionId": None} for one in LANGFUSE])
        for kind, asked in {
            "a text": ASK,
            "args": {"args": [ASK], "kwargs": {}},
            "turns": TURNS,
            "turns as text": json.dumps(TURNS),
        }.items()
    },
    "lm-eval, the verdict by its metrics": ("lines", METRICS),
    "deepeval, a result": ("line", {"test_results": RESULTS}),
    "openai-eval-runs": ("json", {"object": "list", "data": RUNS, "has_more": False}),
    "openai-evals": ("lines", OAIEVAL),
    "ragas": ("lines", RAGAS),
}
GOOD = [{"text": text, "answer_start": 0} for text in ("4", "four")]
SQUAD = {"id": "q1", "question": ASK, "answers": GOOD, "is_impossible": False}
IMPOSSIBLE = {"id": "q0", "question": "Why?", "answers": [], "is_impossible": True}


def written(path: Path, shape: str, content: Any) -> Path:
    lines = content if shape == "lines" else [content]
    indent = 2 if shape == "json" else None
    path.write_text("".join(json.dumps(one, indent=indent) + "\n" for one in lines))
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
    given: Any = {"now": NOW, "gate": "g", "kind": "k", "labeller": "ann", "reading": Reading()}
    for bridge in (tool, None):
        with open_labels(path, bridge=bridge, columns={}, **given) as labels:
            found = [(one.key.batch_id, one.response_id, one.severity) for one in labels]
        assert found == [(cloud.batch_id, one.id, one.severity) for one in cloud.responses]


def test_a_shape_that_is_not_recognised_says_its_fields_and_the_option(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.json", "json", [{"turn": {"said": "4"}, "asked": ASK}])
    for tool, says in (
        (None, r"columns turn, asked, turn\.said; none .*--column answer=NAME, or .*--format TOOL"),
        ("promptfoo", r"nothing that promptfoo writes \(prompt\.raw, .*it has turn, asked, turn\.said"),
        ("promptfo", "the formats of tools are lm-eval, promptfoo"),
    ):
        with pytest.raises(UsageError, match=says):
            list(read_clouds(path, Reading(written_by=tool)))


def test_of_turns_the_last_of_the_user_is_the_prompt_as_the_advice_says(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", "lines", [{"query": TURNS, "output": text} for text in TEXTS])
    with pytest.raises(UsageError, match=r"--column prompt=(query\.role=user\.-1\.content)$") as error:
        list(read_clouds(path))
    (cloud,) = read_clouds(path, Reading(columns={"prompt": (str(error.value).rpartition("t=")[2],)}))
    assert (cloud.question, cloud.texts) == (ASK, TEXTS)


def test_squad_holds_no_answers_of_a_model(tmp_path: Path) -> None:
    def squad(*questions: dict[str, Any]) -> Path:
        data = [{"title": "t", "paragraphs": [{"context": "c", "qas": questions}]}]
        return written(tmp_path / "squad.json", "line", {"version": "v2.0", "data": data})

    with pytest.raises(UsageError, match="none is recognised as the answers' texts"):
        list(read_clouds(squad(IMPOSSIBLE, SQUAD, SQUAD)))  # the known good ones are not the model's
    rows = [one | {"prediction_text": text} for one in (IMPOSSIBLE, SQUAD) for text in TEXTS]
    flat = [
        row | {"answers": {name: [one[name] for one in row["answers"]] for name in ("text", "answer_start")}}
        for row in rows
    ]  # as the datasets library has it
    for path in (squad(*rows), written(tmp_path / "flat.jsonl", "lines", flat)):
        unanswerable, cloud = read_clouds(path, Reading(columns={"answer": ("prediction_text",)}))
        assert (cloud.question_id, cloud.texts, cloud.references) == ("q1", TEXTS, ("4", "four"))
        assert (unanswerable.question_id, unanswerable.references) == ("q0", ())
    assert set(FORMATS) == {name.partition(",")[0] for name in FILES} | {"uqlm", "openai-batch", "squad"}


ROWS = [{"question": ASK, "answer": text, "correct": right} for text, right in BOTH]
BY_COLUMN = {name: [row[name] for row in ROWS] for name in ROWS[0]}
OF_MODELS = [
    {"question": ASK, "answer": "4", "prediction": row["answer"], "passed": row["correct"]} for row in ROWS
]
WHOLE = {"question": ASK, "correct": list(RIGHT)}
SHAPES: dict[str, tuple[str, Any]] = {
    "rows in a member": ("line", {"data": ROWS, "version": 1}),
    "a list for each column": ("json", BY_COLUMN),
    "as pandas writes it": ("line", {name: dict(enumerate(cells)) for name, cells in BY_COLUMN.items()}),
    "known good answers beside": ("lines", OF_MODELS),
    "known good ones in a list": ("lines", [WHOLE | {"answers": ["4", "four", "IV"], "responses": TEXTS}]),
    "known good ones beside numbered": (
        "lines",
        [
            {"question": ASK, "answer": "4"}
            | {
                f"{name}_{i}": one[at]
                for i, one in enumerate(BOTH)
                for at, name in enumerate(("output", "correct"))
            }
        ],
    ),
    "objects in a list": (
        "lines",
        [{"question": ASK, "answers": [row | {"text": row["answer"]} for row in ROWS]}],
    ),
    "an object each": ("lines", [row | {"answer": {"content": row["answer"]}} for row in ROWS]),
    "lists in lists": ("lines", [WHOLE | {"answers": [[text] for text in TEXTS]}]),
    "choices": ("lines", [WHOLE | {"choices": [{"message": {"content": text}} for text in TEXTS]}]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_that_people_have_need_no_option(name: str, tmp_path: Path) -> None:
    (cloud,) = read_clouds(written(tmp_path / "rows.json", *SHAPES[name]))
    assert (cloud.question, cloud.texts, cloud.severities) == (ASK, TEXTS, (0.0, 1.0))


def test_of_the_batches_of_openai_lines_of_one_id_and_choices_of_one_line_are_answers(tmp_path: Path) -> None:
    def line(name: str, *texts: str, error: Any = None) -> dict[str, Any]:
        body = {"choices": [{"index": i, "message": {"content": text}} for i, text in enumerate(texts)]}
        return {"custom_id": name, "response": {"status_code": 200, "body": body}, "error": error}

    failed = {"custom_id": "q", "response": None, "error": {"message": FAILURE}}
    told: list[str] = []
    for lines in ([line("q", TEXTS[0]), failed, line("q", TEXTS[1])], [line("q", *TEXTS), failed]):
        (cloud,) = read_clouds(written(tmp_path / "out.jsonl", "lines", lines), report=told.append)
        assert (cloud.question_id, cloud.texts) == ("q", TEXTS)
        assert FAILURE in told[-1]


FAILED: dict[str, dict[str, Any]] = {
    "promptfoo": PROMPTFOO[0]
    | {"success": False, "failureReason": 2, "response": {"error": FAILURE}, "error": FAILURE},
    "deepeval": DEEPEVAL[0] | {"actualOutput": None, "success": False},
    "langfuse": LANGFUSE[0] | {"id": "x", "output": None, "level": "ERROR", "statusMessage": FAILURE},
    "openai-evals": event(9, "error", type="RateLimitError", message=FAILURE),
    "ragas": RAGAS[0] | {"response": None},
    "lm-eval": lm_eval("", right=False, name="strict") | {"filtered_resps": [None], "resps": [[None]]},
}
"""A row of a call that failed, which says why where the tool does."""


@pytest.mark.parametrize("name", FAILED)
def test_rows_of_calls_that_failed_are_counted_and_left_out(name: str, tmp_path: Path) -> None:
    def read(*rows: dict[str, Any]) -> list[Any]:
        told.clear()
        return list(read_clouds(written(tmp_path / "rows.jsonl", "lines", rows), report=told.append))

    told: list[str] = []
    shape, rows = FILES[name]
    rows = rows["testCases"] if shape == "line" else rows
    whole, failed = read(*rows), FAILED[name]
    for place in (0, len(rows)):  # an empty first row tells the tool's file, too
        assert read(*rows[:place], failed, *rows[place:]) == whole
        assert "left out: 1 of " in told[-1]
        assert (FAILURE in told[-1]) == (FAILURE in json.dumps(failed))
    if name == "promptfoo":
        with pytest.raises(UsageError, match=f"nothing is left: 1 of 1 rows .*{FAILURE}"):
            read(failed)
        other = {"prompt": {"raw": "Another?"}}
        *those, alone = read(*rows, failed | other, rows[0] | other)
        assert (those, len(alone.responses)) == (whole, 1), "which gates hold"
        grader = {"gradingResult": {"componentResults": [{"metadata": {"graderError": True}}, {}]}}
        assert read(*(row | grader for row in rows))[0].severities == (None, None), "nobody has graded"
        gate = streamer.Gate(alpha=0.5, encoder=encoded).fit("examples/labelled.csv")
        with pytest.warns(FewerAnswersWarning, match=r"\(at least 5\): 1 of 1 prompt; the promise does not"):
            assert len(gate.decide([*rows, failed]).ship) == 3, "one for each row"


@pytest.mark.parametrize(
    ("filtered", "samples", "shown"),
    [
        ("It is 4.", ["It is 4.", "It is 5.", "It is 4."], 0),
        ("4", ["I think of 14.", "It is 4.", "No."], 1),
        ("[invalid]", ["No.", "It is 4.", "No."], 0),
    ],
)
def test_of_the_samples_of_lm_eval_the_graded_one_is_the_answer(
    filtered: str, samples: list[str], shown: int, tmp_path: Path
) -> None:
    row = lm_eval(filtered, right=True, name="none") | {"resps": [samples]}
    path = written(tmp_path / "samples.jsonl", "lines", [row])
    (cloud,) = read_clouds(path)
    assert (cloud.texts, cloud.responses[0].id) == ((samples[shown],), f"r0{shown}"), "as all would be named"
    assert [one.text for one in cloud.witnesses] == [*samples[:shown], *samples[shown + 1 :]]
    assert list(read_clouds(path, Reading(columns={"witnesses": ("resps.0",)}))) == [cloud]
    (whole,) = read_clouds(path, Reading(columns={"answer": ("resps.0",)}))
    assert (whole.texts, whole.witnesses) == (tuple(samples), ())
    assert [one.severity for one in whole.responses] == [0.0 if i == shown else None for i in range(3)]


def test_choices_that_lm_eval_compares_are_no_answers(tmp_path: Path) -> None:
    row = lm_eval("", right=True, name="none") | {"filtered_resps": [["-3.2", "False"], ["-1.0", "True"]]}
    with pytest.raises(UsageError, match=r"filtered_resps\.0 holds lists.* take a task that generates text"):
        list(read_clouds(written(tmp_path / "samples.jsonl", "lines", [row])))


def uqlm(place: int, **other: Any) -> dict[str, Any]:
    right = place % 3 > 0
    row = {"prompt": f"What is {place} + 0?", "response": f"It is {place}." if right else "Nobody knows."}
    samples = [f"It is {place}.", f"It is {place}.", f"{place}"]
    return row | {"sampled_responses": samples, "response_correct": right} | other


def encoded(texts: list[str]) -> Any:
    """An array of shape (n, 2): what says that nobody knows lies across from all else."""
    return np.array([[0, 1] if "Nobody" in text else [1, 0.1 * (len(text) % 3)] for text in texts])


def test_witnesses_count_for_the_signals_and_never_ship(tmp_path: Path) -> None:
    rows = [uqlm(place) for place in range(60)]
    path = written(tmp_path / "uqlm.jsonl", "lines", rows)
    clouds = list(read_clouds(path))
    assert [len(cloud.responses) for cloud in clouds] == [1] * 60
    assert [one.text for one in clouds[3].witnesses] == rows[3]["sampled_responses"]
    names = {"prompt": "prompts", "response": "responses"}
    columns = {names.get(name, name): [row[name] for row in rows] for name in rows[0]}
    assert list(read_clouds(written(tmp_path / "uqlm.json", "line", {"data": columns}))) == clouds
    lost = {"response": "Unable to get response"}  # in place of an answer, and of samples
    rows += [uqlm(60, **lost), rows[0] | {"prompt": "?", "sampled_responses": ["0", *lost.values()]}]
    *those, short = read_clouds(written(tmp_path / "lost.jsonl", "lines", rows))
    assert (those, [one.text for one in short.witnesses]) == (clouds, ["0"])
    assert parse_cloud(json.dumps(cloud_row(clouds[0])).encode(), "x").witnesses == clouds[0].witnesses
    asked: dict[str, Any] = {"gate": "g", "labels": True, "labeller": None, "limits": Limits()}
    with pytest.raises(UsageError, match=r"any may ship: .* --column answer=COLUMN"):
        list(publications(str(path), **asked))
    all_ship = Reading(columns={"answer": ("sampled_responses",)})
    published = [decode_responses(one.value) for one in publications(str(path), **asked, reading=all_ship)]
    texts = [[rows[3]["response"], *rows[3]["sampled_responses"]], ["r00", "r01", "r02", "r03"]]
    assert [[getattr(one, name) for one in published[3].responses] for name in ("text", "id")] == texts
    plain = [{"asked": "?", "shown": "4", "others": ["4", "5"]}]
    named = {"prompt": ("asked",), "answer": ("shown", "others"), "witnesses": ("others",)}
    (first,) = read_clouds(written(tmp_path / "plain.jsonl", "lines", plain), Reading(columns=named))
    assert first.texts == ("4", "4", "5")
    given: Any = {"now": NOW, "gate": "g", "kind": "k", "labeller": "ann", "reading": Reading()}
    with open_labels(path, columns={}, **given) as labels:
        assert [one.response_id for one in labels] == ["r00"] * 60, "the graded one of those"
    for method in ("mean", "full"):
        gate = streamer.Gate(alpha=0.02, method=method, encoder=encoded).fit(str(path))
        ships = gate.decide(str(path)).ship.tolist()
        assert ships == [row["response_correct"] for row in rows[:60]], "the witnesses tell them apart"
        assert not any(gate.decide([uqlm(place, response=" ") for place in range(60)]).ship)
