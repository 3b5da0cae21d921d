"""Scores that come with the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class External(Scorer):
    """A score that the publisher computed."""

    name: ClassVar[str] = "external"
    title: ClassVar[str] = "a score of the event"
    says: ClassVar[str] = "the publisher says so"
    of_event: ClassVar[bool] = True
