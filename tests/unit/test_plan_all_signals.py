"""What labels buy with all signals: the figures of calibrations that are made one by one, and what is said without any."""

import json
from pathlib import Path

import numpy as np
import pytest

import streamer
from streamer.calibration.calibrators.full import allowed, chance_above, fit_full
from streamer.cli import DONE, WRONG_USAGE, main
from streamer.planning.all_signals import LABELS, PastPrompts, plan_all_signals
from streamer.planning.plan import Simulation
from tests.unit.evaluation.made_up import rows, write

RUNS = Simulation(repetitions=60, seed=3)


def past(prompts: int, *, held: int = 0, graded: bool = False) -> PastPrompts:
    """The first two of eight signals say how likely an answer is bad, and the score says it of the first alone."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(prompts, 8)).clip(-4, 4).astype(np.float32)
    bad = rng.random(prompts) < 1 / (1 + np.exp(1 + 2 * x[:, 0] + 2 * x[:, 1]))
    severities = bad * (rng.choice([0.5, 1.0], size=prompts) if graded else 1.0)
    return PastPrompts(x, (x[:, 0].astype(np.float64) / 8 + 0.5).round(6), severities, held)


def test_counts_of_many_are_those_of_each() -> None:
    there = past(1300)
    fit = fit_full(there.rows[:120], there.severities[:120] > 0)
    assert fit.counts(there.rows).tolist() == [fit.count(row) for row in there.rows]
    assert fit.counts(there.rows[:0]).tolist() == []


@pytest.mark.parametrize("graded", [False, True])
def test_figures_are_the_means_of_calibrations_made_one_by_one(graded: bool) -> None:
    there = past(200, held=50, graded=graded)
    made = plan_all_signals(there, alpha=0.1, labels=39, simulation=RUNS)
    rng = np.random.default_rng([3, 4])
    found: dict[int, list[list[float]]] = {39: [], 60: []}
    for _ in range(RUNS.repetitions):
        order = rng.permutation(200)
        bad = rng.random(200) < there.severities
        for labels, figures in found.items():
            first, rest = order[:labels], order[labels:]
            level = streamer.calibrate(there.scores[first], there.severities[first], first, alpha=0.1).value
            cut = ships = there.scores[rest] > level
            if labels == 60:
                fit = fit_full(there.rows[first], bad[first])
                ships = np.array([fit.count(row) <= allowed(0.1, 60) for row in there.rows[rest]])
            figures.append([ships.mean(), (ships * there.severities[rest]).mean(), cut.mean()])
    for labels, figures in found.items():
        served, exposed, cut_alone = 0.8 * np.mean(figures, axis=0)  # a fifth is held unscored
        (one,) = [one for one in made.ladder if one.labels == labels]
        assert one.served is not None
        assert one.exposure is not None
        assert (one.served.mean, one.exposure.mean, one.by_one_score) == pytest.approx(
            (served, exposed, cut_alone)
        )
        assert one.served.low <= one.served.mean <= one.served.high
    assert [one.labels for one in made.ladder if one.served is None] == [250, 1000], (
        "no more than the past has"
    )
    assert made.mean_severity == pytest.approx(0.8 * there.severities.mean())
    assert made.least_held == pytest.approx(made.mean_severity - 0.1)


def test_the_budget_holds_on_average_and_signals_serve_more_than_the_score() -> None:
    made = plan_all_signals(past(2000), alpha=0.1, attempts=2, simulation=Simulation(repetitions=400))
    for one in made.ladder:
        assert one.served is not None
        assert one.exposure is not None
        assert one.by_one_score is not None
        assert one.allowed == allowed(0.1, one.labels, attempts=2)
        error = (one.exposure.high - one.exposure.low) / 3.3 / np.sqrt(400)
        assert one.exposure.mean < 0.05 + 4 * error
        assert one.served.mean > one.by_one_score
    assert made.least == 19


def test_the_command_says_it_of_a_file_and_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "c.jsonl", rows(90))

    def said(*words: str) -> str:
        assert main(["plan", "--alpha", "0.2", "--repetitions", "100", *words]) == DONE
        return capsys.readouterr().out

    named = json.loads(said("--data", str(path), "--method", "full", "--json"))
    assert (named["method"], named["unit"], named["prompts"]) == ("full", "best", 90)
    assert [one["labels"] for one in named["ladder"]] == list(LABELS)
    assert [one["served"] is None for one in named["ladder"]] == [False, False, True, True, True]
    both = json.loads(said("--data", str(path), "--json"))
    assert both["method"] == "mean"
    assert named == both["all_signals"] | {"method": "full", "unit": "best"}
    assert json.loads(said("--data", str(path), "--method", "mean", "--json"))["all_signals"] is None
    assert json.loads(said("--data", str(path), "--unit", "response", "--json"))["all_signals"] is None
    batch = json.loads(said("--data", str(path), "--method", "full", "--unit", "batch", "--json"))
    assert batch["ladder"][0]["served"]["mean"] < named["ladder"][0]["served"]["mean"]
    text = said("--data", str(path))
    assert "one score: what a cut of (Gram energy + chrF) / 2 serves on the same labels." in text
    without = said("--method", "full")
    assert "no past answers" in without
    assert f"{100 * chance_above(0.3, alpha=0.2, groups=40):.1f} %" in without
    for words, why in (
        (("--unit", "response"), "goes with the units best and batch"),
        (("--auc", "0.8"), "--auc goes with --method mean"),
        (("--labels", "0"), "labels must be a whole number of at least 1"),
    ):
        assert main(["plan", "--alpha", "0.1", "--method", "full", *words]) == WRONG_USAGE
        assert why in capsys.readouterr().err
