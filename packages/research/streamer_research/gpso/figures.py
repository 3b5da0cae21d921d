"""From outcomes to figures with standard errors by question, and differences between methods. Pure.

Responses to one question are alike, and splits of one question share its rows: the question is what was sampled.
Standard errors are the jackknife's with a whole question left out at a time, intervals are Student's with one degree of
freedom fewer than questions, and differences are taken on the same questions before their error is.

An undecided outcome counts one half in every share, as a coin would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from streamer_research.gpso.protocols import Outcomes
from streamer_research.gpso.questions import Booleans, Places
from streamer_research.gpso.scatter import Floats

LEVEL = 0.95
"""Of every interval."""
MEASURES = ("macro_accuracy", "accuracy_good", "accuracy_bad", "accuracy", "auroc", "macro_f1")
"""Names of the figures; see `TaskFigures`."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A figure with its error.

    `value`: None where it is not defined (no outcome of a class). `without`: shape (questions,),
    the figure without each question in turn; NaN where it is not defined then.
    """

    value: float | None
    without: Floats

    @property
    def se(self) -> float | None:
        """Standard error by question; None with fewer than 2 questions."""
        n = len(self.without)
        if self.value is None or n < 2 or not np.isfinite(self.without).all():
            return None
        return math.sqrt((n - 1) / n * float(np.square(self.without - self.without.mean()).sum()))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95 % interval, not cut to any range; None where there is no standard error."""
        if self.value is None or self.se is None:
            return None
        half = float(student.ppf((1 + LEVEL) / 2, len(self.without) - 1)) * self.se
        return self.value - half, self.value + half

    def minus(self, other: Estimate) -> Estimate:
        """Return the difference to a figure of the same questions, paired."""
        if len(self.without) != len(other.without):
            raise ValueError(
                f"one figure is of {len(self.without)} questions, the other of {len(other.without)}: not paired"
            )
        value = None if self.value is None or other.value is None else self.value - other.value
        return Estimate(value, self.without - other.without)


@dataclass(frozen=True, slots=True, eq=False)
class TaskFigures:
    """How one method did at one task.

    Attributes
    ----------
    questions, judged : how many questions and outcomes are behind the figures.
    undecided : outcomes where the method said nothing.
    accuracy_good, accuracy_bad : share right of a question's good ones, averaged over questions; the same of bad ones.
        Each question counts once and not by how many it has: else a method that says "good" wherever most are good, and
        knows nothing more, would do better than chance.
    macro_accuracy : their mean, also called balanced accuracy; .5 on average for a classifier without skill within a
        question.
    accuracy : share right of all; the share of the larger class for whoever always says that.
    auroc : chance that something good scores above something bad, ties one half. Within questions, of pairs judged by
        one fitted classifier, averaged over those; across questions, of any pair.
    macro_f1 : mean of the F1 score of finding the good and that of finding the bad.
    """

    questions: int
    judged: int
    undecided: int
    macro_accuracy: Estimate
    accuracy_good: Estimate
    accuracy_bad: Estimate
    accuracy: Estimate
    auroc: Estimate
    macro_f1: Estimate

    def measure(self, name: str) -> Estimate:
        """Return one of `MEASURES` by name."""
        if name not in MEASURES:
            raise ValueError(f"there is no measure {name!r}; there are {', '.join(MEASURES)}")
        found: Estimate = getattr(self, name)
        return found


def figures(outcomes: Outcomes) -> TaskFigures:
    """Return the figures of one method at one task; all None when nothing was judged."""
    present, place = np.unique(outcomes.question, return_inverse=True)
    n = len(present)
    right = np.where(outcomes.score == 0, 0.5, (outcomes.score > 0) == outcomes.good)

    def by_question(of: Floats | Booleans) -> Floats:
        return np.asarray(np.bincount(place, weights=of, minlength=n), dtype=np.float64)

    good = outcomes.good
    goods, bads = by_question(good), by_question(~good)
    right_goods, right_bads = by_question(right * good), by_question(right * ~good)
    cells = np.stack(
        [right_goods, goods, right_bads, bads, *_shares(right_goods, goods), *_shares(right_bads, bads)]
    )
    total = cells.sum(axis=1, keepdims=True)
    shares = {name: _both(share, total, cells) for name, share in _MEASURED.items()}
    area = (
        _auroc_within(outcomes, place, n)
        if outcomes.protocol == "within"
        else _auroc_pooled(outcomes, place, n)
    )
    return TaskFigures(
        questions=n,
        judged=len(outcomes.score),
        undecided=int((outcomes.score == 0).sum()),
        auroc=area,
        **shares,
    )


