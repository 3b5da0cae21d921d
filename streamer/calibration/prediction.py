"""What calibrations on so many labels would give, simulated on a population whose severities are known. Pure.

Each repetition draws calibration groups and the responses to label, calibrates as the gate would, and looks the
threshold's ship rate and exposure up on the whole population.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.loss_curve import LossCurve
from streamer.calibration.plan import Split
from streamer.calibration.specification import Calibrator

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """P prompts with the I items of each that a gate calibrates and decides on.

    Attributes
    ----------
    scores, severities : shape (P, I), in [0, 1]. I = 1 for the unit `best`; under `batch` the items of a prompt
        share one score.
    shippable : shape (P, I); False for an item that is held whatever the threshold (a blank answer).
    held : further prompts that are held unscored and never calibrated on, >= 0.

    Raises
    ------
    ValueError
        If shapes differ, there is no prompt or item, or a number is outside [0, 1].
    """

    scores: Floats
    severities: Floats
    shippable: Booleans
    held: int = 0

    def __post_init__(self) -> None:
        if not self.scores.shape == self.severities.shape == self.shippable.shape:
            raise ValueError(
                f"shapes differ: {self.scores.shape}, {self.severities.shape}, {self.shippable.shape}"
            )
        if self.scores.ndim != 2 or not self.scores.size:
            raise ValueError(f"a population needs prompts and items, not the shape {self.scores.shape}")
        for name, values in (("scores", self.scores), ("severities", self.severities)):
            if not (values.min() >= 0 and values.max() <= 1):  # False for NaN too
                raise ValueError(f"{name} must lie in [0, 1]")

    @property
    def prompts(self) -> int:
        """Number of prompts, held ones with them."""
        return len(self.scores) + self.held

    @property
    def items(self) -> int:
        """Items I of a prompt."""
        return int(self.scores.shape[1])

    @property
    def mean_severity(self) -> float:
        """Exposure of a gate that holds only what it must: blank answers and batches without a score."""
        return float((self.severities * self.shippable).mean()) * len(self.scores) / self.prompts


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over calibrations, and the bounds between which a stated share of them lies."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What calibrations with one split of labels give on a population.

    Attributes
    ----------
    ship_rate : shipped items / items, in [0, 1].
    exposure_risk : mean of 1{ship} m over all items.
    selective_risk : mean exposure / mean ship rate: severity among what ships; None when nothing ever does.
    nothing_ships : share of the calibrations after which nothing of the population ships.
    """

    split: Split
    ship_rate: Interval
    exposure_risk: Interval
    selective_risk: float | None
    nothing_ships: float


def predict(
    population: Population,
    splits: Sequence[Split],
    *,
    floors: Sequence[float] = (-math.inf,),
    alpha: float,
    calibrator: Calibrator,
    repetitions: int,
    level: float = 0.9,
    rng: np.random.Generator,
    progress: Callable[[int], None] = lambda _done: None,
) -> tuple[Prediction, ...]:
    """Simulate calibrations and return what they ship, by split and, for each, by floor.

    All splits of a repetition use the same prompts as far as they go, so that differences between splits are exact to
    less than each split's own spread.

    Parameters
    ----------
    population : prompts are drawn from it with replacement.
    splits : ways to spend labels; of each drawn prompt `per_group` items are labelled, drawn without replacement.
    floors : label floors, each tried on the same calibrations: what scores at or below one is not labelled and never ships, so
        that the threshold is no less. `Prediction.split` counts the items of the prompts drawn, labelled or not.
    alpha : budget of one attempt, in (0, 1).
    repetitions : number of calibrations, >= 20.
    level : share of calibrations inside the bounds, in (0, 1). A further calibration lies inside them with exactly
        this chance or a little more: they are order statistics.
    rng : every random choice comes from it.
    progress : called with the number of repetitions done.

    Raises
    ------
    ValueError
        If an argument is not as described, or a split needs more items of a prompt than there are.
    """
    alpha = check_alpha(alpha)
    repetitions = whole_number("repetitions", repetitions, least=20)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, both excluded, not {level!r}")
    for split in splits:
        if not (split.groups >= 1 and 1 <= split.per_group <= population.items):
            raise ValueError(
                f"cannot label {split.per_group} of {population.items} items in {split.groups} groups"
            )
    outcomes = _Outcomes(population)
    prompts = len(population.scores)
    most = max((split.groups for split in splits), default=0)
    found = np.zeros((len(splits), len(floors), repetitions, 2))
    for repetition in range(repetitions):
        drawn = rng.integers(prompts, size=most)
        for i, split in enumerate(splits):
            rows = drawn[: split.groups, np.newaxis]
            items = _drawn_items(split, population.items, rng)
            value = calibrator.simulated(
                population.scores[rows, items],
                population.severities[rows, items],
                largest=population.items,
                alpha=alpha,
                rng=rng,
            )
            for j, floor in enumerate(floors):
                found[i, j, repetition] = outcomes.at(max(value, floor))
        progress(repetition + 1)
    return tuple(
        _prediction(split, of_floor, level)
        for split, of_split in zip(splits, found, strict=True)
        for of_floor in of_split
    )


