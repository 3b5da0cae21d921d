"""Before anyone labels: what a number of labels can support. Pure.

With G groups no budget below 1/(G + 1) can be met (the floor of conformal risk control), and no score, however good,
ships more than 1 - (mu - alpha) of units whose mean severity is mu: each held unit takes at most 1 off the exposure.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.specification import Calibrator

_MEAN = Mean()


def least_groups(alpha: float, attempts: int = 1, calibrator: Calibrator = _MEAN) -> int:
    """Return the fewest groups on which a budget in (0, 1) can be met at all over R >= 1 attempts,
    at least 1.
    """
    each = check_alpha(alpha) / whole_number("attempts", attempts, least=1)
    return max(1, calibrator.groups_needed(each))


def least_held_share(mean_severity: float, alpha: float) -> float:
    """Return the share of units that any gate inside the budget holds: max(0, mu - alpha), mu being
    the mean severity if nothing were held.
    """
    return max(0.0, mean_severity - alpha)


def least_held_share_selective(mean_severity: float, alpha: float) -> float:
    """Return the share that any gate holds whose *selective* risk is at most alpha: max(0, (mu - alpha)/(1 - alpha))."""
    return max(0.0, (mean_severity - alpha) / (1 - alpha))


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over calibrations, and the bounds between which a stated share of them lies."""

    mean: float
    low: float
    high: float


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
