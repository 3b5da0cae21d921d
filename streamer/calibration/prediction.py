"""What lies between two bounds in so many of further repetitions. Pure."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
