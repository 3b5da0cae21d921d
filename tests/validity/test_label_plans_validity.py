"""Labels drawn by score keep the budget: floors and thinned strata wherever they hurt most, and one that must not pass."""

from __future__ import annotations

import copy
import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streamer import LabelledGroup
from streamer.calibration import History, calibrate_groups, registry
from streamer.calibration.specification import Sample
from streamer.gates.shapes import floored
from streamer_research.studies.label_plans import threshold, threshold_by_strata
from tests.validity.known_risk import (
    assert_over,
    assert_within,
    draw_groups,
    exposure_risk,
    shipped_share,
    single,
)

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


@functools.cache
def world(shape: str) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Scores and severities of all repetitions, both of shape (REPEATS, GROUPS), and the generator after them."""
    rng = np.random.default_rng([20261123, len(shape)])
    groups = draw_groups(shape, GROUPS * REPEATS, rng)
    scores, severities = (
        np.array([getattr(group, name)[0] for group in groups]).reshape(REPEATS, GROUPS)
        for name in ("scores", "severities")
    )
    return scores, severities, rng


def exposures(shape: str, probability: Callable[[np.ndarray], np.ndarray], bound: float) -> np.ndarray:
    """Calibrate on thinned labels, `REPEATS` times: the exposure of each cut, known exactly."""
    all_scores, severities, rng = world(shape)
    chances = probability(all_scores)
    kept = severities * (copy.deepcopy(rng).random(severities.shape) < chances)
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


FLOORED = [name for name, kind in registry.every().items() if kind.label_floor]


@pytest.mark.parametrize("shape", ["fractions", "together", "ties"])
@pytest.mark.parametrize("method", FLOORED)
def test_under_every_method_a_floor_gives_the_cut_that_all_labels_give(method: str, shape: str) -> None:
    """So the method's promise holds: it is the cut of full labels, raised to a floor that no label has moved."""
    rng = np.random.default_rng([20261125, FLOORED.index(method)])
    cuts = set()
    for seed in range(12):
        groups, unlabelled = draw_groups(shape, 150, rng), draw_groups(shape, 40, rng)
        history = History.of([float(one.scores[0]) for one in unlabelled])
        # At a score, between scores, where nothing and where everything is above.
        floor = float(rng.choice([0.0, 0.25, 0.5, 0.75, 1.0, *rng.random(3), groups[0].scores[0]]))
        asked = [
            LabelledGroup(one.id, one.item_ids, one.scores, np.where(one.scores > floor, one.severities, 1.0))
            for one in groups
        ]
        found = [
            floored(
                registry.calibrator(method)
                .calibrate(
                    Sample(
                        groups=some, alpha=0.3, seed=seed, drawn=5, largest=5, floor=floor, history=history
                    )
                )
                .threshold,
                floor,
            )
            for some in (asked, groups)
        ]
        assert (found[0].state, found[0].value) == (found[1].state, found[1].value), (seed, floor)
        assert found[0].value >= floor
        cuts.add(found[0].value)
    assert len(cuts) > 2, "labels have a say"


LINES = {"at the median": (0.5,), "around the cut": (0.4, 0.75), "most below": (0.9,)}
"""Where strata of the score end."""


@pytest.mark.parametrize("shape", ["zero-one", "ties"])
@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("rarest", [0, -1])
def test_strata_with_known_shares_keep_the_budget(shape: str, lines: str, rarest: int) -> None:
    """However few labels one of them has: in the worst case those where the errors are, or where they are not."""
    ends = np.array(LINES[lines])
    edges = [-1.0, *ends, 2.0]
    shares = -np.diff([shipped_share(shape, edge) for edge in edges])
    rng = np.random.default_rng([20261125, len(shape), rarest + 1])
    found = []
    for _ in range(REPEATS // 4):
        groups = draw_groups(shape, 2 * GROUPS, rng)
        scores = np.array([group.scores[0] for group in groups])
        strata = np.searchsorted(ends, scores)
        chances = np.full(len(shares), 1.0)
        chances[rarest] = 0.3
        kept = rng.random(len(scores)) < chances[strata]
        severities = np.array([group.severities[0] for group in groups])
        cut = threshold_by_strata(scores[kept], severities[kept], strata[kept], shares, ALPHA)
        found.append(exposure_risk(shape, cut))
    assert_within(np.array(found), ALPHA)
    assert np.mean(found) > ALPHA / 4, "a gate that ships nothing would prove nothing"


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
