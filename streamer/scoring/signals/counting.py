"""How many elements rows have in common, in whole numbers. Pure."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]

_CELLS_AT_ONCE = 2**22


def in_common(begins: Marks, rows: Integers, height: int, *, repeated: bool) -> tuple[Floats, Marks]:
    """Count what each two of some rows have in common.

    Parameters
    ----------
    begins : shape (m,), of occurrences of elements, equal ones beside each other: True where another element begins.
    rows : shape (m,), in [0, height): where each occurs.
    repeated : an element counts as often as both have it; False: once.

    Returns
    -------
    common : shape (height, height), whole numbers: sum over elements of the smaller of two counts. Its diagonal counts what
        other rows have as well.
    shared : shape (m,), of which elements more than one row has.
    """
    common = np.zeros((height, height))
    first = np.flatnonzero(begins)
    if not len(first):
        return common, begins
    sizes = np.append(first[1:], len(rows)) - first
    another = ~begins
    another[1:] &= rows[1:] != rows[:-1]
    several = np.logical_or.reduceat(another, first)
    shared = np.repeat(several, sizes)
    element = np.repeat(np.arange(np.count_nonzero(several)), sizes[several])
    row = rows[shared]
    width, step = int(np.count_nonzero(several)), max(1, _CELLS_AT_ONCE // height)
    for start in range(0, width, step):
        low, high = np.searchsorted(element, [start, start + step]) if width > step else (0, len(element))
        wide = min(step, width - start)
        cells = row[low:high] * wide + (element[low:high] - start)
        counts = np.bincount(cells, minlength=height * wide).reshape(height, wide)
        has = (counts > 0).astype(np.float32)
        common += has @ has.T  # of fewer than 2**24 ones: exact in whatever order they are added
        more = counts.astype(np.int32) - 1
        again = (counts > 1).sum(axis=0, dtype=np.int32) > 1
        if repeated and again.any():
            more = np.ascontiguousarray(more[:, again]).clip(min=0)
            block = max(1, _CELLS_AT_ONCE // 16 // more.size)
            for one in range(0, height, block):
                common[one : one + block] += np.minimum(more[one : one + block, np.newaxis], more).sum(axis=2)
    return common, shared


def begins(ordered: Integers) -> Marks:
    """Where each run of equal values begins."""
    found = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found
