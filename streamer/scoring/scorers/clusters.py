"""Self-consistency by meaning: the share of the other answers in the same cluster of embeddings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.answer_clusters import COSINE, cluster_share
from streamer.scoring.scorer import Scorer

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Clusters(Scorer):
    """Many other answers are in the same cluster of embeddings."""

    name: ClassVar[str] = "clusters"
    place: ClassVar[int] = 3
    title: ClassVar[str] = "self-consistency, embedding clusters"
    says: ClassVar[str] = (
        f"many other answers are in the same cluster of embeddings (linked from a cosine of {COSINE:g})"
    )

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        return cluster_share(batch.embeddings, batch.blank)
