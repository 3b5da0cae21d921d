"""`support-learned`: weights that human labels gave to what `support` is made of. Pure; no encoder.

With x the features of `streamer.scoring.claims.support.features`, in their order,

    score = 1 / (1 + exp(-(BIAS + sum of WEIGHTS x))), rounded to 6 places

and 0 for a claim that was not read. Learned once, by ``python -m
streamer_research.studies.claim_weights``, from the human labels of 7,248 claims, seven models'
answers to 200 questions: RefChecker (Hu et al. 2024, https://github.com/amazon-science/RefChecker),
CC BY 4.0, of which these numbers are a change. Frozen: other weights are another version, so that
a calibration may take the score for given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamer.scoring.claims.support import features, finished
from streamer.scoring.scorer import Floats, Scorer

VERSION = "support-learned@1"
WEIGHTS = (0.6921, 0.197, 0.2475, 0.8719, 2.1573, 3.5626)
BIAS = -2.5567


@dataclass(frozen=True, slots=True)
class SupportLearned(Scorer):
    """By packaged weights, whose version a gate has in the place of an encoder."""

    name: ClassVar[str] = "support-learned"
    title: ClassVar[str] = "learned support of claims"
    says: ClassVar[str] = "the other answers have of the claim what right claims share"
    in_place: ClassVar[str | None] = VERSION
    of_claims: ClassVar[bool] = True

    def support(self, claims: Sequence[str], witnesses: Sequence[str]) -> Floats:
        """Return the probability that the claim is right, as the weights' labels have it."""
        sums = (features(claims, witnesses) * WEIGHTS).sum(axis=1) + BIAS
        return finished(1 / (1 + np.exp(-sums)), claims)
