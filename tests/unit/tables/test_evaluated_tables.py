"""Tables in `evaluate` and `plan`: scores and embeddings of their own, and answers that nobody has labelled."""

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from streamer.cli.publish import publications
from streamer.clouds.tables.answers import Reading
from streamer.errors import UsageError
from streamer.events.limits import Limits
from streamer.frames.gate import Gate, HeldWarning
from streamer.research.evaluation import Encoding, evaluate
from tests.told import Told

PROMPTS, ANSWERS = 60, 3


def rows(*, unlabelled: float = 0.0, seed: int = 1) -> list[dict[str, Any]]:
    """Answers whose score says something of their severity; a share of them unlabelled, at random."""
    rng = random.Random(seed)
    made = []
    for prompt in range(PROMPTS):
        for answer in range(ANSWERS):
            severity = float(rng.random() < 0.5)
            made.append(
                {
                    "prompt_id": prompt,
                    "answer": f"answer {answer} of {prompt}",
                    "score": round(min(1.0, max(0.0, rng.gauss(0.7 - 0.4 * severity, 0.15))), 3),
                    "severity": None if answer and rng.random() < unlabelled else severity,
                    "vector": [rng.gauss(0, 1) for _ in range(4)],
                }
            )
    return made


def write(path: Path, made: list[dict[str, Any]], *columns: str) -> Path:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows([row[column] for column in columns] for row in made)
    return path


def best_row(path: Path, **options: Any) -> Any:
    found = evaluate(path, alphas=[0.2], units=["best"], splits=4, cache=None, **options)
    return found.data_sets[0], next(row for row in found.data_sets[0].gates if row.mode == "Gram-CRC")


def test_scores_alone_are_what_is_evaluated(tmp_path: Path):
    path = write(tmp_path / "s.csv", rows(), "prompt_id", "score", "severity")
    result, row = best_row(path)
    assert any("the scores that the file brings" in note for note in result.notes)
    # The severities of the highest scores: far better than those of all answers.
    assert row.ship_rate.mean > 0.5
    assert row.exposure.mean < 0.2


def test_scores_beside_texts_are_compared_with_agreement(tmp_path: Path):
    path = write(tmp_path / "s.csv", rows(), "prompt_id", "answer", "score", "severity", "vector")
    result, _ = best_row(path)
    assert result.encoder == "embeddings of the file"
    rates = {row.scorer: row.ship_rate.mean for row in result.compared}
    assert rates["score"] > rates["gram"]


@pytest.mark.parametrize("unit", ["best", "response"])
def test_what_becomes_of_unlabelled_answers(unit: str, tmp_path: Path):
    columns = ("prompt_id", "score", "severity")
    made = rows(unlabelled=0.2)
    path = write(tmp_path / "u.csv", made, *columns)
    missing = sum(row["severity"] is None for row in made)

    def evaluated(choice: str, file: Path = path) -> tuple[Any, Any]:
        found = evaluate(file, alphas=[0.2], units=[unit], splits=4, cache=None, unlabelled=choice)
        return found.data_sets[0], next(row for row in found.data_sets[0].gates if row.mode == "Gram-CRC")

    worst, as_worst = evaluated("worst")
    dropped, as_dropped = evaluated("drop")
    assert f"{missing} of {PROMPTS * ANSWERS} answers have no severity and count as 1" in worst.notes[0]
    assert f"{missing} of {PROMPTS * ANSWERS} answers have no severity and are left out" in dropped.notes[0]
    assert as_dropped.ship_rate.mean > as_worst.ship_rate.mean
    with pytest.raises(UsageError, match=f"{missing} of .* none may be missing"):
        evaluated("fail")
    # Worst is what a severity of 1 in the file would be, and without a gap the choice changes nothing.
    filled = write(
        tmp_path / "f.csv",
        [row | {"severity": 1.0 if row["severity"] is None else row["severity"]} for row in made],
        *columns,
    )
    assert evaluated("worst", filled)[1] == as_worst
    assert evaluated("drop", filled)[1] == as_worst


def test_an_unlabelled_answer_that_is_dropped_is_neither_learnt_from_nor_measured(tmp_path: Path):
    """For the unit `response` that is the same as a file without these answers."""
    columns = ("prompt_id", "score", "severity")
    made = rows(unlabelled=0.3)
    path = write(tmp_path / "u.csv", made, *columns)
    without = write(tmp_path / "w.csv", [row for row in made if row["severity"] is not None], *columns)
    options: dict[str, Any] = {"alphas": [0.2], "units": ["response"], "splits": 4, "cache": None}
    first = evaluate(path, unlabelled="drop", **options).data_sets[0]
    second = evaluate(without, **options).data_sets[0]
    assert first.questions == second.questions
    # Weights by `mean` alone do not depend on the names of answers, which are numbered.
    found = [
        next(row for row in one.calibrators("response", 0.2) if row.method == "mean")
        for one in (first, second)
    ]
    assert found[0] == found[1]


def test_what_cannot_be_used_is_refused_before_anything_is_encoded(tmp_path: Path):
    class Never:
        @property
        def identity(self) -> Any:
            raise AssertionError("the encoder was asked")

    few = [row | {"severity": row["severity"] if row["prompt_id"] < 5 else None} for row in rows()]
    path = write(tmp_path / "few.csv", few, "prompt_id", "answer", "severity")
    for choice, says in (("worst", "too few severities"), ("drop", "only 5 of 60"), ("fail", "none may be")):
        with pytest.raises(UsageError, match=says):
            evaluate(path, cache=None, unlabelled=choice, encoding=Encoding(Never()))  # type: ignore[arg-type]


