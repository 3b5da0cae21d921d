"""What a gate would have made of a labelled file: halves that share no label, and bounds that hold."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import streamer
from streamer.cli import DONE, WRONG_USAGE, main
from streamer.frames.held_out import bounded
from streamer.gates.declared import Unit
from streamer.gates.rule import Cut
from streamer.research.evaluation import evaluate
from tests.unit.frames.test_gate_on_tables import answers


@pytest.fixture
def table(tmp_path: Path) -> Path:
    found = pd.DataFrame(answers(240)).drop(columns=["answer"])
    path = tmp_path / "answers.csv"
    found.to_csv(path, index=False)
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["what-if", *words, "--json"]) == DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("unit", ["best", "response"])
def test_each_seed_is_a_split_of_evaluate(
    unit: Unit,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    found = evaluate([table], alphas=(0.2,), units=(unit,), splits=3, seed=5, out=tmp_path / "evaluation")
    (row,) = [one for one in found.data_sets[0].gates if one.method == "mean" and one.mode is None]
    seeds = [
        asked(capsys, str(table), "--alpha", "20%", "--unit", unit, "--seed", str(seed)) for seed in (5, 6, 7)
    ]
    shares = [one["what_if"]["figures"]["ship_rate"] for one in seeds]
    assert np.mean(shares) == pytest.approx(row.ship_rate.mean, abs=1e-12)
    assert 0 < min(shares) < 1
    by_prompt = [one["what_if"]["exposure"]["estimate"] for one in seeds]
    assert np.mean(by_prompt) == pytest.approx(row.promised.mean, abs=1e-12)
    assert len({one["threshold"]["lambda"] for one in seeds}) == 3


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_every_form_says_the_same_and_python_too(
    ending: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(table).rename(columns={"severity": "harm"})
    path = tmp_path / f"renamed.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    said = asked(capsys, str(path), "--alpha", ".1", "--column", "severity=harm")
    gate = streamer.Gate(alpha=0.1, columns={"severity": "harm"})
    found = gate.held_out(frame)
    assert found.threshold is not None
    assert found.threshold.state == "cut"
    assert said["threshold"]["lambda"] == found.threshold.value
    assert said["what_if"]["exposure"]["estimate"] == found.asked.exposure.estimate
    assert not hasattr(gate, "threshold_"), "asking teaches a gate nothing"


def test_the_labels_that_are_judged_do_not_move_the_threshold() -> None:
    columns = answers(200)
    gate = streamer.Gate(alpha=0.2, seed=3)
    first = gate.held_out(columns)
    judged = {batch.batch_id for batch in first.decided}
    worst = columns | {
        "severity": [
            1.0 if prompt in judged else severity
            for prompt, severity in zip(columns["prompt_id"], columns["severity"], strict=True)
        ]
    }
    second = gate.held_out(worst)
    assert second.threshold == first.threshold
    assert second.asked.selective.estimate == 1.0
    assert first.asked.selective.estimate is not None
    assert first.asked.selective.estimate < 1.0
    again = gate.held_out(columns, in_sample=True)
    assert again.judged == 200
    assert again.in_sample


def test_a_method_that_looks_at_the_order_is_judged_on_what_came_later() -> None:
    columns = answers(200)
    found = streamer.Gate(alpha=0.2, method="age").held_out(columns)
    assert found.in_order
    assert [batch.batch_id for batch in found.decided] == [f"p{number}" for number in range(100, 200)]


def test_a_given_threshold_is_judged_on_everything() -> None:
    found = streamer.Gate().held_out(answers(100), cut=Cut("open", None))
    assert (found.judged, found.calibrated) == (100, 0)
    assert found.asked == found.everything


def test_an_unlabelled_answer_is_right_below_and_wrong_above() -> None:
    columns = answers(100)
    columns["severity"] = [0.0 if place % 2 else None for place in range(len(columns["severity"]))]
    worst = streamer.Gate(unit="response").held_out(columns, cut=Cut("open", None)).asked.exposure
    assert worst.lower == 0.0
    assert worst.estimate is not None
    assert worst.upper > worst.estimate > 0.4
    left = streamer.Gate(unit="response", unlabelled="drop").held_out(columns, cut=Cut("open", None)).asked
    assert left.exposure.estimate == 0.0
    assert left.figures.unlabelled == 0


@pytest.mark.parametrize("kind", ["best", "response"])
def test_bounds_are_wrong_no_more_often_than_they_say(kind: str) -> None:
    rng, delta, repetitions, prompts = np.random.default_rng(18), 0.1, 400, 60
    misses = 0
    for _ in range(repetitions):
        if kind == "best":
            share = np.ones(prompts)
            harm = (rng.random(prompts) < 0.1).astype(float)
            truth = 0.1
        else:  # harder prompts ship less, and what they ship is worse
            hard = rng.random(prompts) < 0.5
            share = np.where(hard, 0.25, 1.0)
            harm = share * (rng.random(prompts) < np.where(hard, 0.6, 0.1))
            truth = (0.25 * 0.6 + 1.0 * 0.1) / 1.25
        found = bounded(harm, harm, share, delta)
        assert found.estimate is not None
        assert found.lower <= found.estimate <= found.upper
        misses += not found.lower <= truth <= found.upper
    assert misses <= binom.ppf(1 - 1e-6, repetitions, delta)


def test_bounds_at_the_ends() -> None:
    assert bounded(np.zeros(0), np.zeros(0), np.zeros(0), 0.1).upper == 1.0
    none = bounded(np.zeros(100), np.zeros(100), np.ones(100), 0.1)
    assert none.lower == 0.0
    # e P(X <= 0) = e (1 - s)^100 and exp(-100 h(0, s)) = (1 - s)^100: the second is the smaller.
    assert none.upper == pytest.approx(1 - 0.05**0.01, abs=1e-9)
    every = bounded(np.ones(100), np.ones(100), np.ones(100), 0.1)
    assert every.lower == pytest.approx(0.05**0.01, abs=1e-9)
    assert every.upper == 1.0


WRONG = {
    "no such file": (["missing.csv"], "missing.csv"),
    "what has been decided": (
        ["answers.csv", "--against", "3"],
        "--against is about what a gate has decided",
    ),
    "a period": (["answers.csv", "--since", "7d"], "--since is about"),
    "a shape": (["answers.csv", "--shape", "smooth"], "--shape is nothing that a file can be asked about"),
    "no severity": (["answers.csv", "--column", "severity="], "--column severity=NAME"),
    "an unknown column": (["answers.csv", "--column", "severity=x"], "'x'"),
    "a budget": (["answers.csv", "--alpha", "150%"], "alpha"),
    "some unlabelled": (["gaps.csv", "--unlabelled", "fail"], "--unlabelled worst"),
    "one prompt": (["one.csv"], "at least two"),
    "empty": (["empty.csv"], "empty.csv"),
    "a column for a gate": (["bot", "--column", "severity=x"], "there is no file 'bot'"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_asked_is_said(
    words: tuple[list[str], str],
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = table.parent
    monkeypatch.chdir(folder)
    frame = pd.read_csv(table)
    frame.assign(severity=frame.severity.where(frame.index % 5 > 0)).to_csv(folder / "gaps.csv", index=False)
    frame[frame.prompt_id == "p1"].to_csv(folder / "one.csv", index=False)
    (folder / "empty.csv").write_text("")
    given, said = words
    assert main(["what-if", *given]) == WRONG_USAGE
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_figures_are_a_table_of_the_same_library() -> None:
    frame = pd.DataFrame(answers(240)).drop(columns=["answer"])
    found = streamer.Gate(alpha=0.2).held_out(frame)
    shown = found.to_frame().set_index("figure")
    assert isinstance(shown, pd.DataFrame)
    assert shown.loc["ship_rate", "estimate"] == found.asked.figures.ship_rate
    assert tuple(shown.loc["exposure"]) == (
        found.asked.exposure.estimate,
        found.asked.exposure.lower,
        found.asked.exposure.upper,
    )
    assert shown.loc["exposure_without_a_gate", "estimate"] == found.everything.exposure.estimate
    rows = streamer.Gate(alpha=0.2).held_out(frame.to_dict("records")).to_frame()
    assert [row["figure"] for row in rows] == list(shown.index)
    assert "DecidedBatch" not in repr(found)


def test_what_a_column_may_mean_is_said_once_and_as_the_command_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.csv"
    pd.DataFrame(answers(40)).drop(columns=["answer"]).rename(columns={"severity": "label"}).to_csv(
        path, index=False
    )
    assert main(["what-if", str(path), "--alpha", "0.1"]) == DONE
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("label: 0 fine, 1 worst; if 1 means right: --column correct=label") == 1
    assert "columns=" not in said
