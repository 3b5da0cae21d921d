"""Does exposure risk keep to the budget? Seeded Monte Carlo over whole calibrations, and controls that must fail.

One repetition calibrates on `GROUPS` groups and measures the risk on `FRESH` others of the same world. Repetitions are
independent, so their mean is normal by the central limit theorem: a valid rule passes the bound with probability
1 - 1e-6, and each control has to break the very same bound.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from streamer import LabelledGroup, Threshold, calibrate, calibrate_groups, decide
from streamer.calibration.registry import weighting_schemes
from streamer.gates.gate import gate_batch
from streamer.gates.settings import UNITS
from tests.validity.known_risk import repeats

ALPHA = 0.1
GROUPS = 29  # B = .1 * 30 - 1 = 2 is a whole number: with single losses of 1 the bound is met exactly
ALPHA_OF_CONTROLS = 0.107  # alpha G is just above 3: where a whole loss too many gets in without the +1
FRESH = 60
REPEATS = repeats(2000)
Z = float(stats.norm.isf(1e-6))
NAMES = tuple(f"r{i}" for i in range(12))
WORLDS = ("continuous", "ties", "correlated", "copies", "unequal")


@dataclass(frozen=True, eq=False)
class Labelled:
    """Groups of `REPEATS` repetitions, one after the other, items in group order."""

    scores: np.ndarray
    severities: np.ndarray
    sizes: np.ndarray

    @functools.cached_property
    def ends(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @functools.cached_property
    def fresh(self) -> tuple[np.ndarray, np.ndarray]:
        """Items that no repetition calibrates on: their positions and their repetitions, which do not fall."""
        repeat, place = np.divmod(self.groups, GROUPS + FRESH)
        items = np.flatnonzero(place >= GROUPS)
        return items, repeat[items]

    @functools.cached_property
    def exposures(self) -> np.ndarray:
        """What each item adds to its group's exposure if it ships."""
        return self.severities / self.sizes[self.groups]

    @functools.cached_property
    def groups(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def calibration(self, repeat: int) -> slice:
        first = repeat * (GROUPS + FRESH)
        return slice(self.ends[first], self.ends[first + GROUPS])

    def of_unit(self, unit: str) -> Labelled:
        """What ships as one: every response, the first of the best of each batch, or whole batches."""
        starts = self.ends[:-1]
        if unit == "best":
            order = np.lexsort((np.arange(len(self.scores)), -self.scores, self.groups))
            best = order[starts]
            return Labelled(self.scores[best], self.severities[best], np.ones_like(self.sizes))
        if unit == "batch":
            means = np.round(np.add.reduceat(self.scores, starts) / self.sizes, 6)
            return Labelled(np.repeat(means, self.sizes), self.severities, self.sizes)
        return self


@functools.cache
def world(name: str) -> Labelled:
    """Draw all repetitions of a world.

    continuous : independent items, no two scores alike.
    ties : independent items, four score levels.
    correlated : one quality decides the severity of a whole group, scores scatter around it.
    copies : every item of a group is the same, twelve times.
    unequal : 1 to 12 items a group, large groups worse, eleven score levels, severities between 0 and 1.
    """
    rng = np.random.default_rng([20261120, WORLDS.index(name)])
    count = REPEATS * (GROUPS + FRESH)
    sizes = rng.integers(1, 13, count) if name == "unequal" else np.full(count, 12 if name == "copies" else 5)
    groups = np.repeat(np.arange(count), sizes)
    items = len(groups)
    scores = rng.random(items)
    if name == "ties":
        scores = np.ceil(4 * scores) / 4
    severities = (rng.random(items) < 0.7 * (1.1 - scores)).astype(float)
    if name == "correlated":
        quality = rng.random(count)
        scores = 0.5 * quality[groups] + 0.5 * scores
        severities = (rng.random(count) > 0.3 + 0.6 * quality).astype(float)[groups]
    if name == "copies":
        scores, severities = scores[::12][groups], severities[::12][groups]
    if name == "unequal":
        scores = np.round(0.7 * scores + 0.3 * rng.random(count)[groups], 1)
        severities = rng.random(items) ** (1 + 3 * scores) * (0.2 + 0.8 * sizes[groups] / 12)
    return Labelled(scores, severities, sizes)


@functools.cache
def unit_of_world(name: str, unit: str) -> Labelled:
    return world(name).of_unit(unit)


def risk(
    labelled: Labelled,
    thresholds: list[Threshold],
    ship: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.greater,
) -> tuple[float, float]:
    """Return the mean exposure risk of a random item of a fresh group, and its standard error.

    `ship` tells from scores and the thresholds that they meet what ships, as `streamer.decide` does by default.
    """
    count = len(thresholds)
    fresh, repeat = (of_all[: np.searchsorted(labelled.fresh[1], count)] for of_all in labelled.fresh)
    served = ship(labelled.scores[fresh], np.array([threshold.value for threshold in thresholds])[repeat])
    lost = served * labelled.exposures[fresh]
    per_repeat = np.bincount(repeat, weights=lost, minlength=count) / FRESH
    return float(per_repeat.mean()), float(per_repeat.std(ddof=1) / math.sqrt(count))


@functools.cache
def thresholds_of(
    labelled: Labelled, method: str = "mean", *, alpha: float = ALPHA, by_item: bool = False
) -> list[Threshold]:
    found = []
    for repeat in range(REPEATS):
        some = labelled.calibration(repeat)
        groups = np.arange(some.stop - some.start) if by_item else labelled.groups[some]
        found.append(
            calibrate(
                labelled.scores[some], labelled.severities[some], groups, alpha=alpha,
                method=method, draws=3, seed=repeat,
            )
        )  # fmt: skip
    return found


def assert_within_budget(measured: tuple[float, float], alpha: float = ALPHA) -> None:
    mean, error = measured
    assert mean <= alpha + Z * error


def assert_over_budget(measured: tuple[float, float], alpha: float = ALPHA) -> None:
    mean, error = measured
    assert mean > alpha + Z * error


# With one item a group all schemes are one (tests/unit/calibration/test_rule.py).
METHODS_OF_UNITS = [
    (name, unit) for unit in UNITS for name in weighting_schemes() if name == "mean" or unit != "best"
]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(("method", "unit"), METHODS_OF_UNITS)
def test_risk_keeps_to_the_budget(method, name, unit):
    labelled = unit_of_world(name, unit)
    measured = risk(labelled, thresholds_of(labelled, method))
    assert_within_budget(measured)
    assert measured[0] > 0.2 * ALPHA, "a bound that nothing presses on would prove nothing"


@pytest.mark.parametrize("name", ["continuous", "correlated"])
@pytest.mark.parametrize(("method", "unit"), METHODS_OF_UNITS)
def test_without_ties_the_budget_is_spent(method, name, unit):
    """No more than 1/(G + 1) of the budget is left: one loss more would not have fitted."""
    labelled = unit_of_world(name, unit)
    mean, error = risk(labelled, thresholds_of(labelled, method))
    assert mean >= ALPHA - 1 / (GROUPS + 1) - 3 * error


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ["ties", "unequal"])
def test_what_the_gate_ships_keeps_to_the_budget(name, unit):
    """The same, through the gate that serves: whole batches in, shipped responses out."""
    served, labelled = world(name), unit_of_world(name, unit)
    found = thresholds_of(labelled)[: REPEATS // 4]
    scores, severities, ends = served.scores.tolist(), served.severities.tolist(), served.ends.tolist()
    per_repeat = np.zeros(len(found))
    for repeat, threshold in enumerate(found):
        first = repeat * (GROUPS + FRESH) + GROUPS
        cut = threshold.value if threshold.state == "cut" else None
        shipped: list[bool] = []
        for group in range(first, first + FRESH):
            some = slice(ends[group], ends[group + 1])
            gated = gate_batch(scores[some], unit=unit, state=threshold.state, threshold=cut)
            shipped += gated.shipped
            exposure = sum(itertools.compress(severities[some], gated.shipped))
            per_repeat[repeat] += exposure if unit == "best" else exposure / len(gated.shipped)
        if unit == "response":
            fresh = slice(served.ends[first], served.ends[first + FRESH])
            assert decide(served.scores[fresh], threshold).tolist() == shipped
    per_repeat /= FRESH
    measured = risk(labelled, found)
    assert per_repeat.mean() == pytest.approx(measured[0], abs=1e-12)
    assert_within_budget(measured)


@pytest.mark.parametrize("k", [1, 2])
def test_labels_of_a_random_draw_are_as_good_as_all(k):
    """k responses of each group, drawn without replacement before labels are seen, stand for the group."""
    labelled = world("unequal")
    rng = np.random.default_rng(5)
    found = []
    for repeat in range(REPEATS):
        some = labelled.calibration(repeat)
        groups = labelled.groups[some]
        order = np.lexsort((rng.random(len(groups)), groups))
        rank = np.arange(len(groups)) - np.searchsorted(groups, groups)
        drawn = order[rank < k]
        found.append(
            calibrate(
                labelled.scores[some][drawn], labelled.severities[some][drawn], groups[drawn], alpha=ALPHA
            )
        )
    assert_within_budget(risk(labelled, found))


@pytest.mark.parametrize("floor", [0.3, 0.5])
def test_labels_above_a_floor_are_enough(floor):
    """Label only what scores above a floor that was fixed beforehand, and never go below it: as good, and cheaper."""
    labelled = world("unequal")
    above = Labelled(
        labelled.scores, np.where(labelled.scores > floor, labelled.severities, 0.0), labelled.sizes
    )
    found = [
        dataclasses.replace(threshold, value=max(threshold.value, floor), state="cut")
        for threshold in thresholds_of(above)
    ]
    assert_within_budget(risk(labelled, found))
    assert (labelled.scores <= floor).mean() > 0.2, "labels are saved"
    for with_floor, with_all in zip(found, thresholds_of(labelled), strict=True):
        assert with_floor.value == max(with_all.value, floor)


@pytest.mark.parametrize("method", weighting_schemes())
def test_weights_from_one_seed_and_the_names_are_as_good_as_random_ones(method):
    labelled = world("unequal")
    found = []
    for repeat in range(REPEATS // 4):
        first = repeat * (GROUPS + FRESH)
        groups = []
        for group in range(first, first + GROUPS):
            some = slice(labelled.ends[group], labelled.ends[group + 1])
            names = NAMES[: labelled.sizes[group]]
            groups.append(LabelledGroup(f"b{group}", names, labelled.scores[some], labelled.severities[some]))
        found.append(calibrate_groups(groups, alpha=ALPHA, method=method, draws=3, seed=20261120))
    assert_within_budget(risk(labelled, found))


def test_control_shipping_at_the_threshold_breaks_the_budget_under_ties():
    labelled = world("ties")
    assert_over_budget(risk(labelled, thresholds_of(labelled), np.greater_equal))


@pytest.mark.parametrize("name", ["continuous", "copies"])
def test_control_leaving_out_the_fresh_group_breaks_the_budget(name):
    """sum L <= alpha G instead of alpha (G + 1) - 1."""
    labelled = unit_of_world(name, "best")
    no_plus_one = (ALPHA_OF_CONTROLS * GROUPS + 1) / (GROUPS + 1)
    assert_over_budget(risk(labelled, thresholds_of(labelled, alpha=no_plus_one)), ALPHA_OF_CONTROLS)
    assert_within_budget(risk(labelled, thresholds_of(labelled, alpha=ALPHA_OF_CONTROLS)), ALPHA_OF_CONTROLS)


def test_control_calibrating_correlated_items_as_if_independent_breaks_the_budget():
    labelled = world("copies")
    by_item = thresholds_of(labelled, alpha=ALPHA_OF_CONTROLS, by_item=True)
    assert_over_budget(risk(labelled, by_item), ALPHA_OF_CONTROLS)
    by_group = thresholds_of(labelled, alpha=ALPHA_OF_CONTROLS)
    assert_within_budget(risk(labelled, by_group), ALPHA_OF_CONTROLS)


def test_control_serving_the_best_under_a_threshold_for_responses_breaks_the_budget():
    for_responses = thresholds_of(world("correlated"))
    assert_over_budget(risk(unit_of_world("correlated", "best"), for_responses))
