"""A judge's mark as a score, the paper's Q_J: a language model that rates each answer by a rubric. Pure.

Whoever decides asks the model (`streamer.labels.judge.scores`); here is what becomes of its marks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.gram import DECIMALS
from streamer.scoring.scorer import AnswerBatch, Floats, Given, Scorer

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
        """Refuse: there is nothing to compute."""
        raise ValueError("a judge's marks are asked for; none are computed from answers")

    def of_given(self, given: Sequence[float | None], blank: Sequence[bool]) -> Given | None:
        """Score answers by their marks, which are kept; a blank answer scores 0 and needs none."""
        marks = [None if empty else mark for mark, empty in zip(given, blank, strict=True)]
        if any(mark is None and not empty for mark, empty in zip(marks, blank, strict=True)):
            return None
        scores = tuple(0.0 if mark is None else round(mark / _BEST, DECIMALS) for mark in marks)
        return scores, tuple(None if mark is None else float(mark) + 0.0 for mark in marks)  # no -0.0
