"""How likely an answer was to the model that gave it: one answer is enough. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.gram import DECIMALS
from streamer.scoring.scorer import AnswerBatch, Floats, Given, Scorer


@dataclass(frozen=True, slots=True)
class Likelihood(Scorer):
    """exp(mean log-probability of the tokens), the geometric mean of their probabilities (Malinin and Gales 2021)."""

    name: ClassVar[str] = "likelihood"
    title: ClassVar[str] = "likelihood"
    says: ClassVar[str] = "the model gave the answer's tokens high probabilities"
    of_event: ClassVar[str | None] = "logprob"
    in_place: ClassVar[str | None] = "none"
    missing: ClassVar[str] = "no_logprob"

    def score(self, batch: AnswerBatch) -> Floats:
        """Refuse: there is nothing to compute."""
        raise ValueError("log-probabilities come with the event; none are computed from answers")

    def of_given(self, given: Sequence[float | None], blank: Sequence[bool]) -> Given | None:
        """Score answers by their mean log-probability; a blank answer scores 0 and needs none."""
        pairs = list(zip(given, blank, strict=True))
        if any(one is None and not empty for one, empty in pairs):
            return None
        return tuple(
            0.0 if one is None or empty else round(math.exp(one), DECIMALS) for one, empty in pairs
        ), None
