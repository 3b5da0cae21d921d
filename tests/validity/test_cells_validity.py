"""Every supported cell of method x score or gate shape x unit, on one population that is known to the last item.

Groups of a calibration are independent draws from a finite population of batches, so that risk at any level is an exact
sum over it. The population has heavy ties (score levels of an eighth), unequal sizes, severities that hang together in a
batch, and large batches that are worse. `test_calibration_validity` has the plain gate; the cells here are the rest of
the table in docs/guarantees.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import (
    History,
    calibrate_pooled,
    calibrate_segments,
    calibrate_soft,
    prepare_transductive,
    registry,
)
from streamer.calibration.groups import labelled_groups
from streamer.calibration.one_item import OneItem
from streamer.calibration.registry import weighting_schemes
from streamer.calibration.shapes import FrozenQuantiles, Ramp, Smooth, rank_scores
from streamer.calibration.specification import Sample
from streamer.gates.gate import mean_score
from streamer.gates.settings import UNITS
from tests.validity.known_risk import assert_within, most_violations, repeats

ALPHA = 0.1
POPULATION = 2000
GROUPS = 39  # B = .1 * 40 - 1 = 3
REPEATS = repeats(250)
MANY, MANY_REPEATS = 200, 120  # for bounds with high probability, which open on many groups only
LARGEST = 6


@dataclass(frozen=True)
class Population:
    """Batches as one unit sees them: item scores, severities, and the sizes of the groups that they form."""

    scores: tuple[np.ndarray, ...]
    severities: tuple[np.ndarray, ...]

    @functools.cached_property
    def mass(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct scores, the exposure of a gate that ships just these, and the share of items that have them."""
        scores = np.concatenate(self.scores)
        weights = np.concatenate(
            [np.full(len(some), 1 / len(some) / len(self.scores)) for some in self.scores]
        )
        levels, place = np.unique(scores, return_inverse=True)
        lost = np.bincount(place, weights=weights * np.concatenate(self.severities))
        return levels, lost, np.bincount(place, weights=weights)

    def rescored(self, score: Callable[[np.ndarray], np.ndarray]) -> Population:
        return Population(tuple(score(some) for some in self.scores), self.severities)

    def exposure(self, level: float) -> float:
        levels, lost, _ = self.mass
        return float(lost[levels > level].sum())

    def selective(self, level: float) -> float:
        levels, lost, shares = self.mass
        above = levels > level
        return float(lost[above].sum() / shares[above].sum()) if above.any() else 0.0

    def calibration(self, repeat: int, count: int) -> list[LabelledGroup]:
        chosen = np.random.default_rng([20261120, repeat]).integers(0, POPULATION, count)
        scores, severities = (
            [of_all[b] for b in chosen.tolist()] for of_all in (self.scores, self.severities)
        )
        made = labelled_groups(
            [f"g{g:03d}" for g in range(count)],
            [NAMES[: len(some)] for some in scores],
            np.concatenate(scores),
            np.concatenate(severities),
        )
        return list(made)


NAMES = tuple(f"r{i}" for i in range(LARGEST))


@functools.cache
def population(unit: str, shape: str = "indicator") -> Population:
    """The batches under a unit, with scores as they are, as quantiles of a fixed distribution, or as ranks."""
    rng = np.random.default_rng(20261121)
    scores, severities = [], []
    for _ in range(POPULATION):
        size = int(rng.integers(2, LARGEST + 1))
        quality = rng.random()
        some = np.round(8 * (0.6 * quality + 0.4 * rng.random(size))) / 8
        bad = (
            rng.random(size)
            < np.where(rng.random() < 0.5, 1.2 - quality, 0.3) * (1.1 - some) * size / LARGEST
        )
        severe = np.where(bad, rng.choice([0.5, 1.0], size), 0.0)
        if unit == "best":
            best = int(np.argmax(some))
            some, severe = some[best : best + 1], severe[best : best + 1]
        elif unit == "batch":
            some = np.full(size, mean_score(some.tolist()))
        scores.append(some)
        severities.append(severe)
    plain = Population(tuple(scores), tuple(severities))
    if shape == "ranks":
        return plain.rescored(rank_scores)
    if shape == "quantiles":
        return plain.rescored(FrozenQuantiles(np.random.default_rng(5).beta(4, 2, 200)).of)
    return plain


@functools.cache
def calibrations(unit: str, shape: str = "indicator", count: int = GROUPS) -> list[list[LabelledGroup]]:
    some = population(unit, shape)
    return [some.calibration(repeat, count) for repeat in range(REPEATS if count == GROUPS else MANY_REPEATS)]


SHAPED_UNITS = [(shape, unit) for shape in ("indicator", "quantiles") for unit in UNITS] + [
    ("ranks", "response")
]


def schemes_of(unit: str) -> tuple[str, ...]:
    """With one item a group all schemes are one."""
    return ("mean",) if unit == "best" else weighting_schemes()


def assert_pressed(risks: np.ndarray, share: float = 0.3) -> None:
    assert risks.mean() > share * ALPHA, "a bound that nothing presses on would prove nothing"


@pytest.mark.parametrize(
    ("scheme", "unit"), [(scheme, unit) for unit in UNITS for scheme in schemes_of(unit)]
)
def test_weighting_schemes_on_quantiles_of_the_calibration_itself(scheme, unit):
    some = population(unit)
    levels, lost, _ = some.mass
    risks = np.empty(REPEATS)
    for repeat, groups in enumerate(calibrations(unit)):
        frozen = FrozenQuantiles(np.concatenate([group.scores for group in groups]))
        level = calibrate_groups(
            [LabelledGroup(g.id, g.item_ids, frozen.of(g.scores), g.severities) for g in groups],
            alpha=ALPHA, method=scheme, draws=3, seed=repeat,
        ).value  # fmt: skip
        risks[repeat] = lost[frozen.of(levels) > level].sum()
    assert_within(risks, ALPHA)
    assert_pressed(risks)


