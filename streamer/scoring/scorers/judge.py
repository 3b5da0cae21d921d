"""A judge's mark as a score, the paper's Q_J: a language model that rates each answer by a rubric. Pure.

Whoever decides asks the model (`streamer.labels.judge.scores`); here is what becomes of its marks.
"""

from dataclasses import dataclass
from typing import ClassVar

from streamer.scoring.scorer import Scorer

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

    def of_number(self, number: float) -> float:
        """Return the mark as a share of the best one."""
        return number / _BEST
