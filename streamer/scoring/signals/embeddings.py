"""Signals of embeddings: where the other answers point. Pure.

An answer's cosine to a blank one counts 0.
"""

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.gram import DECIMALS, score_rows
from streamer.scoring.signals.measured import Measured, middle
from streamer.scoring.signals.signal import signal

Floats = NDArray[np.float64]

embedded = partial(signal, of_others=True, of_embeddings=True)

LINKED = 0.8
"""The cosine from which two answers count as saying the same; clusters are what links connect, whatever the order."""


@embedded(
    "gram", "Gram energy", "points where the others do (root mean square cosine)", mean=0.74, deviation=0.18
)
def gram(batch: Measured) -> Floats:
    """Rounded to 1e-6: the score of gates that cut Gram energy."""
    return score_rows(batch.batch.unit_rows, batch.batch.blank)[0]


@embedded("mean_cosine", "mean cosine", "is near the others on average", mean=0.73, deviation=0.19)
def mean_cosine(batch: Measured) -> Floats:
    """The mean cosine to the others."""
    return batch.over_others(batch.cosines)


@embedded("nearest_cosine", "nearest cosine", "is near one other at least", mean=0.85, deviation=0.17)
def nearest_cosine(batch: Measured) -> Floats:
    """The largest cosine to another."""
    nearest: Floats = _off_diagonal(batch.cosines).max(axis=1)
    return nearest


@embedded("median_cosine", "median cosine", "is near half of the others", mean=0.75, deviation=0.21)
def median_cosine(batch: Measured) -> Floats:
    """The median cosine to the others."""
    return middle(np.sort(_off_diagonal(batch.cosines), axis=1))


@embedded(
    "cluster_share",
    "share in its cluster",
    "says what many others say (clusters of embeddings)",
    mean=0.57,
    deviation=0.4,
)
def cluster_share(batch: Measured) -> Floats:
    """The share of the others in its cluster."""
    n = batch.size
    linked = (np.round(batch.cosines, DECIMALS) >= LINKED) | np.eye(n, dtype=np.bool_)
    clusters = np.arange(n)
    while True:  # each answer takes the least number that a linked one has, until nothing changes
        least = np.where(linked, clusters[np.newaxis, :], n).min(axis=1)
        if (least == clusters).all():
            return (np.bincount(clusters, minlength=n)[clusters] - 1) / (n - 1)
        clusters = least


@embedded(
    "centroid", "cosine to the centroid", "points where the others point together", mean=0.83, deviation=0.17
)
def centroid(batch: Measured) -> Floats:
    """The cosine to the sum of the others' unit rows; 0 where they cancel out."""
    together = batch.cosines.sum(axis=1)
    square = batch.cosines.sum() + batch.written.sum() - 2 * together - batch.written
    return np.where(square > 1e-9, together / np.sqrt(np.maximum(square, 1e-9)), 0.0).clip(-1.0, 1.0)


@embedded(
    "entropy", "kernel entropy", "is one of answers that span few directions", mean=0.61, deviation=0.17
)
def entropy(batch: Measured) -> float:
    """1 - S / ln n, S = -sum of l ln l over the positive eigenvalues l of the cosines above 0, which are made to sum to 1.

    After Nikitin et al. 2024 ("Kernel language entropy"), with cosines in the place of a graph of entailments. A negative
    cosine counts as 0: answers that point in opposite directions do not say the same. A blank one is a direction of its own.
    """
    kernel = batch.cosines.clip(min=0.0)
    np.fill_diagonal(kernel, 1.0)
    found = [value for value in np.linalg.eigvalsh(kernel).tolist() if value > 0.0]
    total = math.fsum(found)
    return 1.0 + math.fsum(value / total * math.log(value / total) for value in found) / math.log(batch.size)


@embedded(
    "best_gram",
    "best Gram energy",
    "is one of answers that agree (largest Gram energy)",
    mean=0.81,
    deviation=0.12,
)
def best_gram(batch: Measured) -> float:
    """The largest of the batch."""
    return batch.best(gram.of(batch))


@embedded(
    "batch_cosine",
    "mean cosine of the batch",
    "is one of answers that agree (mean cosine of all pairs)",
    mean=0.73,
    deviation=0.16,
)
def batch_cosine(batch: Measured) -> float:
    """The mean over all pairs."""
    return float(mean_cosine.of(batch).mean())


def _off_diagonal(pairs: Floats) -> Floats:
    """Shape (n, n - 1): the rows without their diagonal."""
    n = len(pairs)
    return pairs[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1)
