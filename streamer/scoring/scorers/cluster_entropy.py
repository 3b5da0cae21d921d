"""How evenly a batch's answers spread over meanings: one minus the normalised entropy of its clusters. Pure.

In the manner of semantic entropy (Farquhar et al. 2024), with clusters of embeddings in the place of entailment
between answers, so that it needs no second model. It speaks of the prompt, and Gram energy says which of its answers to show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.answer_clusters import answer_clusters
from streamer.scoring.gram import in_order_of, score_rows
from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]


def cluster_entropy(embeddings: ArrayLike, blank: Sequence[bool] | None = None) -> Floats:
    """Score a batch of n answers by 1 - H / ln n, H the entropy of the shares of its clusters.

    Parameters
    ----------
    embeddings : shape (n, d), n >= 2.
    blank : marks of blank answers, each a meaning of its own; None: none is.

    Returns
    -------
    ndarray of float64, shape (n,)
        One value for all, in [0, 1]: 1 where all mean the same, 0 where no two do; 0 for a blank answer.
    """
    clusters = answer_clusters(embeddings, blank)
    n = len(clusters)
    sizes = np.sort(np.unique(clusters, return_counts=True)[1])
    entropy = -math.fsum(size / n * math.log(size / n) for size in sizes.tolist())
    marks = [False] * n if blank is None else blank
    return finished(np.full(n, 1.0 - entropy / math.log(n)), marks)


@dataclass(frozen=True, slots=True)
class ClusterEntropy(Scorer):
    """The answers to this prompt fall into few clusters; Gram energy says which of them comes first."""

    name: ClassVar[str] = "cluster-entropy"
    place: ClassVar[int] = 4
    title: ClassVar[str] = "cluster entropy (semantic-entropy-like)"
    says: ClassVar[str] = (
        "the answers to this prompt fall into few clusters; Gram energy says which of them comes first"
    )

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        alike = cluster_entropy(batch.embeddings, batch.blank)
        return in_order_of(score_rows(batch.unit_rows, batch.blank)[0], alike, batch.blank)