def _both(share: Callable[[Floats], Floats], total: Floats, cells: Floats) -> Estimate:
    value = float(share(total)[0])
    return Estimate(value if math.isfinite(value) else None, share(total - cells))


def _ratio(top: Floats, bottom: Floats) -> Floats:
    found: Floats = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return found


def _shares(right: Floats, of: Floats) -> tuple[Floats, Floats]:
    """Return each question's share right, 0 where it has none of the class, and whether it has any."""
    return np.nan_to_num(_ratio(right, of)), (of > 0).astype(np.float64)


def _macro_f1(cells: Floats) -> Floats:
    right_good, good, right_bad, bad = cells[:4]
    wrong = (good - right_good) + (bad - right_bad)
    both = (_ratio(2 * right_good, 2 * right_good + wrong) + _ratio(2 * right_bad, 2 * right_bad + wrong)) / 2
    return np.where((good > 0) & (bad > 0), both, np.nan)


_MEASURED: dict[str, Callable[[Floats], Floats]] = {
    "macro_accuracy": lambda cells: (_ratio(cells[4], cells[5]) + _ratio(cells[6], cells[7])) / 2,
    "accuracy_good": lambda cells: _ratio(cells[4], cells[5]),
    "accuracy_bad": lambda cells: _ratio(cells[6], cells[7]),
    "accuracy": lambda cells: _ratio(cells[0] + cells[2], cells[1] + cells[3]),
    "macro_f1": _macro_f1,
}


def _auroc_within(outcomes: Outcomes, place: Places, n: int) -> Estimate:
    sums, counts = np.zeros(n), np.zeros(n)
    order = np.argsort(outcomes.fold, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(outcomes.fold[order])) + 1):
        good = outcomes.good[members]
        if good.any() and not good.all():
            scores = outcomes.score[members]
            sums[place[members[0]]] += _above(scores[good], scores[~good]).mean()
            counts[place[members[0]]] += 1
    total, folds = sums.sum(), counts.sum()
    return Estimate(float(total / folds) if folds else None, _ratio(total - sums, folds - counts))


def _auroc_pooled(outcomes: Outcomes, place: Places, n: int) -> Estimate:
    good = outcomes.good
    above_bad = _above(outcomes.score[good], outcomes.score[~good]) * (~good).sum()
    below_good = good.sum() - _above(outcomes.score[~good], outcomes.score[good]) * good.sum()
    of_good = np.bincount(place[good], weights=above_bad, minlength=n)
    of_bad = np.bincount(place[~good], weights=below_good, minlength=n)
    both = np.zeros(n)
    order = np.argsort(place, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        mine = good[members]
        if mine.any() and not mine.all():
            scores = outcomes.score[members]
            both[place[members[0]]] = _above(scores[mine], scores[~mine]).mean() * mine.sum() * (~mine).sum()
    goods = np.bincount(place[good], minlength=n).astype(np.float64)
    bads = np.bincount(place[~good], minlength=n).astype(np.float64)
    pairs = goods.sum() * bads.sum()
    without = _ratio(of_good.sum() - of_good - of_bad + both, (goods.sum() - goods) * (bads.sum() - bads))
    return Estimate(float(of_good.sum() / pairs) if pairs else None, without)


def _above(scores: Floats, others: Floats) -> Floats:
    """Return for each score the share of `others` below it, equal ones one half; empty where there are no others."""
    if not len(others):
        return np.zeros(len(scores))
    ordered = np.sort(others)
    return (np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")) / (
        2 * len(ordered)
    )
