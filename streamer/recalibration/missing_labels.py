"""Are labels missing at random, or more often at some scores? A test that may be looked at at any time. Pure.

Each draw whose label had not come by a deadline is paired with the labelled draw before it that no other is paired with.
If missing has nothing to do with the score, either of the two has the higher score with chance 1/2, whatever came before.
Bets on one side, of several strengths and both directions, multiply to an e-process: the chance that it ever reaches 1/delta
is delta at most. What has passed the deadline never changes, so that the test goes on where it stood.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

DELTA = 0.01
_CHANCES = np.arange(0.025, 1.0, 0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLabels:
    """What is known of the draws that got no label in time.

    `draws`, `missing`: draws that are older than the deadline, and those of them without a label by
    then. `pairs`, `lower`: pairs of a missing and a labelled draw with different scores, and those
    in which the missing one's is the lower. `evidence`: the most that the e-process ever was.
    """

    draws: int
    missing: int
    pairs: int
    lower: int
    evidence: float

    @property
    def not_at_random(self) -> bool:
        """Whether labels are missing more often at some scores."""
        return self.evidence >= 1 / DELTA

    @property
    def said(self) -> str:
        """What was found, in words."""
        side = "low" if 2 * self.lower > self.pairs else "high"
        return (
            f"labels are missing more often at {side} scores: {self.missing} of {self.draws} draws had none in time, and in "
            f"{max(self.lower, self.pairs - self.lower)} of {self.pairs} pairs with a labelled draw the one without has the "
            f"{side}er score (e-value {self.evidence:.3g})"
        )


def missing_labels(draws: Iterable[tuple[float, bool]]) -> MissingLabels:
    """Test the draws that are older than the deadline, in order of decision: the score of each, and
    whether its label had not come by then.
    """
    # Only the newest: scores of long ago may come from elsewhere.
    unpaired: deque[float] = deque(maxlen=100)
    count = missing = pairs = lower = 0
    bets = np.ones_like(_CHANCES)
    evidence = 1.0
    for score, is_missing in draws:
        count += 1
        if not is_missing:
            unpaired.append(score)
            continue
        missing += 1
        other = unpaired.pop() if unpaired else score
        if other == score:
            continue
        pairs += 1
        lower += score < other
        bets *= 2 * (_CHANCES if score < other else 1 - _CHANCES)
        evidence = max(evidence, float(bets.mean()))
    return MissingLabels(draws=count, missing=missing, pairs=pairs, lower=lower, evidence=evidence)


def unlabelled_by(shown: Sequence[tuple[str, bool]]) -> tuple[str, MissingLabels] | None:
    """Find a labeller whose answers get no label more often than those that others were shown;
    None: there is none.

    `shown`, in that order: to whom, and whether no label had come by the deadline. The n-th
    labeller to appear is tested at 6/(pi^2 n^2) of `DELTA`, so that all together spend no more than
    that.
    """
    for place, name in enumerate(dict.fromkeys(who for who, _ in shown), start=1):
        found = missing_labels((0.0 if who == name else 1.0, is_missing) for who, is_missing in shown)
        if 2 * found.lower > found.pairs and found.evidence >= (math.pi * place) ** 2 / (6 * DELTA):
            return name, found
    return None
