"""What files say of answers is read alike by every reader, and what would be untrue is refused."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamer
from streamer.cli.publish import publications
from streamer.clouds.cloud_files import AS_IT_IS, read_clouds
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import parse_mapping
from streamer.clouds.tables.marks import Marks, parse_scale, parse_words
from streamer.errors import UsageError
from streamer.events.limits import Limits
from streamer.frames.answers import read
from streamer.frames.gate import AnnotatorsWarning
from streamer.labels.label_files import one_each, open_labels
from streamer.research.evaluation import read_data_set
from tests.unit.labelling.test_label_files import NOW

RNG = random.Random(1)
BAD = [RNG.random() < 0.35 for _ in range(120)]
HONEST = [round(min(1, max(0, RNG.gauss(0.7 - 0.3 * bad, 0.2))), 3) for bad in BAD]


def rows(**columns: list[Any]) -> list[dict[str, Any]]:
    """Three answers to each of 40 prompts."""
    plain = {
        "batch_id": [f"p{i // 3}" for i in range(120)], "response_id": ["abc"[i % 3] for i in range(120)],
        "prompt": [f"Question {i // 3}?" for i in range(120)], "answer": [f"Answer {i}" for i in range(120)],
    }  # fmt: skip
    names = plain | columns
    return [dict(zip(names, cells, strict=True)) for cells in zip(*names.values(), strict=True)]


def write(path: Path, made: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        if path.suffix == ".csv":
            table = csv.DictWriter(file, list(made[0]))
            table.writeheader()
            table.writerows(made)
        else:
            file.writelines(json.dumps(row) + "\n" for row in made)
    return path


def published(path: Path, reading: Reading, *, labels: bool) -> list[Any]:
    options: dict[str, Any] = {"labels": labels, "labeller": None, "limits": Limits()}
    return list(publications(str(path), gate="g", reading=reading, **options))


def imported(path: Path, reading: Reading, **columns: str) -> list[float]:
    with open_labels(
        path, now=NOW, gate="g", kind="human", labeller="ann", reading=reading, columns=columns
    ) as found:
        return [one.severity for one in found]


def fitted(path: Path, reading: Reading) -> streamer.Gate:
    return streamer.Gate(alpha=0.3, trust_score=reading.trust_score).fit(str(path))


READERS: dict[str, Callable[[Path, Reading], object]] = {
    "plan, what-if": lambda path, reading: list(read_clouds(path, reading)),
    "one prompt at a time": lambda path, reading: list(read_clouds(path, reading, hold=False)),
    "evaluate": lambda path, reading: read_data_set(path, reading=reading),
    "Gate": fitted,
    "publish": lambda path, reading: published(path, reading, labels=False),
    "publish --labels": lambda path, reading: published(path, reading, labels=True),
    "label import": imported,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_score_that_is_the_mark_is_refused_by_every_reader(reader: str, tmp_path: Path) -> None:
    severity = [int(bad) for bad in BAD]
    leaks = {
        "mark": [1 - one for one in severity],
        "wrong way": severity,
        "nearly": [one if i == 7 else 1 - one for i, one in enumerate(severity)],
        "apart": [0.1 + 0.3 * (1 - one) + i / 1000 for i, one in enumerate(severity)],
    }
    for name, score in leaks.items():
        path = write(tmp_path / f"{name}.csv", rows(severity=severity, score=score))
        with pytest.raises(
            UsageError,
            match=r"column score: it (separates|equals) .*as the mark itself would.*trust_?-?score",
        ):
            READERS[reader](path, AS_IT_IS)
        assert READERS[reader](path, Reading(trust_score=True))
    assert READERS[reader](write(tmp_path / "honest.csv", rows(severity=severity, score=HONEST)), AS_IT_IS)


def test_a_field_that_is_the_mark_is_no_score_to_evaluate(tmp_path: Path) -> None:
    made = rows(severity=[int(bad) for bad in BAD], judged=[int(not bad) for bad in BAD])
    path = write(tmp_path / "f.jsonl", made)
    with pytest.raises(UsageError, match="column judged: it separates"):
        read_data_set(path, external=["judged"])
    assert "judged" in read_data_set(path, external=["judged"], reading=Reading(trust_score=True)).scores


def test_few_answers_of_a_class_and_honest_scores_pass(tmp_path: Path) -> None:
    few = [i in (3, 40, 77) for i in range(120)]
    apart = [0.1 if one else 0.5 + i / 1000 for i, one in enumerate(few)]
    for severity, score in ((few, apart), ([False] * 120, [1.0] * 120)):
        path = write(tmp_path / "few.csv", rows(severity=[int(one) for one in severity], score=score))
        assert len(list(read_clouds(path))) == 40


NESTED: list[tuple[str, Any, str, str]] = [
    ("answer", {"output": "Paris", "cached": True}, "answer.output", "Paris"),
    ("answer", [{"text": "Paris"}], "answer.0.text", "Paris"),
    ("references", {"text": ["Paris"], "start": [1]}, "references.text", "Paris"),
    ("references", [{"text": "Paris"}], "references.text", "Paris"),
    ("prompt", {"messages": [{"role": "system", "content": "Hm"}, {"role": "user", "content": "Who?"}]},
     "prompt.messages.-1.content", "Who?"),
    ("severity", {"value": 1}, "severity.value", "1.0"),
    ("score", {"mean": 0.25}, "score.mean", "0.25"),
    ("response_id", {"nr": 3}, "response_id.nr", "3"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "value", "name", "says"), NESTED)
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "list of dicts"])
def test_nested_values_are_named_by_dotted_columns(
    role: str, value: Any, name: str, says: str, kind: str, tmp_path: Path
) -> None:
    plain = {
        "batch_id": "b", "prompt": "Who?", "response_id": "x", "answer": "A", "severity": 0,
        "score": 0.5,
    }  # fmt: skip
    table: Any = [plain | {role: value}]
    if kind == "jsonl":
        table = write(tmp_path / "f.jsonl", table)
    elif kind == "parquet":
        pd.DataFrame(table).to_parquet(tmp_path / "f.parquet")
        table = tmp_path / "f.parquet"
    given = "answer_id" if role == "response_id" else role
    inner = name.split(".")[-1]
    if role != "answer":  # the text in an answer is found
        with pytest.raises(
            UsageError, match=rf"column {role}: (an object|a list of objects) .*{role}\..*{inner}"
        ):
            read(table, AS_IT_IS)
    found = read(table, Reading(columns=parse_mapping([f"{given}={name}"])))
    (cloud,) = found.clouds
    (answer,) = cloud.responses
    said = [
        cloud.question, *cloud.references, answer.id, answer.text, str(answer.severity),
        str(answer.score),
    ]  # fmt: skip
    assert says in said
    assert not any("{" in one for one in said)


def test_no_text_is_made_of_what_is_none(tmp_path: Path) -> None:
    plain = {"prompt": "a", "answer": "b", "score": 0.5}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"answer": [["b", "c"], "d"]}, "a list where a text should be; name an entry of it"),
        ({"prompt": ["a"]}, "column prompt: a list where a text should be"),
        ({"references": [["a"]]}, "column references: a list where a text should be"),
        ({"answer": object()}, "column answer: object where a text should be"),
        ({"answer": b"\xff"}, "bytes that are no UTF-8"),
        ({"references": "['Paris' 'Rome']"}, "a list that cannot be read; write it as JSON"),
        ({"references": "{'text': array(['Paris'])}"}, "column references: an object"),
    ]
    for changes, says in cases:
        with pytest.raises(UsageError, match=says):
            read([plain | changes], AS_IT_IS)
    texts = [
        (True, "true"),
        (7, "7"),
        (b"Paris", "Paris"),
        (np.int64(3), "3"),
        (2.0, "2"),
        ('{"a": 1}', '{"a": 1}'),
    ]
    for value, text in texts:
        assert read([plain | {"answer": value}], AS_IT_IS).clouds[0].texts == (text,)
    frame = pd.DataFrame(
        {"prompt": ["a"], "answer": ["b"], "score": [0.5], "references": [np.array(["x", "y"])]}
    )
    assert read(frame, AS_IT_IS).clouds[0].references == ("x", "y")
    path = write(tmp_path / "f.csv", [plain | {"references": json.dumps({"text": ["x", "y"]})}])
    found = read(path, Reading(columns={"references": ("references.text",)})).clouds[0].references
    assert found == ("x", "y")


def test_a_key_that_comes_late_is_not_passed_over(tmp_path: Path) -> None:
    made = [row | ({"severity": 1} if i > 60 else {}) for i, row in enumerate(rows())]
    path = write(tmp_path / "late.jsonl", made)
    with pytest.raises(UsageError, match="line 62, column severity: the first rows lack it"):
        list(read_clouds(path))
    assert len(list(read_clouds(path, Reading(columns=parse_mapping(["severity="]))))) == 40


def test_severities_of_several_annotators_become_one(tmp_path: Path) -> None:
    once = rows(severity=[int(bad) for bad in BAD], score=HONEST)
    twice = [one for i, row in enumerate(once) for one in ([row, row | {"severity": 1}] if i < 30 else [row])]
    path = write(tmp_path / "f.csv", twice)
    expected = [(bad + 1) / 2 if i < 30 else float(bad) for i, bad in enumerate(BAD)]
    worst = [1.0 if i < 30 else float(bad) for i, bad in enumerate(BAD)]
    for annotators, wanted in (("mean", expected), ("worst", worst)):
        reading = Reading(annotators=annotators)  # type: ignore[arg-type]
        for hold in (True, False):
            told: list[str] = []
            clouds = list(read_clouds(path, reading, report=told.append, hold=hold))
            assert [one for cloud in clouds for one in cloud.severities] == wanted
            assert "30 of 120 answers have several severities, 60 in all" in told[1]
    with pytest.warns(AnnotatorsWarning, match=r'are averaged \(annotators="worst" takes the worst\)'):
        gate = streamer.Gate(alpha=0.4, unit="response").fit(twice)
    assert (
        gate.threshold_
        == streamer.Gate(alpha=0.4, unit="response")
        .fit([row | {"severity": one} for row, one in zip(once, expected, strict=True)])
        .threshold_
    )
    ship = gate.decide(twice).ship
    assert len(ship) == len(twice)
    assert ship[:60:2].tolist() == ship[1:60:2].tolist() == gate.decide(once).ship[:30].tolist()
    assert len(published(path, AS_IT_IS, labels=True)[0].labels) == 3
    with open_labels(path, now=NOW, gate="g", kind="human", labeller="ann", columns={}) as reader:
        labels, note = one_each(list(reader), "mean")
    assert [one.severity for one in labels] == expected
    assert note.startswith("30 of 120 answers")


def test_rows_of_one_answer_must_be_of_one_answer(tmp_path: Path) -> None:
    for changes, says in (
        ({"answer": "another"}, "another text than at line 2.*--column answer_id="),
        ({"score": 0.1}, "another score than at line 2.*--column score="),
    ):
        path = write(tmp_path / "f.csv", [one for row in rows(score=HONEST) for one in (row, row | changes)])
        with pytest.raises(UsageError, match=says):
            list(read_clouds(path))


MARKS: list[tuple[Any, dict[str, Any], float]] = [
    *((word, {}, 0.0) for word in ("fine", "Correct", " ok ", "pass", 0, "0.0")),
    ("half", {}, 0.5), (0.25, {}, 0.25),
    *((word, {}, 1.0) for word in ("worst", "WRONG", "fail", "hallucinated", "1", 1.0)),
    ("true", {}, 1.0), (False, {}, 0.0),
    ("Partly", {"words": ["partly=0.5"]}, 0.5), ("none", {"words": ["none=0"]}, 0.0), ("fine", {"words": ["fine=0.2"]}, 0.2),
    (4, {"scale": "1:5"}, 0.25), ("5", {"scale": "1:5"}, 0.0), ("1", {"scale": "1:5"}, 1.0), (2, {"scale": "5:1"}, 0.25),
    (80, {"scale": "0:100"}, 0.2), ("worst", {"scale": "1:5"}, 1.0), ("true", {"scale": "1:5"}, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("mark", "options", "severity"), MARKS)
def test_a_mark_means_the_same_at_every_reader(
    mark: Any, options: dict[str, Any], severity: float, tmp_path: Path
) -> None:
    scale = parse_scale(options["scale"]) if "scale" in options else None
    words = parse_words(options.get("words", ()))
    reading = Reading(marks=Marks(scale, words))
    plain = {"batch_id": "b", "response_id": "x", "prompt": "a", "answer": "b", "score": 0.5}
    for column in ("severity", "correct"):
        # A truth value answers what the column asks, and a number without a scale says how much of it.
        of_column = str(mark).lower() in ("true", "false") or (
            scale is None and str(mark).replace(".", "").isdigit()
        )
        wanted = 1 - severity if column == "correct" and of_column else severity
        for name in ("f.csv", "f.jsonl"):
            path = write(tmp_path / f"{column}-{name}", [plain | {column: mark}])
            assert [one.severities for one in read_clouds(path, reading)] == [(wanted,)]
            assert imported(path, reading) == [wanted]
            assert imported(path, reading, **{column: column}) == [wanted]
            (one,) = published(path, reading, labels=True)[0].labels
            assert json.loads(one)["severity"] == wanted
        gate = streamer.Gate(alpha=0.5, scale=scale, words=words).fit([plain | {column: mark}])
        assert gate.groups_[0].severities.tolist() == [wanted]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: parse_scale("5"), "--scale must be WORST:BEST"),
        (lambda: parse_scale("5:5"), "--scale must be WORST:BEST"),
        (lambda: parse_words(["partly"]), "--map must be WORD=SEVERITY"),
        (lambda: parse_words(["partly=2"]), "--map must be WORD=SEVERITY"),
        (lambda: Marks((1, 1)), "a scale is its worst and its best mark"),
        (lambda: Marks(words={"partly": 2}), "the severity of 'partly' must be a number from 0"),
        (lambda: Reading(annotators="best"), "annotators must be one of mean, worst"),  # type: ignore[arg-type]
    ],
)
def test_what_no_mark_can_mean_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()
    with pytest.raises(ValueError, match=r"'7' is not a number on the scale from 1 \(worst\) to 5 \(best\)"):
        Marks((1, 5)).severity("7")
    with pytest.raises(ValueError, match="a list where one mark should be"):
        Marks().severity([1])
