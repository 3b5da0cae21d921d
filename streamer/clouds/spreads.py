"""Figures over splits, with what is known of their error. Pure."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure over seeded splits, by those that have it, which are `splits`.

    `sd` is the standard deviation between them, None for fewer than two. `se` is the standard error
    of the mean over splits of *this* data set, sd / sqrt(splits); `error` that for other questions
    like these: sd * sqrt(1/splits + test/calibration), because splits of one data set share their
    questions (Nadeau and Bengio 2003). Approximate.
    """

    mean: float | None
    sd: float | None
    se: float | None
    error: float | None
    splits: int


def spread(values: Floats, *, test: int, calibration: int) -> Spread:
    """Return mean, spread and errors of a figure over splits: shape (S,), not finite without it.

    `test`, `calibration` : questions in the halves that are measured and that calibrate, each >= 1.
    """
    known = values[np.isfinite(values)]
    count = len(known)
    if count == 0:
        return Spread(mean=None, sd=None, se=None, error=None, splits=0)
    mean = math.fsum(known.tolist()) / count
    if count == 1:
        return Spread(mean=mean, sd=None, se=None, error=None, splits=1)
    sd = float(np.std(known, ddof=1)) if known.min() != known.max() else 0.0
    return Spread(
        mean=mean,
        sd=sd,
        se=sd / math.sqrt(count),
        error=sd * math.sqrt(1 / count + test / calibration),
        splits=count,
    )


def excess(exposure: Spread, alpha: float) -> float | None:
    """Return by how many standard errors a mean exposure lies above `alpha`; None where it does not.

    Splits of one data set are independent draws and its halves are exchangeable, so that the mean over splits is what
    a promise on average is about, for any data set.
    """
    if exposure.mean is None or exposure.mean <= alpha or not exposure.se:
        return None
    return (exposure.mean - alpha) / exposure.se


def chance_bound(cells: int, level: float = 0.01) -> float:
    """Return the number of standard errors that chance passes in one of `cells` cells with probability `level`.

    The normal quantile at 1 - level / cells (Bonferroni), whatever the cells have to do with one another.
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(1.0 - level / max(1, cells))
