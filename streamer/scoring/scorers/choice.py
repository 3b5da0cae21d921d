"""Which answer a gate of method `full` chooses: Gram energy and chrF, halved. Pure."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import AnswerBatch, Scorer
from streamer.scoring.signals.signal_list import choice_scores, scored_for_choice


@dataclass(frozen=True, slots=True)
class Choice(Scorer):
    """Agreement of the embeddings and of the characters."""

    name: ClassVar[str] = "choice"
    place: ClassVar[int] = 5
    title: ClassVar[str] = "Gram energy and chrF"
    says: ClassVar[str] = (
        "embeddings and sequences of characters of the other answers agree with this one's; of numbers, JSON and calls "
        "the values"
    )

    def holds(self, batch: AnswerBatch) -> bool:
        """Whether the encoder did not read a batch, and its embeddings are needed."""
        return bool(batch.not_read) and not (batch.form and batch.form.agrees)

    def score(self, batch: AnswerBatch) -> NDArray[np.float64]:
        """Score a batch."""
        return choice_scores(batch)

    def with_raw(self, batch: AnswerBatch) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return the scores and the agreement in what is judged."""
        return scored_for_choice(batch)
