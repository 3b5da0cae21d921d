"""Gram energy: the paper's score; see `streamer.scoring.gram`. Pure."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.gram import score_rows
from streamer.scoring.scorer import AnswerBatch, Scorer

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Gram(Scorer):
    """Agreement of the embeddings."""

    name: ClassVar[str] = "gram"
    place: ClassVar[int] = 0
    title: ClassVar[str] = "Gram energy"
    says: ClassVar[str] = (
        "the embeddings of the other answers point where this one's does (root-mean-square cosine)"
    )

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        return self.with_raw(batch)[0]

    def with_raw(self, batch: AnswerBatch) -> tuple[Floats, Floats | None]:
        """Return the scores and the paper's energy E."""
        return score_rows(batch.unit_rows, batch.blank)
