"""The gate: scores and a threshold in, what ships out. Pure.

Whatever is not a clear "ship" holds: a score must be strictly above the threshold, so that a tie group ships or holds
as a whole, as calibration assumes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from streamer.calibration.threshold import Threshold, ThresholdState
    from streamer.gates.declared import Unit


def decide(scores: ArrayLike, threshold: Threshold) -> NDArray[np.bool_]:
    """Decide for each score whether it ships, each on its own.

    `scores`, of any shape, lie in [0, 1]; NaN never ships. Returns marks of that shape, True = ship.
    """
    # float64 first: a float32 array would round the threshold to float32 before comparing
    exact = np.asarray(scores, dtype=np.float64)
    return np.asarray(exact > threshold.value)


def mean_score(scores: Sequence[float]) -> float:
    """Return the score of a whole batch under the unit `batch`: the mean of its n >= 1 scores, rounded to 1e-6."""
    return round(math.fsum(scores) / len(scores), 6)


@dataclass(frozen=True, slots=True)
class BatchGate:
    """What the gate says about one batch.

    `shipped`: one for each response, in event order. `best`: position of the only response that may
    ship under the unit `best`, whether it does or not; None under other units, and when every
    answer is blank. `selected`: position of the response that may be shown; set by the unit `best`
    alone, and only if it ships. `unit_score`: the score that decided: that of the best response
    that is not blank (0 if all are) for `best`, the mean rounded to 1e-6 for `batch`, None for
    `response`, where each decides for itself.
    """

    shipped: tuple[bool, ...]
    best: int | None
    selected: int | None
    unit_score: float | None


def gate_batch(
    scores: Sequence[float],
    *,
    unit: Unit,
    state: ThresholdState,
    threshold: float | None,
    blank: Sequence[bool] | None = None,
) -> BatchGate:
    """Decide one batch.

    `scores`: one for each response, in [0, 1], in event order, rounded by the scorer. `unit`:
    `best`: only the highest score may ship, the first in event order among equals. `response`,
    `claim`: each on its own. `batch`: all or none, by the mean score. `state`: `closed` ships
    nothing; `cut` ships what scores above `threshold`; `open` ships all that the unit allows.
    `threshold`: lambda for `cut`, None otherwise. `blank`: says for each response whether its text
    is blank; None: none is. A blank answer never ships, is never the best, and holds the whole
    batch under the unit `batch`. Raises `ValueError` if there are no scores, a score is not in [0,
    1], lengths differ, or state and threshold contradict.
    """
    if len(scores) == 0:
        raise ValueError("a batch without responses cannot be gated")
    scores = [float(score) for score in scores]
    for score in scores:
        if not 0 <= score <= 1:
            raise ValueError(f"scores must lie in [0, 1], not {score!r}")
    blanks = [False] * len(scores) if blank is None else [bool(mark) for mark in blank]
    if len(blanks) != len(scores):
        raise ValueError(f"there are {len(scores)} scores and {len(blanks)} marks of blank answers")
    bar = _bar(state, threshold)
    if unit in ("response", "claim"):
        return BatchGate(
            tuple(s > bar and not b for s, b in zip(scores, blanks, strict=True)), None, None, None
        )
    if unit == "batch":
        mean = mean_score(scores)
        return BatchGate((mean > bar and not any(blanks),) * len(scores), None, None, mean)
    if unit != "best":
        raise ValueError(f"unit must be one of best, response, batch, claim, not {unit!r}")
    shipped = [False] * len(scores)
    if all(blanks):
        return BatchGate(tuple(shipped), None, None, 0.0)
    written = [-1.0 if empty else score for score, empty in zip(scores, blanks, strict=True)]
    best = written.index(max(written))  # the first among equals
    shipped[best] = scores[best] > bar
    return BatchGate(tuple(shipped), best, best if shipped[best] else None, scores[best])


def _bar(state: ThresholdState, threshold: float | None) -> float:
    if (state == "cut") != (threshold is not None):
        raise ValueError(f"a gate in state {state!r} cannot have threshold {threshold!r}")
    if threshold is not None:
        if not math.isfinite(threshold):
            raise ValueError(f"the threshold of a cut must be finite, not {threshold!r}")
        return threshold
    if state == "closed":
        return math.inf
    if state == "open":
        return -math.inf
    raise ValueError(f"state must be closed, cut or open, not {state!r}")
