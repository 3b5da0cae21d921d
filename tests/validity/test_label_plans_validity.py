"""Labels drawn by score keep the budget: floors and thinned strata wherever they hurt most, and one that must not pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streamer.calibration import calibrate_groups
from streamer.gates.shapes import floored
from streamer.research.experiments.label_plans import threshold
from tests.validity.known_risk import assert_over, assert_within, draw_groups, exposure_risk, single

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHA, GROUPS, REPEATS = 0.2, 30, 2000

STRATA: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "all thinned": lambda scores: np.full_like(scores, 0.2),
    "thinned where the errors are": lambda scores: np.where(scores <= 0.5, 0.2, 1.0),
    "thinned at the cut": lambda scores: np.where((scores > 0.4) & (scores <= 0.75), 0.2, 1.0),
    "many strata": lambda scores: 0.2 + 0.8 * (np.floor(20 * scores) % 2),
}
"""Probabilities of a label by score; the least of each is .2."""


def exposures(shape: str, probability: Callable[[np.ndarray], np.ndarray], bound: float) -> np.ndarray:
    """Calibrate on thinned labels, `REPEATS` times: the exposure of each cut, known exactly."""
    rng = np.random.default_rng([20261123, len(shape)])
    groups = draw_groups(shape, GROUPS * REPEATS, rng)
    all_scores = np.array([group.scores[0] for group in groups]).reshape(REPEATS, GROUPS)
    severities = np.array([group.severities[0] for group in groups]).reshape(REPEATS, GROUPS)
    chances = probability(all_scores)
    kept = severities * (rng.random(severities.shape) < chances)
    cuts = [
        threshold(scores, losses, chance, bound, ALPHA)
        for scores, losses, chance in zip(all_scores, kept, chances, strict=True)
    ]
    return np.array([exposure_risk(shape, cut) for cut in cuts])


@pytest.mark.parametrize("shape", ["zero-one", "fractions", "ties", "rare"])
@pytest.mark.parametrize("strata", STRATA)
def test_thinned_labels_keep_the_budget_whatever_the_strata(shape: str, strata: str) -> None:
    assert_within(exposures(shape, STRATA[strata], bound=5.0), ALPHA)


def test_the_bound_of_full_labels_breaks_the_budget_of_thinned_ones() -> None:
    assert_over(exposures("zero-one", STRATA["all thinned"], bound=1.0), ALPHA)


@pytest.mark.parametrize("shape", ["zero-one", "fractions", "ties", "rare"])
@pytest.mark.parametrize("floor", [0.0, 0.3, 0.5, 0.75, 0.9])
def test_a_label_floor_keeps_the_budget_and_the_cut_that_all_labels_give(shape: str, floor: float) -> None:
    rng = np.random.default_rng([20261123, 1])
    found = []
    for repeat in range(REPEATS // 10):
        groups = draw_groups(shape, GROUPS, rng)
        # What scores at or below the floor was not asked about; that it is as bad as can be must not matter.
        asked = [
            single(group.id, score, severity if score > floor else 1.0)
            for group in groups
            for score, severity in [(float(group.scores[0]), float(group.severities[0]))]
        ]
        cut = floored(calibrate_groups(asked, alpha=ALPHA, seed=0), floor).value
        assert cut == max(calibrate_groups(groups, alpha=ALPHA, seed=0).value, floor), repeat
        found.append(exposure_risk(shape, cut))
    assert_within(np.array(found), ALPHA)


def test_without_thinning_it_is_the_calibrator() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 3, 4, 5, 40):
        for _ in range(50):
            groups = draw_groups("ties", size, rng)
            scores = np.array([group.scores[0] for group in groups])
            losses = np.array([group.severities[0] for group in groups])
            found = threshold(scores, losses, np.ones(size), 1.0, ALPHA)
            value = calibrate_groups(groups, alpha=ALPHA, seed=0).value
            assert found == value or (math.isinf(found) and math.isinf(value) and (found < 0) == (value < 0))
