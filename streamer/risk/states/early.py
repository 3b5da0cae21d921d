"""An early warning: is a cheap mark of what ships, a judge's for one, bad more often than it was in the gate's stable phase?

Answers i = 1, 2, ... that shipped have marks x_i, 0 or 1. Of the first 40, 60 and 200 that are
known, k of n are 1, and s is the least Clopper-Pearson upper bound so far, each at `error`, a sixth
of delta: a change that comes between two spoils the later one. From then on bets on every marked
answer (`drawn_bets`, each its own draw, at delta/2) win where marks come to more than s.

**Promise.** If marks come independently at one rate q for as long as bets are made, a bound is below q with a chance of at most
`error` each; where none is, E[x_i | past] <= s. So within N marked answers the warning is false with a chance of at most
delta + N/H, H being `false_every`. It says nothing of the budget: that a judge marks more answers is not that more are wrong.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamer.calibration.p_values import upper_share
from streamer.risk.states.drawn_bets import MOST_WAITING, Draw, DrawnBets, StateOfBets

SIZES = (40, 60, 200)
"""Known marks of the stable phase at which their rate is bounded."""

URGENT = 40
"""The newest answers that shipped before a gate was held: all of them are to be labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyWarning(StateOfBets):
    """The state of an early warning. Immutable; `observe` returns the next state.

    Attributes
    ----------
    bets : the evidence.
    known, bad : marks of the stable phase, and those of them that are 1; at most 200.
    limit : s; None until 40 marks are known.
    waiting : answers of the stable phase whose mark has not come.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.early-warning.v1"

    bets: DrawnBets
    known: int = 0
    bad: int = 0
    limit: float | None = None
    waiting: tuple[Draw, ...] = ()

    @classmethod
    def open(cls, *, delta: float, false_every: int | None = None) -> "EarlyWarning":
        """Begin with nothing known; it is false with a chance of at most delta, and `false_every` as in `DrawnBets`."""
        return cls(bets=DrawnBets(delta=delta / 2, false_every=false_every))

    @property
    def evidence(self) -> float:
        """The most that any prefix of the marks comes to; 1/bets.delta raises the warning."""
        return self.bets.evidence

    @property
    def raised_at(self) -> int | None:
        """The answer that the bets read, from 1, that raised it; None while it is quiet."""
        return self.bets.raised_at

    @property
    def chance(self) -> float:
        """The most that the chance of a false warning may be within what was read."""
        return min(1.0, self.bets.delta + self.bets.chance(self.bets.seen))

    def observe(
        self,
        marks: Iterable[Draw] = (),
        *,
        known: Mapping[int, float] | None = None,
        overdue: float = -math.inf,
    ) -> "EarlyWarning":
        """Return the state with more answers, and more marks known.

        Parameters
        ----------
        marks : answers that shipped, in order; `loss` is the mark, 0 or 1, and None where it has not come. Limits are not read.
        known : marks by the numbers of answers.
        overdue : an answer of this moment or before waits for its mark no more.
        """
        if self.raised_at is not None:
            return self
        new, given = list(marks), known or {}
        bets = self.bets
        if self.limit is not None:
            draws = [one._replace(limit=self.limit) for one in new]
            bets = bets.after(draws, known=given, overdue=overdue)
        if self.known >= SIZES[-1]:
            return replace(self, bets=bets)
        there = [(one, given.get(one.number, one.loss)) for one in (*self.waiting, *new)]
        told = [mark for _, mark in there if mark is not None][: SIZES[-1] - self.known]
        count, bad = self.known + len(told), self.bad + int(sum(told))
        limit = self.limit
        if any(self.known < size <= count for size in SIZES):
            bound = upper_share(np.array([bad]), np.array([count]), self.bets.delta / len(SIZES))
            limit = min(float(bound[0]), 0.99 if limit is None else limit)
        waiting = [one for one, mark in there if mark is None and one.moment > overdue]
        if count >= SIZES[-1]:
            waiting = []
        return replace(
            self, bets=bets, known=count, bad=bad, limit=limit, waiting=tuple(waiting[-MOST_WAITING:])
        )


def cleared(severities: Iterable[float | None], limit: float) -> bool:
    """Whether people's labels of the newest answers that shipped take a warning back: what has none counts as wrong.

    Parameters
    ----------
    severities : of each answer, in [0, 1]; None without a label.
    limit : the mean severity that is allowed of what ships.
    """
    worst = [1.0 if one is None else one for one in severities]
    return bool(worst) and math.fsum(worst) <= limit * len(worst)
