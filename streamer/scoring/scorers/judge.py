"""A judge's mark as a score, the paper's Q_J: a language model that rates each answer by a rubric. Pure.

Whoever decides asks the model (`streamer.labels.judge.scores`); here is what becomes of its marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamer.scoring.gram import DECIMALS
from streamer.scoring.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.scorer import AnswerBatch, Floats, Given

_BEST = 100.0


@dataclass(frozen=True, slots=True)
class Judge(Scorer):
    """J / 100, J in [0, 100] the mark of a language model that sees the prompt and the answer's head, and no references."""

    name: ClassVar[str] = "judge"
    title: ClassVar[str] = "judge (Q_J)"
    says: ClassVar[str] = "a language model rates the answer highly by a rubric"
    in_place: ClassVar[str | None] = "judge:"
    asks: ClassVar[bool] = True
    missing: ClassVar[str] = "no_mark"

    def score(self, batch: AnswerBatch) -> Floats:
        """Refuse: marks are asked for."""
        raise ValueError("a judge's marks are asked for; none are computed from answers")

    def of_given(self, given: Sequence[float | None], blank: Sequence[bool]) -> Given | None:
        """Score answers by their marks, in [0, 100]; a blank answer scores 0 and needs none.

        Returns
        -------
        scores : in [0, 1], rounded to 1e-6, and the marks, None for blank answers; None where one is missing.
        """
        scores: list[float] = []
        kept: list[float | None] = []
        for mark, empty in zip(given, blank, strict=True):
            if empty:
                scores.append(0.0)
                kept.append(None)
            elif mark is None:
                return None
            else:
                scores.append(round(mark / _BEST, DECIMALS))
                kept.append(float(mark) + 0.0)
        return tuple(scores), tuple(kept)
