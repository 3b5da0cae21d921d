"""Scores that come with the events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.gram import DECIMALS
from streamer.scoring.scorer import AnswerBatch, Floats, Given, Scorer


@dataclass(frozen=True, slots=True)
class External(Scorer):
    """A score that the publisher computed."""

    name: ClassVar[str] = "external"
    title: ClassVar[str] = "a score of the event"
    says: ClassVar[str] = "the publisher says so"
    of_event: ClassVar[str | None] = "score"
    in_place: ClassVar[str | None] = "none"

    def score(self, batch: AnswerBatch) -> Floats:
        """Refuse: there is nothing to compute."""
        raise ValueError("the publisher sends the scores with the event; none are computed from answers")

    def of_given(self, given: Sequence[float | None], blank: Sequence[bool]) -> Given | None:
        """Take the scores, all of them; see `Scorer.of_given`."""
        scores = [one for one in given if one is not None]
        if len(scores) < len(given):
            return None
        return tuple(
            0.0 if empty else round(float(one), DECIMALS) + 0.0
            for one, empty in zip(scores, blank, strict=True)
        ), None
