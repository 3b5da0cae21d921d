"""Sequence likelihood: how likely the model itself found an answer, by the mean log-probability of its tokens. Pure.

Malinin and Gales 2021 ("Uncertainty estimation in autoregressive structured prediction") call it the length-normalised
log-probability. The event brings it, for only who sampled an answer knows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.scorer import OfOneNumber


@dataclass(frozen=True, slots=True)
class Logprob(OfOneNumber):
    """exp(mean log-probability of the answer's tokens): the geometric mean of their probabilities."""

    name: ClassVar[str] = "logprob"
    title: ClassVar[str] = "mean log-probability"
    says: ClassVar[str] = (
        "the model that wrote the answer found its tokens likely (geometric mean of their probabilities)"
    )
    of_event: ClassVar[str | None] = "logprob"
    in_place: ClassVar[str | None] = "event"
    missing: ClassVar[str] = "no_logprob"

    given: ClassVar[str] = "log-probabilities come with the event"

    def of_number(self, number: float) -> float:
        """Return exp(x) of a mean log-probability x <= 0."""
        return math.exp(min(number, 0.0))
