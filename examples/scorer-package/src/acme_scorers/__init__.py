"""Common words: the share of an answer's words that some other answer has too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch, Floats


@dataclass(frozen=True, slots=True)
class CommonWords(Scorer):
    """The share of an answer's words that some other answer has too."""

    name: ClassVar[str] = "common-words"
    title: ClassVar[str] = "common words"
    says: ClassVar[str] = "most of the answer's words are in another answer too"

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        words = [frozenset(text.casefold().split()) for text in batch.texts]
        shares = []
        for place, own in enumerate(words):
            others = frozenset().union(*words[:place], *words[place + 1 :])
            shares.append(len(own & others) / len(own) if own else 0.0)
        return finished(np.array(shares), batch.blank)
