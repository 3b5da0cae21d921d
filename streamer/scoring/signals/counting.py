"""How many elements rows have in common, in whole numbers. Pure."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CELLS_AT_ONCE = 2**22


def in_common(elements: Integers, rows: Integers, height: int, *, repeated: bool) -> Floats:
    """Count what each two of some rows have in common.

    Parameters
    ----------
    elements : shape (m,), >= 0 and less than 2**62 / height, one entry an occurrence, in any order.
    rows : shape (m,), in [0, height): where each occurs.
    repeated : an element counts as often as both have it; False: once.

    Returns
    -------
    ndarray of float64, shape (height, height)
        Whole numbers, exact up to 2**24: sum over elements of the smaller of two counts.
    """
    common = np.zeros((height, height))
    if not len(elements):
        return common
    bits = (height - 1).bit_length()
    keys = np.sort((elements << bits) | rows)
    first = _starts(keys)
    counts = np.diff(first, append=len(keys)) if repeated else np.ones(len(first), dtype=np.int64)
    keys = keys[first]
    element = keys >> bits
    group = _starts(element)
    sizes = np.diff(group, append=len(element))
    deepest = np.where(
        sizes > 1, np.maximum.reduceat(counts, group), 0
    )  # what one row alone has, none shares
    kept = np.repeat(sizes > 1, sizes)
    row, counts = keys[kept] & ((1 << bits) - 1), counts[kept]
    column = np.repeat(np.cumsum(deepest) - deepest, sizes)[
        kept
    ]  # of the first occurrence; the next is beside it
    if repeated:
        before = np.repeat(np.cumsum(counts) - counts, counts)
        column = np.repeat(column, counts) + np.arange(len(before)) - before
        row = np.repeat(row, counts)
    width, step = int(deepest.sum()), max(1, _CELLS_AT_ONCE // height)
    for start in range(0, width, step):
        part = slice(None) if width <= step else (column >= start) & (column < start + step)
        has = np.zeros((height, min(step, width - start)), dtype=np.float32)
        has[row[part], column[part] - start] = 1.0
        common += has @ has.T
    return common


def _starts(ordered: Integers) -> NDArray[np.intp]:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
