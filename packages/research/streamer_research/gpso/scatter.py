"""From a batch of embeddings to a factor of its scatter: the paper's pipelines A to D. Pure.

The paper's scatter is ``C = V'HV`` with ``H = I - 11'/n`` (centred) or ``C = V'V`` (not centred), from rows that are
normalised first or not (Algorithm "GPSO", preprocessing; the ablations A to D). Here it is kept as a factor ``F`` of
shape (n, d) with ``C = F'F``, because d = 384 is larger than n and the factor has all that is needed.

Deviation: scatters are divided by n. The paper compares the scatter of a test batch with that of calibration batches,
which have other sizes; without the division their difference would measure sizes. Projectors, and so decisions, are the
same either way.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One of the paper's four ways to make a scatter.

    `key`: ``A`` to ``D``. `title`: the paper's name for it. `unit_rows`: rows are divided by their
    length first. `centred`: the batch's mean is subtracted, so that only deviations from it are
    left; a batch of one has none.
    """

    key: str
    title: str
    unit_rows: bool
    centred: bool


PIPELINES = {
    one.key: one
    for one in (
        Pipeline("A", "L2, centred", unit_rows=True, centred=True),
        Pipeline("B", "L2, no centre", unit_rows=True, centred=False),
        Pipeline("C", "no L2, centred", unit_rows=False, centred=True),
        Pipeline("D", "no L2, no centre", unit_rows=False, centred=False),
    )
}
"""The paper's ablations, by key."""


def scatter_factor(rows: ArrayLike, pipeline: Pipeline, copies: ArrayLike | None = None) -> Floats:
    """Return ``F`` of shape (n, d) with ``F'F`` the scatter of a batch, divided by its size.

    `rows`: shape (n, d), n >= 1, d >= 1. `pipeline`: whether rows are normalised and centred.
    `copies`: shape (n,), >= 1: each row stands for so many equal ones of the batch, which need not
    be there; None: each for itself. Returns `ndarray of float64, shape (n, d)`: deviations that are
    rounding alone (all rows equal) are exactly 0. Raises `ValueError` if the array has another
    shape or holds what is not finite, or a row is zero and the pipeline normalises.
    """
    prepared = directions(rows) if pipeline.unit_rows else _checked(rows)
    counts = np.ones(len(prepared)) if copies is None else np.asarray(copies, dtype=np.float64)
    n = counts.sum()
    if pipeline.centred:
        largest = float(np.abs(prepared).max())
        prepared = prepared - counts @ prepared / n
        prepared[np.abs(prepared) <= 4 * n * np.finfo(np.float64).eps * largest] = 0.0
    factor: Floats = prepared * np.sqrt(counts / n)[:, np.newaxis]
    return factor


def directions(rows: ArrayLike) -> Floats:
    """Return rows divided by their length, shape (n, d). Raises `ValueError` as `scatter_factor` does."""
    checked = _checked(rows)
    largest = np.abs(checked).max(axis=1)
    if not largest.all():
        raise ValueError(f"row {int(largest.argmin())} is zero: it has no direction")
    checked = checked / largest[:, np.newaxis]  # first, so that squares neither overflow nor vanish
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", checked, checked))
    units: Floats = checked / lengths[:, np.newaxis]
    return units


def _checked(rows: ArrayLike) -> Floats:
    checked = np.asarray(rows, dtype=np.float64)
    if checked.ndim != 2 or 0 in checked.shape:
        raise ValueError(f"a batch must have the shape (n, d) with n and d at least 1, not {checked.shape}")
    finite = np.isfinite(checked).all(axis=1)
    if not finite.all():
        raise ValueError(f"row {int(finite.argmin())} is not finite")
    return checked
