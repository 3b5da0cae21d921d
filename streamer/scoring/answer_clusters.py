"""Which answers of a batch mean about the same: groups by the cosine of their embeddings. Pure.

Two answers are linked when their cosine reaches `COSINE`; clusters are what links connect. Unlike greedy clusterings
this does not depend on the order of the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.gram import DECIMALS, unit_rows
from streamer.scoring.scorer import finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

Floats = NDArray[np.float64]

COSINE = 0.8
"""The cosine from which two answers count as saying the same; fixed before any file was looked at."""


def answer_clusters(
    embeddings: ArrayLike, blank: Sequence[bool] | None = None, *, cosine: float = COSINE
) -> NDArray[np.intp]:
    """Number the clusters of n answers.

    Parameters
    ----------
    embeddings : shape (n, d), n >= 2.
    blank : marks of blank answers, each a cluster of its own; None: none is.
    cosine : in (0, 1], from which two answers are linked.

    Returns
    -------
    ndarray of int, shape (n,)
        The position of the first member of each answer's cluster.

    Raises
    ------
    ValueError
        As `streamer.gram_energy`, or if `cosine` is out of its range.
    """
    if not 0 < cosine <= 1:
        raise ValueError(f"cosine must be above 0 and at most 1, not {cosine!r}")
    rows = unit_rows(embeddings, blank)
    linked = np.round(rows @ rows.T, DECIMALS) >= cosine
    members = np.arange(len(rows))
    clusters = members.copy()
    while True:  # each answer takes the least number that a linked one has, until nothing changes
        least = np.where(linked, clusters[np.newaxis, :], len(rows)).min(axis=1)
        least = np.minimum(clusters, least)
        if (least == clusters).all():
            return clusters
        clusters = least


def cluster_share(embeddings: ArrayLike, blank: Sequence[bool] | None = None) -> Floats:
    """Score each of n answers by the share of the other n - 1 that are in its cluster (self-consistency by meaning).

    Returns
    -------
    ndarray of float64, shape (n,)
        In {0, 1/(n-1), ..., 1}, rounded to 1e-6; 0 for a blank answer.
    """
    clusters = answer_clusters(embeddings, blank)
    sizes = np.bincount(clusters, minlength=len(clusters))[clusters]
    marks = [False] * len(clusters) if blank is None else blank
    return finished((sizes - 1) / (len(clusters) - 1), marks)