def best_ship_rate(population: Population, alpha: float) -> float:
    """Return what a threshold would ship that knew every severity: the limit of ever more labels."""
    scores, shippable = population.scores.ravel(), population.shippable.ravel()
    losses = np.where(shippable, population.severities.ravel(), 0.0)
    curve = LossCurve.of(scores, losses)
    value = curve.first_over(check_alpha(alpha) * population.prompts * population.items)
    return float((shippable & (scores > value)).sum()) / (population.prompts * population.items)


class _Outcomes:
    """Ship rate and exposure of a population at any threshold."""

    def __init__(self, population: Population) -> None:
        order = np.argsort(-population.scores, axis=None, kind="stable")
        self._falling = -population.scores.ravel()[order]
        ships = population.shippable.ravel()[order].astype(np.float64)
        losses = ships * population.severities.ravel()[order]
        share = 1 / (population.prompts * population.items)
        self._shipped = np.concatenate(([0.0], np.cumsum(ships * share)))
        self._exposed = np.concatenate(([0.0], np.cumsum(losses * share)))

    def at(self, threshold: float) -> tuple[float, float]:
        above = int(np.searchsorted(self._falling, -threshold, side="left"))
        return float(self._shipped[above]), float(self._exposed[above])


def _drawn_items(split: Split, items: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw `per_group` of the items of each group without replacement: shape (G, per_group)."""
    if split.per_group == items:
        return np.broadcast_to(np.arange(items), (split.groups, items))
    if split.per_group == 1:
        return rng.integers(items, size=(split.groups, 1))
    keys = rng.random((split.groups, items), dtype=np.float32)
    return np.argpartition(keys, split.per_group - 1, axis=1)[:, : split.per_group]


def _prediction(split: Split, found: Floats, level: float) -> Prediction:
    shipped, exposed = found[:, 0], found[:, 1]
    mean = float(shipped.mean())
    return Prediction(
        split=split,
        ship_rate=interval(shipped, level),
        exposure_risk=interval(exposed, level),
        selective_risk=float(exposed.mean()) / mean if mean > 0 else None,
        nothing_ships=float((shipped == 0).mean()),
    )


def interval(values: Floats, level: float) -> Interval:
    """Return the mean of some values, and bounds between which a share of at least `level` of further ones lies."""
    ranked = np.sort(values)
    outside = bounds_rank(len(values), level)
    return Interval(float(values.mean()), float(ranked[outside]), float(ranked[-1 - outside]))


def bounds_rank(repetitions: int, level: float) -> int:
    """Return how many of the values lie outside on each side: one more falls inside with a chance of level or more.

    Between the r + 1-th smallest and largest of N values another one falls with chance (N - 1 - 2 r)/(N + 1), or more
    with ties. 0, the extremes, where N is too small for the level.
    """
    return max(0, math.floor((1 - level) * (repetitions + 1) / 2 + 1e-9) - 1)
