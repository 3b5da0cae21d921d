"""What was decided, with the severities that are known: the figures of a gate's risk, one implementation for all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.gates.declared import Unit
from streamer.gates.gate import mean_score
from streamer.scoring.blank import is_blank

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedBatch:
    """One batch after its decision: n >= 1 responses, in event order.

    The n scores are in [0, 1], or all None when the batch was held without being scored. At most
    one is shipped under unit `best`. Severities are in [0, 1]; None where nobody has said, which
    counts as 1 throughout.
    """

    batch_id: str
    prompt: str
    texts: tuple[str, ...]
    scores: tuple[float | None, ...]
    shipped: tuple[bool, ...]
    severities: tuple[float | None, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.texts), len(self.scores), len(self.shipped), len(self.severities)}
        if len(lengths) != 1 or not self.texts:
            raise ValueError(
                f"batch {self.batch_id!r} has no responses, or their texts, scores, ... differ in number"
            )
        if None in self.scores and any(score is not None for score in self.scores):
            raise ValueError(
                f"batch {self.batch_id!r} is scored in part; a batch is scored as a whole or not at all"
            )

    @property
    def best(self) -> int:
        """Position of the highest score, the first of equals; blank answers and unscored batches come last."""
        known = [
            -math.inf if score is None or is_blank(text) else score
            for score, text in zip(self.scores, self.texts, strict=True)
        ]
        return known.index(max(known))


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What ships or is held, one entry each: batches, or responses under unit `response`.

    `scores` : NaN for what was never scored. `severities`, in [0, 1]: the best response's under
    unit `best`, the mean under `batch`. `shippable` is False for blank answers and unscored
    batches, which are held whatever the threshold. `unlabelled` : a severity is missing and was
    counted as 1. `batch`, `response` : position of the unit's batch, and of the response that
    stands for it.
    """

    scores: Floats
    severities: Floats
    shipped: Booleans
    shippable: Booleans
    unlabelled: Booleans
    batch: NDArray[np.intp]
    response: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.scores)

    def labelled(self) -> "Units":
        """Return those whose severity is known."""
        known = ~self.unlabelled
        return Units(*(getattr(self, one.name)[known] for one in fields(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRisk:
    """The figures of one gate over decided batches. None means: cannot be computed from so little.

    `units` are batches, or responses under unit `response`. With m for a unit's severity, 1 where
    it is `unlabelled`: `exposure_risk` is the mean of 1{ship} m over all units, and
    `exposure_risk_se` its standard error, clustered by batch; `selective_risk` the mean of m over
    the shipped units; `severity_reduction` 1 - mean severity of the shipped / of the held;
    `mean_severity` the exposure of a gate that ships all. `upside_down` : of the units that can
    ship those that do are worse than those that are held, by more than two standard errors; where
    all of them do, or none, the higher half of the scores is worse than the lower one.
    """

    unit: Unit
    batches: int
    responses: int
    units: int
    shipped: int
    ship_rate: float | None
    exposure_risk: float | None
    exposure_risk_se: float | None
    selective_risk: float | None
    severity_reduction: float | None
    mean_severity: float | None
    unlabelled: int
    upside_down: bool


def units_of(batches: Sequence[DecidedBatch], unit: Unit) -> Units:
    """Take `batches` apart into the units of a gate."""
    rows = [row for place, batch in enumerate(batches) for row in _rows(place, batch, unit)]
    types: list[Any] = [np.float64] * 2 + [np.bool_] * 3 + [np.intp] * 2
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    return Units(*(np.array(one, dtype=of) for one, of in zip(columns, types, strict=True)))


_Row = tuple[float, float, bool, bool, bool, int, int]


def _rows(place: int, batch: DecidedBatch, unit: Unit) -> list[_Row]:
    def row(i: int) -> _Row:
        score, severity = batch.scores[i], batch.severities[i]
        return (
            math.nan if score is None else score,
            1.0 if severity is None else severity,
            batch.shipped[i],
            score is not None and not is_blank(batch.texts[i]),
            severity is None,
            place,
            i,
        )

    if unit == "best":
        return [row(batch.best)]
    rows = [row(i) for i in range(len(batch.texts))]
    if unit == "response":
        return rows
    scores, severities, shipped, shippable, unlabelled, _, _ = zip(*rows, strict=True)
    mean = mean_score(scores)
    severity = math.fsum(severities) / len(severities)
    return [(mean, severity, all(shipped), all(shippable), any(unlabelled), place, batch.best)]


def measure(batches: Sequence[DecidedBatch], unit: Unit, *, drop_unlabelled: bool = False) -> OfflineRisk:
    """Compute the figures of what was decided, by the stream or offline; of all units or of those with a severity."""
    units = units_of(batches, unit)
    if drop_unlabelled:
        units = units.labelled()
    return OfflineRisk(
        unit=unit,
        batches=len(batches),
        responses=sum(len(batch.texts) for batch in batches),
        units=len(units),
        shipped=int(units.shipped.sum()),
        ship_rate=_mean(units.shipped.astype(np.float64)),
        exposure_risk=_mean(units.shipped * units.severities),
        exposure_risk_se=clustered_standard_error(units.shipped * units.severities, units.batch),
        selective_risk=_mean(units.severities[units.shipped]),
        severity_reduction=_reduction(units),
        mean_severity=_mean(units.severities),
        unlabelled=int(units.unlabelled.sum()),
        upside_down=_upside_down(units),
    )


def clustered_standard_error(values: Floats, cluster: NDArray[np.intp]) -> float | None:
    """Return the standard error of the mean of values whose clusters are independent: shapes (N,).

    The linearised variance of a ratio of cluster totals, C / (C - 1) sum_c (T_c - mean n_c)^2 /
    N^2, for C clusters with totals T_c and sizes n_c; with clusters of one it is the usual s /
    sqrt(N). None for fewer than two clusters.
    """
    _, index = np.unique(cluster, return_inverse=True)
    sizes = np.bincount(index)
    if len(sizes) < 2:
        return None
    deviations = np.bincount(index, weights=values) - values.mean() * sizes
    return math.sqrt(len(sizes) / (len(sizes) - 1) * float(deviations @ deviations)) / len(values)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _upside_down(units: Units) -> bool:
    """Report whether what ships, or else the higher half of the scores, is clearly worse; equal scores go to the same half."""
    scores, severities = units.scores[units.shippable], units.severities[units.shippable]
    if not len(scores):
        return False
    higher = units.shipped[units.shippable]
    if higher.all() or not higher.any():
        higher = scores > np.median(scores)
    share = higher.mean()
    if not 0 < share < 1:
        return False
    excess = severities[higher].mean() - severities[~higher].mean()
    # What each unit moves the difference by: its mean over all units is 0, its error the difference's.
    moves = np.where(
        higher,
        (severities - severities[higher].mean()) / share,
        (severities[~higher].mean() - severities) / (1 - share),
    )
    error = clustered_standard_error(moves, units.batch[units.shippable])
    return error is not None and bool(excess > 2 * error)


def _reduction(units: Units) -> float | None:
    shipped, held = _mean(units.severities[units.shipped]), _mean(units.severities[~units.shipped])
    if shipped is None or held is None or held == 0:
        return None
    return 1 - shipped / held