@pytest.mark.parametrize("gate", [Smooth(0.05), Ramp(0.3)], ids=["smooth", "ramp"])
@pytest.mark.parametrize(
    ("scheme", "unit"), [(scheme, unit) for unit in UNITS for scheme in schemes_of(unit)]
)
def test_soft_gates_with_every_scheme_and_unit(scheme, unit, gate):
    levels, lost, _ = population(unit).mass
    risks = np.array(
        [
            lost
            @ gate.share(
                levels, calibrate_soft(groups, alpha=ALPHA, gate=gate, method=scheme, draws=3, seed=r).level
            )
            for r, groups in enumerate(calibrations(unit)[:120])
        ]
    )
    assert_within(risks, ALPHA)
    assert_pressed(risks)


@pytest.mark.parametrize(("shape", "unit"), [one for one in SHAPED_UNITS if one[1] != "best"])
def test_risk_for_each_response(shape, unit):
    some = population(unit, shape)
    scores, severities = np.concatenate(some.scores), np.concatenate(some.severities)
    excess = np.empty(REPEATS)
    for repeat, groups in enumerate(calibrations(unit, shape)):
        level = calibrate_pooled(groups, alpha=ALPHA, largest_group=LARGEST).value
        excess[repeat] = (severities @ (scores > level) - ALPHA * len(scores)) / POPULATION
    assert_within(excess, 0.0)
    assert excess.mean() > -0.8 * ALPHA * len(scores) / POPULATION


@pytest.mark.parametrize(
    ("scheme", "unit"), [(scheme, unit) for unit in UNITS for scheme in schemes_of(unit)]
)
def test_segments_with_every_scheme(scheme, unit):
    """Two kinds of prompt, told apart by what is known of them: their number here, so that both have one risk."""
    of = {f"g{g:03d}": "even" if g % 2 else "odd" for g in range(GROUPS)}

    def find(repeat: int, groups: list[LabelledGroup]) -> float:
        found = calibrate_segments(
            groups, segments=of, alpha=ALPHA, method=scheme, draws=3, fallback="closed", seed=repeat
        )
        return found.threshold_for("even").value

    risks = np.array([population(unit).exposure(find(*one)) for one in enumerate(calibrations(unit))])
    assert_within(risks, ALPHA)
    assert_pressed(risks, 0.1)


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_thresholds_of_single_batches(unit, capped):
    """Caps: no severity passes 1 - score/4, which is made true by cutting severities down to it."""
    plain = population(unit)
    some = Population(
        plain.scores,
        tuple(np.minimum(m, 1 - q / 4) for q, m in zip(plain.scores, plain.severities, strict=True)),
    )
    risks = np.empty(REPEATS)
    fresh = np.random.default_rng(20261122).integers(0, POPULATION, (REPEATS, 20))
    for repeat in range(REPEATS):
        rule = prepare_transductive(some.calibration(repeat, GROUPS), alpha=ALPHA, seed=repeat)
        lost = 0.0
        for batch in fresh[repeat].tolist():
            scores, severities = some.scores[batch], some.severities[batch]
            caps = (1 - scores / 4).tolist() if capped else None
            lost += float(severities @ (scores > rule.threshold_for(scores.tolist(), caps))) / len(scores)
        risks[repeat] = lost / fresh.shape[1]
    assert_within(risks, ALPHA)
    assert_pressed(risks)


CALIBRATORS = [
    # `full` reads signals beside scores: test_full_validity.
    name
    for name, kind in registry.every().items()
    if kind.offered and not kind.per_batch and not kind.of_signals
]


@pytest.mark.parametrize(
    ("name", "shape", "unit"),
    [
        (name, shape, unit)
        for shape, unit in SHAPED_UNITS
        for name in CALIBRATORS
        if name not in weighting_schemes() or name in schemes_of(unit)
    ],
)
def test_every_calibrator_keeps_the_promise_of_its_family(name, shape, unit):
    """What its specification claims, by itself for whatever stands in the folder of calibrators."""
    some, calibrator = population(unit, shape), registry.calibrator(name)
    selective, probable = calibrator.risk == "selective", calibrator.family == "with high probability"
    risk = some.selective if selective else some.exposure
    alpha = 0.9 * risk(-math.inf) if selective else ALPHA
    assert risk(-math.inf) > alpha, "a budget that nothing can break would prove nothing"
    history = History.of(np.concatenate(some.scores), prompts=POPULATION)

    def found(groups: list[LabelledGroup], repeat: int) -> float:
        sample = Sample(
            groups=groups, alpha=alpha, seed=repeat, drawn=LARGEST, largest=LARGEST, history=history
        )
        level = calibrator.calibrate(sample).threshold.value
        if selective and not probable:
            # What ships over its share, counted among the groups and the future one that ships.
            return some.exposure(level) * (GROUPS + 1) / (OneItem(groups, repeat).above(level).shipped + 1)
        return risk(level)

    risks = np.array(
        [
            found(groups, repeat)
            for repeat, groups in enumerate(calibrations(unit, shape, MANY if probable else GROUPS))
        ]
    )
    if probable:
        assert (risks > alpha).sum() <= most_violations(len(risks), calibrator.parameters()["delta"])
    else:
        assert_within(risks, alpha)
    if not (selective and shape == "ranks"):  # ranks are much alike in good batches and bad ones
        assert_pressed(risks, 0.2)
