"""Sequence likelihood: how likely the model itself found an answer, by the mean log-probability of its tokens. Pure.

Malinin and Gales 2021 ("Uncertainty estimation in autoregressive structured prediction") call it the length-normalised
log-probability. The event brings it, for only who sampled an answer knows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamer.scoring.gram import DECIMALS
from streamer.scoring.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.scorer import AnswerBatch, Floats, Given


@dataclass(frozen=True, slots=True)
class Logprob(Scorer):
    """exp(mean log-probability of the answer's tokens): the geometric mean of their probabilities."""

    name: ClassVar[str] = "logprob"
    title: ClassVar[str] = "mean log-probability"
    says: ClassVar[str] = (
        "the model that wrote the answer found its tokens likely (geometric mean of their probabilities)"
    )
    of_event: ClassVar[str | None] = "logprob"
    in_place: ClassVar[str | None] = "event"
    missing: ClassVar[str] = "no_logprob"

    def score(self, batch: AnswerBatch) -> Floats:
        """Refuse: there is nothing to compute."""
        raise ValueError("log-probabilities come with the event; none are computed from answers")

    def of_given(self, given: Sequence[float | None], blank: Sequence[bool]) -> Given | None:
        """Score answers whose mean log-probability is known, <= 0; a blank answer scores 0 and needs none.

        Returns
        -------
        scores : in [0, 1], rounded to 1e-6, and the mean log-probabilities, None for blank answers; None where one is missing.
        """
        scores: list[float] = []
        kept: list[float | None] = []
        for one, empty in zip(given, blank, strict=True):
            if empty:
                scores.append(0.0)
                kept.append(None)
            elif one is None:
                return None
            else:
                scores.append(round(math.exp(min(one, 0.0)), DECIMALS))
                kept.append(float(one) + 0.0)  # no database keeps the sign of -0.0
        return tuple(scores), tuple(kept)
