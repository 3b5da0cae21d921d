"""Lexical similarity: how many words an answer shares with the others. Pure.

The baseline without a model (Fomicheva et al. 2020 and Lin et al. 2023 compare with it), here with the overlap of sets of
words, so that neither order nor repetition counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LexicalSimilarity(Scorer):
    """The mean overlap, 2 |A and B| / (|A| + |B|), of an answer's words with those of each other answer."""

    name: ClassVar[str] = "lexical-similarity"
    place: ClassVar[int] = 6
    title: ClassVar[str] = "word overlap"
    says: ClassVar[str] = "the answer shares most of its words with the others"

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        words = [
            frozenset() if blank else frozenset(text.casefold().split())
            for text, blank in zip(batch.texts, batch.blank, strict=True)
        ]
        overlaps = np.zeros((len(words), len(words)))
        for i, some in enumerate(words):
            for j in range(i):
                total = len(some) + len(words[j])
                overlaps[i, j] = overlaps[j, i] = 2 * len(some & words[j]) / total if total else 0.0
        return finished(overlaps.sum(axis=1) / (len(words) - 1), batch.blank)
