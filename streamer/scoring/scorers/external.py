"""Scores that come with the events."""

from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class External(Scorer):
    """A score that the publisher computed."""

    name: ClassVar[str] = "external"
    title: ClassVar[str] = "a score of the event"
    says: ClassVar[str] = "the publisher says so"
    of_event: ClassVar[str | None] = "score"
    in_place: ClassVar[str | None] = "none"

    def of_number(self, number: float) -> float:
        """Take the score as it is."""
        return number