def test_a_plan_on_scores_of_a_table_needs_no_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
):
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    made = rows(unlabelled=0.2)
    path = write(tmp_path / "p.csv", made, "prompt_id", "score", "severity")
    command = ["plan", "--alpha", "0.2", "--data", str(path), "--json"]
    worst = told(*command)
    assert "count as 1, the worst" in worst.err
    assert "prompt_id from prompt_id, severity from severity, score from score" in worst.err
    assert json.loads(worst.out)["ladder"][0]["answers"] == ANSWERS
    assert "none may be missing" in told(*command, "--unlabelled", "fail", status=2).err
    assert (
        json.loads(told(*command, "--unlabelled", "drop").out)["mean_severity"]
        < json.loads(worst.out)["mean_severity"]
    )


def test_a_table_whose_severities_are_not_recognised_says_how_to_name_them(tmp_path: Path):
    made = [row | {"verdict": row["severity"]} for row in rows()]
    path = write(tmp_path / "s.csv", made, "prompt_id", "score", "verdict")
    with pytest.raises(UsageError, match="--column severity=NAME"):
        best_row(path)
    result, _ = best_row(path, reading=Reading(columns={"severity": ("verdict",)}))
    assert result.questions == PROMPTS


def test_columns_that_options_name_are_not_said_to_be_unused(tmp_path: Path, told: Told):
    made = [row | {"mine": row["score"]} for row in rows()]
    path = write(tmp_path / "s.csv", made, "prompt_id", "vector", "answer", "score", "severity", "mine")
    words = ("--score-field", "mine", "--splits", "2", "--alpha", "0.2", "--processes", "1")
    folders = ("--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"))
    printed = told("evaluate", str(path), *words, *folders)
    assert "; without a role: mine" in printed.err
    assert "| the file's score |" in (tmp_path / "out" / "tables.md").read_text()


def test_scores_alone_are_compared_with_none_that_is_computed_of_answers(tmp_path: Path):
    path = write(tmp_path / "s.csv", rows(), "prompt_id", "score", "severity")
    with pytest.raises(UsageError, match="its texts are not stored, so choice cannot be computed"):
        best_row(path, scorers=["gram", "choice"])


def answer(prompt: object, text: str, severity: float, *vector: float) -> dict[str, Any]:
    return {"prompt": f"Which is {prompt}?", "answer": text, "severity": severity, "vector": list(vector)}


SEVERAL = [  # the answers to every third prompt agree less, and are wrong
    answer(i, f"It is {i + j * bad}.", float(bad), 1, 0.1 * (i % 7) + j * bad, 0.2 * j)
    for i, bad in ((i, i % 3 == 0) for i in range(PROMPTS))
    for j in range(ANSWERS)
]
ALONE = [answer(f"it {i}", f"This: {i}.", 1.0, 1, 0, 0) for i in range(6)]
BLANK = [answer("blank", " ", 1.0, 1, 0, 0)] * 2
NAMES = ("prompt", "answer", "severity", "vector")


@pytest.mark.parametrize("method", ["mean", "full"])
def test_a_prompt_with_one_answer_is_held_as_in_service(method: str, tmp_path: Path, told: Told) -> None:
    mixed = [*ALONE[:3], *BLANK, *SEVERAL, *ALONE[3:]]
    much = f"6 of {PROMPTS + 7} prompts have one answer only"
    gate = Gate(alpha=0.3, method=method)
    without = Gate(**gate.get_params()).fit(SEVERAL)
    with pytest.warns(HeldWarning, match=much):
        gate.fit(mixed)
    assert gate.threshold_ == without.threshold_, "nothing draws what is held"
    decided = gate.decide(mixed)
    why = [row["reason"] for row in decided.rows()]
    assert (why[:5], why[-3:]) == (["too_few_responses"] * 3 + ["empty_text"] * 2, ["too_few_responses"] * 3)
    assert decided.ship.tolist() == [False] * 5 + without.decide(SEVERAL).ship.tolist() + [False] * 3
    assert {"scored"} == set(why[5:-3])
    path = write(tmp_path / "mixed.csv", mixed, *NAMES)
    said = told("try", str(path), "--method", method, "--alpha", "0.3", "--json")
    assert re.search(f"{much}.*Calibrating on seeded halves .50.", " ".join(said.err.split()))
    (one,) = evaluate(path, alphas=(0.3,), units=("best",), cache=None).data_sets
    assert any(much in note for note in one.notes)
    row = next(row for row in one.gates if row.method == method and row.mode in (None, "Gram-CRC"))
    at = json.loads(said.out)["at"]
    means = [at[name]["mean"] - getattr(row, name).mean for name in ("exposure", "ship_rate")]
    assert means == pytest.approx([0, 0], abs=1e-9)
    assert 0 < row.ship_rate.mean < 0.93 * without.report().at.ship_rate.mean


def test_prompts_with_one_answer_are_published_and_a_file_of_nothing_else_is_refused(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"gate": "g", "labels": True, "labeller": None, "limits": Limits()}
    sent = list(publications(str(write(tmp_path / "m.csv", [*ALONE, *SEVERAL], *NAMES)), **asked))
    assert [one.alone for one in sent] == [True] * 6 + [False] * PROMPTS
    for read in (lambda one: list(publications(one, **asked)), Gate().fit, evaluate):
        with pytest.raises(UsageError, match=r"one answer only to each prompt \(6 in all\).*sample more"):
            read(str(write(tmp_path / "alone.csv", ALONE, *NAMES)))
