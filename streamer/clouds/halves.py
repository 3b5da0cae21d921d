"""What a rule ships of prompts that did not calibrate it: one half calibrates, the other is decided and measured, again and again.

`outcomes` is the one function behind `streamer evaluate`, `streamer try` and `Gate.report`: the same seeds, halves and means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from streamer.clouds.cloud import Cloud, split_clouds
from streamer.clouds.compared_methods import MethodLabels, Run, Traffic
from streamer.clouds.offline import ScoredCloud, calibration_groups, measured_units
from streamer.clouds.spreads import Spread, spread
from streamer.gates.declared import Unit

Floats = NDArray[np.float64]
Row = NDArray[np.float32]

SPLITS = 50
"""Random halves that a figure is averaged over, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class HalvesSplit:
    """One seed and its halves: positions of clouds, those that calibrate in the order of the shuffle."""

    seed: int
    first: tuple[int, ...]
    second: NDArray[np.intp]


def seeded_splits(
    clouds: Sequence[Cloud],
    seeds: Sequence[int],
    share: Fraction = Fraction(1, 2),
    *,
    in_order: bool = False,
) -> list[HalvesSplit]:
    """Split clouds once for each seed, `share` of them to calibrate; see `split_clouds`.

    `in_order`: once alone, the first of them to calibrate: what comes later is what a method that goes by age is for.
    """
    if in_order:
        oldest = int(len(clouds) * share)
        return [HalvesSplit(seeds[0], tuple(range(oldest)), np.arange(oldest, len(clouds)))]
    place = {id(cloud): position for position, cloud in enumerate(clouds)}
    splits = []
    for seed in seeds:
        first, second = split_clouds(clouds, seed, share)
        splits.append(
            HalvesSplit(
                seed,
                tuple(place[id(cloud)] for cloud in first),
                np.array([place[id(cloud)] for cloud in second], dtype=np.intp),
            )
        )
    return splits


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """The seeded halves of one file under one unit: labels on one side, measured units beside.

    The first halves have floor(`clouds` / 2) of the file's clouds. The others have an entry a
    split.
    """

    clouds: int
    labels: tuple[MethodLabels, ...]
    traffic: tuple[Traffic, ...]
    severities: tuple[Floats, ...]

    @classmethod
    def of(cls, scored: Sequence[ScoredCloud], unit: Unit, seeds: Sequence[int]) -> Halves:
        """Split `scored` once for each seed, which is also the seed of what calibration draws at random."""
        return cls.at(scored, unit, seeded_splits([item.cloud for item in scored], seeds))

    @classmethod
    def at(
        cls,
        scored: Sequence[ScoredCloud],
        unit: Unit,
        splits: Sequence[HalvesSplit],
        *,
        drop_unlabelled: bool = False,
    ) -> Halves:
        """Split `scored` as told: what is made once for other scores of its clouds serves here.

        With `drop_unlabelled` what has no severity neither calibrates nor is measured; else it
        counts as 1.
        """
        units = measured_units(scored, unit, drop_unlabelled=drop_unlabelled)
        groups = [
            calibration_groups([item], unit, drop_unlabelled=drop_unlabelled) for item in scored
        ]  # none for a batch held unscored
        largest = 1 if unit == "best" else max((len(one.cloud.responses) for one in scored), default=1)
        rows = [item.row for item in scored]
        signals = None if all(row is None for row in rows) else _filled(rows)
        labels, traffic, severities = [], [], []
        for split in splits:
            labelled = [group for place in split.first for group in groups[place]]
            of_groups = None
            if signals is not None:
                of_groups = signals[[place for place in split.first for _ in groups[place]]]
            labels.append(MethodLabels(labelled, largest, split.seed, of_groups))
            measured = np.zeros(len(scored), dtype=np.bool_)
            measured[split.second] = True
            chosen = measured[units.batch]
            batch = units.batch[chosen]
            row = None if signals is None else signals[batch]
            traffic.append(Traffic(units.scores[chosen], units.shippable[chosen], batch, row))
            severities.append(units.severities[chosen])
        return cls(len(scored), tuple(labels), tuple(traffic), tuple(severities))


def _filled(rows: Sequence[Row | None]) -> Row:
    """Return shape (clouds, d), zeros for what is held unscored."""
    size = next((len(row) for row in rows if row is not None), 0)
    return np.array([np.zeros(size) if row is None else row for row in rows], dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class SplitOutcomes:
    """What one method did on the second half of each of S splits, of a file of so many `clouds`.

    `exposure` is the mean severity shipped per unit, held ones counting 0; `ship_rate` the share of
    units that ship; `shipped_severity`, `held_severity` the mean severity among what ships
    (selective risk) and among what is held, NaN where nothing is; `level` lambda, +inf closed, -inf
    open, NaN where each batch has its own. In `exposure_by_question` each question counts once,
    however many units it has: what a calibration by groups bounds.
    """

    clouds: int
    exposure: Floats
    ship_rate: Floats
    shipped_severity: Floats
    held_severity: Floats
    level: Floats
    exposure_by_question: Floats

    def spread(self, values: Floats) -> Spread:
        """Return mean and errors of a figure over the splits, shape (S,)."""
        half = self.clouds // 2
        return spread(values, test=self.clouds - half, calibration=max(1, half))

    @property
    def reduction(self) -> Floats:
        """1 - mean severity shipped / held; NaN where one of the two is not defined or the second is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 1.0 - self.shipped_severity / self.held_severity
        return np.where(np.isfinite(found), found, np.nan)


def outcomes(run: Run, halves: Halves, alpha: float) -> SplitOutcomes:
    """Calibrate on the first of each pair of halves and measure on the second."""
    rows = []
    for labels, traffic, severities in zip(halves.labels, halves.traffic, halves.severities, strict=True):
        served = run(labels, alpha, traffic)
        shipped, lost = float(served.chances.sum()), float(served.chances @ severities)
        held, spared = len(severities) - shipped, float((1.0 - served.chances) @ severities)
        rows.append(
            (
                lost / len(severities),
                shipped / len(severities),
                lost / shipped if shipped > 0 else np.nan,
                spared / held if held > 0 else np.nan,
                np.nan if served.level is None else served.level,
                _by_question(served.chances * severities, traffic.batch, lost / len(severities)),
            )
        )
    columns = np.array(rows, dtype=np.float64).reshape(len(rows), 6).T
    return SplitOutcomes(halves.clouds, *columns)


def _by_question(losses: Floats, batch: NDArray[np.intp], mean: float) -> float:
    """The mean over questions of their own mean loss; `mean` itself, to the last bit, where it is the same."""
    counts = np.bincount(batch)
    there = counts > 0
    sizes = counts[there]
    if sizes.min() == sizes.max():
        return mean
    return float((np.bincount(batch, weights=losses)[there] / sizes).mean())
