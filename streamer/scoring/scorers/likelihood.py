"""How likely an answer was to the model that gave it: one answer is enough. Pure."""

import math
from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True)
class Likelihood(Scorer):
    """exp(mean log-probability of the tokens), as Malinin and Gales 2021 propose."""

    name: ClassVar[str] = "likelihood"
    title: ClassVar[str] = "likelihood"
    says: ClassVar[str] = "the model gave the answer's tokens high probabilities"
    of_event: ClassVar[str | None] = "logprob"
    in_place: ClassVar[str | None] = "none"
    missing: ClassVar[str] = "no_logprob"

    def of_number(self, number: float) -> float:
        """Return the geometric mean of the tokens' probabilities."""
        return math.exp(number)
