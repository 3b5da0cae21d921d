"""Scores that come with the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamer.scoring.scorer import Scorer

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch, Floats


@dataclass(frozen=True, slots=True)
class External(Scorer):
    """A score that the publisher computed."""

    name: ClassVar[str] = "external"
    title: ClassVar[str] = "a score of the event"
    says: ClassVar[str] = "the publisher says so"
    of_event: ClassVar[bool] = True

    def score(self, batch: AnswerBatch) -> Floats:
        """Refuse: there is nothing to compute."""
        raise ValueError("the publisher sends the scores with the event; none are computed from answers")
