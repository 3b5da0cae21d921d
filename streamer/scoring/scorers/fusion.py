"""Fusion: the plain mean of four ways to agree, no label needed. Pure.

Each alone is blind to something: embeddings to a wrong number in the same sentence, exact matches to a paraphrase. Which four,
and that they count alike, was fixed before any file was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.agreement import FEATURES, agreement
from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]

PARTS = ("gram", "word_jaccard", "exact_match", "contained")
"""Of `streamer.scoring.agreement.FEATURES`; each in [0, 1], higher is safer."""

_COLUMNS = [FEATURES.index(one) for one in PARTS]


@dataclass(frozen=True, slots=True)
class Fusion(Scorer):
    """The mean of Gram energy, word overlap, the share of equal heads, and of the head's words that the others have."""

    name: ClassVar[str] = "fusion"
    place: ClassVar[int] = 7
    title: ClassVar[str] = "fusion of four agreements"
    says: ClassVar[str] = (
        "embeddings, words, heads and what is contained in the others agree on average (Gram energy, word overlap, exact match, "
        "containment)"
    )

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        return finished(agreement(batch)[:, _COLUMNS].mean(axis=1), batch.blank)
