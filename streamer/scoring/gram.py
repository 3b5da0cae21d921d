"""Gram energy: how far each response of a batch agrees with the others, from embeddings alone. Pure.

With unit rows v_1..v_n the paper's energy is E_i = ||V v_i|| / sqrt(n), in [1/sqrt(n), 1]: it depends on n, because each
response agrees with itself. The leave-one-out energy q_i = sqrt((n E_i**2 - 1) / (n - 1)) is the root-mean-square
cosine to the other responses, in [0, 1], and compares across batch sizes; it is the score.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DECIMALS = 6
"""Scores are rounded once, here: what differs by less is a tie."""

_ROWS_AT_ONCE = 1024


def gram_energy(embeddings: ArrayLike, *, raw: bool = False) -> Floats:
    """Score each of n responses by its agreement with the other n - 1.

    `embeddings`: shape (n, d), n >= 2, d >= 1; rows of any positive length (they are normalised
    here). `raw`: return the paper's E, in [1/sqrt(n), 1], instead of the leave-one-out energy.
    Returns `ndarray of float64, shape (n,)`: in [0, 1], not rounded; 1 where all responses point
    the same way, or the opposite. Raises `ValueError` if n < 2, the array is not two-dimensional,
    or a row is zero or not finite.
    """
    others = _agreement_with_others(unit_rows(embeddings, None))
    n = len(others)
    return _clipped_root((1.0 + others) / n) if raw else _clipped_root(others / (n - 1))


def score_batch(embeddings: ArrayLike, blank: Sequence[bool] | None = None) -> tuple[Floats, Floats]:
    """Score a batch as the gate needs it: the leave-one-out energy, rounded to 1e-6, and the
    paper's E, not rounded, both of shape (n,).

    A `blank` answer agrees with no other: its row counts as zero, and its score and raw energy are
    0. Raises `ValueError` as `gram_energy`, or if `blank` has another length.
    """
    return score_rows(unit_rows(embeddings, blank), blank)


def score_rows(rows: Floats, blank: Sequence[bool] | None = None) -> tuple[Floats, Floats]:
    """Score a batch as `score_batch` does, from what `unit_rows` made of it."""
    n = len(rows)
    others = _agreement_with_others(rows)
    selves = np.ones(n) if blank is None else 1.0 - np.asarray(blank, dtype=np.float64)
    return np.round(_clipped_root(others / (n - 1)), DECIMALS), _clipped_root((selves + others) / n)


def unit_rows(embeddings: ArrayLike, blank: Sequence[bool] | None) -> Floats:
    """Return embeddings as rows of length 1, those of blank answers as zeros; see `gram_energy` for what is refused."""
    rows = np.array(embeddings, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"embeddings must have the shape (n, d), not {rows.shape}")
    if len(rows) < 2:
        raise ValueError(f"agreement needs at least 2 responses, not {len(rows)}")
    if blank is not None:
        if len(blank) != len(rows):
            raise ValueError(f"there are {len(rows)} embeddings and {len(blank)} marks of blank answers")
        rows[np.asarray(blank, dtype=np.bool_)] = 0.0
    largest = np.abs(rows).max(axis=1, initial=0.0)
    if not np.isfinite(largest).all():
        raise ValueError(f"embedding {int(np.isfinite(largest).argmin())} is not finite")
    zero = largest == 0
    if blank is not None:
        zero &= ~np.asarray(blank, dtype=np.bool_)
    if zero.any():
        raise ValueError(f"embedding {int(zero.argmax())} is zero: it has no direction to compare")
    largest[largest == 0] = 1.0
    rows /= largest[:, np.newaxis]  # first, so that squares neither overflow nor vanish
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1.0
    rows /= lengths[:, np.newaxis]
    return rows


def _agreement_with_others(rows: Floats) -> Floats:
    """Return sum_{j != i} (v_i . v_j)**2 for each i; leaving the diagonal out loses no digits, unlike n E**2 - 1."""
    agreement = np.empty(len(rows))
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        cosines = rows[first : first + _ROWS_AT_ONCE] @ rows.T
        block = np.arange(len(cosines))
        cosines[block, first + block] = 0.0
        agreement[first : first + len(cosines)] = np.einsum("ij,ij->i", cosines, cosines)
    return agreement


def _clipped_root(squares: Floats) -> Floats:
    return np.clip(np.sqrt(squares), 0.0, 1.0)
