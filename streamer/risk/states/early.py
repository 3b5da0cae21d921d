"""An early warning: is a cheap mark of what ships bad more often since some moment than before?

Answers that shipped have marks x_1, x_2, ..., 0 or 1, in the order in which they became known. A
change may have come after c_k = r (k + 1) of them, k = 1, 2, ..., r = 10; it has the weight w_k +
rho of the k-th restart in `drawn_bets`. With L_p for the likelihood of independent marks at the
rate p, its mean over p ~ Beta(1/2, 3) for those before the change, and for those since the rates
s_j whose log odds are a_j = .75, 1.5, 2, 3 above those of what came before, with weights v_j of
.1, .3, .3, .3,

    E_t = sum_{c_k < t} (w_k + rho) E_p[L_p(x_1 .. x_c)] sum_j v_j L_{s_j}(x_(c+1) .. x_t)
          / max_p L_p(x_1 .. x_t),    c = c_k,

where what came before counts as (b + 1/2)/(c + 1), b of the first c marks being 1. 1/delta raises
the warning.

**Promise.** If marks come independently at one rate p, none sooner or later for what it says, each
term with L_p in place of its maximum is a nonnegative martingale that begins at its weight, and no
smaller: s_j is fixed before the marks that it is about. So by Ville's inequality the warning is
false within N marked answers with a chance of at most delta (1 + rho ceil(N/r)), about delta +
N/H, whatever p is: nothing has to be known of the stable phase. It says nothing of the budget:
that a judge marks more answers is not that more are wrong.

Source: Wasserman, Ramdas and Balakrishnan, Universal inference (2020); Shin, Ramdas and Rinaldo,
E-detectors (2024).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.risk.states import json_form
from streamer.risk.states.drawn_bets import MOST_WAITING, RESTART_EVERY, Draw, Promise, restart_weight

FIRST = 2 * RESTART_EVERY
"""Marks before the first change that is looked for."""

MOST_CHANGES = 60
"""The newest possible changes that are kept: one that was not seen in 600 marks is a small one."""

URGENT = 40
"""The newest answers that shipped before a gate was held: all of them are to be labelled."""

_BETA = (0.5, 3.0)
_RISES, _WEIGHTS = np.array([0.75, 1.5, 2.0, 3.0]), np.array([0.1, 0.3, 0.3, 0.3])

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkBets(Promise):
    """The evidence so far. Immutable; once raised it stays as it was then.

    `known`, `bad`: marks read, and those of them that are 1. `changes`: the newest moments of a
    possible change, in order: c, and how many of the first c marks are 1. `evidence`: E after the
    last mark; 1/delta raises the warning. `raised_at`: the mark, from 1, that raised it; None while
    it is quiet. `raised_by`: the number of its answer.
    """

    known: int = 0
    bad: int = 0
    changes: tuple[tuple[int, int], ...] = ()
    evidence: float = 0.0
    raised_at: int | None = None
    raised_by: int | None = None

    @property
    def seen(self) -> int:
        """Marks read."""
        return self.known

    @property
    def rise(self) -> tuple[int, float, float]:
        """The change that divides the marks most clearly: c, and the rates before and since."""
        before, bad = np.array(self.changes).T
        since = self.known - before
        rates = np.stack([bad / before, (self.bad - bad) / since])
        most = int(np.argmax((rates[1] - rates[0]) * np.sqrt(before * since)))
        return int(before[most]), *rates[:, most].tolist()

    def after(self, marks: Sequence[tuple[int, float]]) -> "MarkBets":
        """Return the state after more marks, the same however they are cut into pieces: each an
        answer's number and 0 or 1, as they became known.
        """
        bets, at = self, 0
        while at < len(marks) and bets.raised_at is None:
            gap = bets.known % RESTART_EVERY
            if bets.known >= FIRST and not gap:
                changes = (*bets.changes, (bets.known, bets.bad))[-MOST_CHANGES:]
                bets = replace(bets, changes=changes)
            piece = marks[at : at + RESTART_EVERY - gap]
            bets, at = bets._read(piece), at + len(piece)
        return bets

    def _read(self, marks: Sequence[tuple[int, float]]) -> "MarkBets":
        known = self.known + np.arange(1, len(marks) + 1)
        bad = self.bad + np.cumsum([mark for _, mark in marks])
        path = self._path(known, bad)
        reached = np.flatnonzero(path >= 1 / self.delta)
        last = int(reached[0]) if reached.size else len(marks) - 1
        bets = replace(self, known=int(known[last]), bad=int(bad[last]), evidence=float(path[last]))
        return replace(bets, raised_at=bets.known, raised_by=marks[last][0]) if reached.size else bets

    def _path(self, known: Any, bad: Any) -> Floats:
        """E after so many marks, all of them behind the newest possible change."""
        if not self.changes:
            return np.zeros(len(known))
        from scipy.special import betaln  # slow to import, and few gates need it

        c, c_bad = np.array(self.changes).T
        weights = [restart_weight((one - FIRST) // RESTART_EVERY + 1) + self.inflow for one in c.tolist()]
        before = betaln(c_bad + _BETA[0], c - c_bad + _BETA[1]) - betaln(*_BETA)
        odds = np.log((c_bad + 0.5) / (c - c_bad + 0.5))[:, None] + _RISES
        since, since_bad = known[:, None] - c, bad[:, None] - c_bad
        # ln L_s: shape (marks, changes, rates)
        logs = since_bad[..., None] * odds - since[..., None] * np.logaddexp(0.0, odds)
        logs += (before - _highest(known, bad)[:, None])[..., None]
        path: Floats = (weights * (np.exp(logs) * _WEIGHTS).sum(axis=-1)).sum(axis=-1)
        return path


def _highest(known: Any, bad: Any) -> Floats:
    """The log-likelihood at the rate that fits best."""
    shares = np.stack([bad / known, 1 - bad / known])
    found: Floats = known * np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyWarning(json_form.Evidence):
    """The state of an early warning. Immutable; `observe` returns the next state.

    `bets`: the evidence. `waiting`: answers whose mark has not come.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.early-warning.v1"

    bets: MarkBets
    waiting: tuple[Draw, ...] = ()

    @classmethod
    def open(cls, *, delta: float, false_every: int | None = None) -> "EarlyWarning":
        """Begin with nothing known; it is false with a chance of at most delta, and `false_every` as in `DrawnBets`."""
        return cls(bets=MarkBets(delta=delta, false_every=false_every))

    def observe(
        self,
        marks: Iterable[Draw] = (),
        *,
        known: Mapping[int, float] | None = None,
        overdue: float = -math.inf,
    ) -> "EarlyWarning":
        """Return the state with more answers, and more marks known.

        `marks`: answers that shipped, in order; `loss` is the mark, 0 or 1, and None where it has
        not come. Limits are not read. `known`: marks by the numbers of answers; the first of an
        answer counts. `overdue`: an answer of this moment or before waits for its mark no more.
        """
        if self.raised_at is not None:
            return self
        given = known or {}
        there = [(one, given.get(one.number, one.loss)) for one in (*self.waiting, *marks)]
        bets = self.bets.after([(one.number, mark) for one, mark in there if mark is not None])
        waiting = [one for one, mark in there if mark is None and one.moment > overdue]
        return replace(self, bets=bets, waiting=tuple(waiting[-MOST_WAITING:]))


def cleared(severities: Iterable[float | None], limit: float) -> bool:
    """Whether people's labels of the newest answers that shipped, severities in [0, 1], take a
    warning back: what has none counts as wrong.

    `limit` is the mean severity that is allowed of what ships.
    """
    worst = [1.0 if one is None else one for one in severities]
    return bool(worst) and math.fsum(worst) <= limit * len(worst)
