"""What a batch's embeddings amount to, as one number that a drift alarm can watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

Floats = NDArray[np.float64]


def mean_pairwise_cosine(embeddings: ArrayLike) -> float:
    """Return the mean cosine over all pairs of responses: how tightly the batch hangs together.

    Parameters
    ----------
    embeddings : shape (n, d), n >= 2, finite, no zero row; of any length.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    ValueError
        If `embeddings` are not of that kind.
    """
    rows = _directions(embeddings)
    count = len(rows)
    if count < 2:
        raise ValueError("a pair needs two responses")
    together = rows.sum(axis=0)
    return min(1.0, max(-1.0, (float(together @ together) - count) / (count * (count - 1))))


def cloud_centre(batches: Iterable[ArrayLike]) -> Floats:
    """Return the mean direction of several batches, each counting once.

    Batches that make the centre lie nearer to it than new ones do. So an alarm on `cosine_to_centre` takes its
    reference from *other* calibration batches: one half for the centre, the other for the alarm.

    Parameters
    ----------
    batches : at least one array of shape (n, d) as in `mean_pairwise_cosine`, n >= 1, of the same d.

    Returns
    -------
    ndarray
        Shape (d,), of length 1.

    Raises
    ------
    ValueError
        If there is no batch, the dimensions differ, or the directions cancel out.
    """
    means = [_directions(batch).mean(axis=0) for batch in batches]
    if not means or len({mean.size for mean in means}) > 1:
        raise ValueError("a centre needs at least one batch, and batches of one dimension")
    centre: Floats = _directions(np.mean(means, axis=0)[None, :])[0]
    return centre


def cosine_to_centre(embeddings: ArrayLike, centre: ArrayLike) -> float:
    """Return the mean cosine between a batch's responses and a centre: whether it speaks of what it used to.

    Parameters
    ----------
    embeddings : shape (n, d) as in `mean_pairwise_cosine`, n >= 1.
    centre : shape (d,), as `cloud_centre` gives it.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    ValueError
        If the arrays are not of that kind, or of different dimensions.
    """
    rows, direction = _directions(embeddings), _directions(np.asarray(centre)[None, ...])[0]
    if rows.shape[1] != direction.size:
        raise ValueError(f"the centre has {direction.size} dimensions, the embeddings {rows.shape[1]}")
    return min(1.0, max(-1.0, float((rows @ direction).mean())))


def _directions(embeddings: ArrayLike) -> Floats:
    rows = np.asarray(embeddings)
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "iuf":
        raise ValueError(
            f"embeddings must be numbers of shape (n, d), not {rows.dtype} of shape {rows.shape}"
        )
    largest = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)
    if not np.isfinite(largest).all() or (largest == 0).any():
        raise ValueError("embeddings must be finite, and none of them zero")
    scaled: Floats = rows / largest
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled
