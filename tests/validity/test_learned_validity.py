"""The promise of a gate with a learned score, simulated at exactly what it says, and three ways to break it.

A prompt is one labelled answer: how it agrees with the others, by numbers of which some say something about its risk and
most say nothing, and a severity of 0 or 1 with a risk that is known. The folds, the fit and the calibration are those
that the program runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streamer import LabelledGroup, calibrate_groups
from streamer.gates.folds import fold_of
from streamer.scoring.agreement import FEATURES
from streamer.scoring.fitting import Example, fit_and_measure, fit_model
from streamer.scoring.learned import learned_scores
from tests.validity.known_risk import assert_over, assert_within, most_violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.learned import LearnedModel

ALPHA = 0.1
PROMPTS = 160
REPEATS = 40
FRESH = 4000


@dataclass(frozen=True)
class Drawn:
    """Labelled prompts: numbers, shape (n, features), and severities."""

    features: np.ndarray
    severities: np.ndarray

    def of(self, places: Sequence[int]) -> Drawn:
        return Drawn(self.features[places], self.severities[places])


def features(count: int, rng: np.random.Generator) -> np.ndarray:
    """Independent numbers; the first, Gram energy, in [0, 1]."""
    found = rng.normal(size=(count, len(FEATURES)))
    found[:, 0] = rng.random(count)
    return found


def risk(rows: np.ndarray, signal: float) -> np.ndarray:
    """The chance that an answer is bad."""
    return 1 / (1 + np.exp(0.8 + signal * (rows[:, 3] - rows[:, 7])))


def draw(count: int, signal: float, rng: np.random.Generator) -> Drawn:
    rows = features(count, rng)
    return Drawn(rows, (rng.random(count) < risk(rows, signal)).astype(np.float64))


def scores(model: LearnedModel, rows: np.ndarray) -> np.ndarray:
    """The score of each prompt's only answer."""
    return learned_scores(model, rows, [False] * len(rows))


def fitted(drawn: Drawn) -> LearnedModel:
    return fit_model(
        [
            Example(f"p{n}", drawn.features[n : n + 1], drawn.severities[n : n + 1], 0)
            for n in range(len(drawn.severities))
        ],
        order="own",
    )


def calibrated(model: LearnedModel, drawn: Drawn) -> float:
    found = scores(model, drawn.features)
    groups = [
        LabelledGroup(f"p{n}", ("a",), found[n : n + 1], drawn.severities[n : n + 1])
        for n in range(len(found))
    ]
    return calibrate_groups(groups, alpha=ALPHA, seed=0).value


def exposure(model: LearnedModel, level: float, signal: float, rng: np.random.Generator) -> float:
    """E[severity 1{ships}] over fresh prompts, whose risk is known."""
    rows = features(FRESH, rng)
    return float((risk(rows, signal) * (scores(model, rows) > level)).mean())


@cache
def exposures(signal: float, fits_on: str) -> np.ndarray:
    """What gates expose whose score was fitted on the fold `fit`, or on the labels that calibrate."""
    found = []
    for repeat in range(REPEATS):
        rng = np.random.default_rng([16, repeat, int(10 * signal)])
        drawn = draw(PROMPTS, signal, rng)
        salt = rng.bytes(32)
        folds = [fold_of(salt, "gate", f"batch-{n}") for n in range(PROMPTS)]
        calibrating = drawn.of([n for n, fold in enumerate(folds) if fold == "calibrate"])
        fitting = drawn.of([n for n, fold in enumerate(folds) if fold == "fit"])
        model = fitted(fitting if fits_on == "fit" else calibrating)
        found.append(exposure(model, calibrated(model, calibrating), signal, rng))
    return np.array(found)


@pytest.mark.parametrize("signal", [0.0, 1.5])
def test_the_promise_holds_for_the_score_of_the_other_fold(signal: float) -> None:
    found = exposures(signal, "fit")
    assert_within(found, ALPHA)
    assert found.mean() > ALPHA / 2  # a gate that ships nothing would prove nothing


@pytest.mark.parametrize("signal", [0.0, 1.5])
def test_a_score_that_fits_what_calibrates_breaks_it_and_is_caught(signal: float) -> None:
    assert_over(exposures(signal, "calibrate"), ALPHA)


def _of_two_questions(by: str) -> np.ndarray:
    """Of all traffic 60 % asks one question, which goes wrong, and the rest another; the gate knows no difference."""
    found = []
    for repeat in range(1000):
        rng = np.random.default_rng([17, repeat])
        salt = rng.bytes(32)
        bad = rng.random(40) < 0.6
        fold = {name: fold_of(salt, "gate", name) for name in ("True", "False")}
        kept = [
            float(one)
            for n, one in enumerate(bad)
            if (fold[str(one)] if by == "text" else fold_of(salt, "gate", f"batch-{n}")) == "calibrate"
        ]
        if not kept:
            found.append(0.0)  # nothing to calibrate on: closed
            continue
        groups = [
            LabelledGroup(f"p{n}", ("a",), np.array([0.5]), np.array([severity]))
            for n, severity in enumerate(kept)
        ]
        found.append(0.6 * float(calibrate_groups(groups, alpha=ALPHA, seed=0).value < 0.5))
    return np.array(found)


def test_folds_by_batch_keep_the_promise_where_folds_by_the_text_of_a_prompt_break_it() -> None:
    assert_within(_of_two_questions("batch"), ALPHA)
    assert_over(_of_two_questions("text"), ALPHA)


def _proposed(signal: float, draws: int) -> float:
    """How often a score is proposed that was fitted on labels of so strong a signal, beside a Gram energy that says nothing."""
    shown = 0
    for repeat in range(draws):
        drawn = draw(125, signal, np.random.default_rng([18, repeat]))
        examples = [
            Example(f"{repeat}-{n}", drawn.features[n : n + 1], drawn.severities[n : n + 1], 0)
            for n in range(125)
        ]
        _, (worth,) = fit_and_measure(
            examples, order="own", alphas=[ALPHA], calibrating=125, all_labelled=250
        )
        shown += worth.shown
    return shown / draws


def test_a_score_is_refused_where_there_is_nothing_to_learn_and_proposed_where_there_is_much() -> None:
    draws = 20
    assert draws * _proposed(0.0, draws) <= most_violations(draws, 0.05)  # one-sided, 95 %
    assert _proposed(2.0, 5) == 1.0
