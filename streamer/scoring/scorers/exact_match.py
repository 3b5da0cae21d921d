"""Self-consistency by exact match: the share of the other answers that say the same words. Pure.

The vote of Wang et al. 2023 ("Self-consistency improves chain of thought reasoning"), as a score of each answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]


def exact_match(forms: Sequence[str], blank: Sequence[bool] | None = None) -> Floats:
    """Score each of n answers by the share of the other n - 1 that have the same form.

    Parameters
    ----------
    forms : n >= 2 normal forms of what the answers claim. An empty form agrees with no other.
    blank : marks of blank answers; None: none is.

    Returns
    -------
    ndarray of float64, shape (n,)
        In {0, 1/(n-1), ..., 1}, rounded to 1e-6.

    Raises
    ------
    ValueError
        If n < 2.
    """
    if len(forms) < 2:
        raise ValueError(f"agreement needs at least 2 responses, not {len(forms)}")
    marks = [False] * len(forms) if blank is None else list(blank)
    votes = Counter(form for form, is_blank in zip(forms, marks, strict=True) if form and not is_blank)
    others = np.array([votes[form] - 1 if form else 0 for form in forms], dtype=np.float64)
    return finished(others / (len(forms) - 1), marks)


@dataclass(frozen=True, slots=True)
class ExactMatch(Scorer):
    """Many other answers have the same head, word for word after normalisation."""

    name: ClassVar[str] = "exact-match"
    place: ClassVar[int] = 2
    title: ClassVar[str] = "self-consistency, exact match"
    says: ClassVar[str] = "many other answers have the same head, word for word after normalisation"

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch."""
        return exact_match(batch.forms, batch.blank)
