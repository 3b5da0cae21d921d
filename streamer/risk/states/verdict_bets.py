"""Two bets on what was decided while a gate was open: that its budget is broken, and that it is kept.

Decisions i = 1, 2, ... have losses L_i and a budget of alpha a_i: a_i = 1 where exposure is promised, the share that shipped
where selective risk is. Those that shipped something are drawn with a logged probability p_i; with c no more than any of
these, w_i = c/p_i, and strengths that are fixed beforehand,

    B_k = prod over drawn ones of (1 + l_k w_i (L_i - alpha a_i)) * exp(-l_k c alpha h),    l_k = u_k/alpha,
    K_k = prod over drawn ones of (1 + m_k w_i (alpha a_i - L_i)) * exp(+m_k c alpha h),    m_k = v_k/(1 - alpha),

h counting those of which nothing shipped: they lost nothing, drawn or not (h counts 0 where selective risk is promised).
Broken is said where sum_k of weighted B_k reaches 1/e, kept where the sum of K_k does.

**Promise.** For any sequence of losses: that broken is ever said at a decision up to which sum L_i <= alpha sum a_i, or kept
at one up to which sum L_i >= alpha sum a_i, has a chance of at most e each. Proof in docs/proofs.md.

**Labels that have not come** count 0 in B and the worst in K: both are then at most what they will be. So each may be evaluated
at any decision at any time, and at every one of them again. A corrected label is only ever raised; what K promises is about
labels that nobody raises later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, check_delta, check_positive
from streamer.risk.states.drawn_bets import KEPT, MOST_WAITING
from streamer.risk.states.interval import RiskInterval
from streamer.risk.states.json_form import State

Floats = NDArray[np.float64]

BROKEN = (0.8, 0.45, 0.22, 0.1, 0.045)
"""u_k, of equal weights: those of the alarms on labels."""
KEPT_BY = (0.8, 0.5, 0.25)
"""v_k; .5 is best at half the budget."""
_WEIGHTS = np.log([*(1 / len(BROKEN) for _ in BROKEN), 0.2, 0.6, 0.2])


class Mark(NamedTuple):
    """One decision that shipped something and was drawn.

    `number`, `moment`: its place in the order of decisions, and when it was made, in seconds.
    `weight`: c/p in (0, 1]. `share`: of the drawn responses that shipped, or what a gate of claims
    can lose by those that did, in [0, 1]: its loss is no more. `held`: decisions of which nothing
    shipped, since the mark before. `loss`: in [0, share]; None while it is not known.
    """

    number: int
    moment: float
    weight: float
    share: float
    held: int
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictBets(State):
    """The state of both bets. Immutable; `after` returns the next state.

    Attributes
    ----------
    alpha : the budget, in (0, 1).
    error : e, in (0, 1): the chance that either word is ever false.
    least : c, in (0, 1].
    selective : the budget is on what ships, not on prompts.
    logs : of the five B_k and the three K_k, up to the first decision of `tail`.
    tail : the newest `KEPT` marks, and all from the first on whose label may still come.
    held : decisions of which nothing shipped, since the newest mark.
    decisions, served : all that were read, and those of which something shipped.
    shipped : sum of the shares that shipped.
    labels : marks before `tail` whose loss was known; `lost` and `weighed` sum their w L and w share.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.verdict.v1"

    alpha: float
    error: float
    least: float
    selective: bool
    logs: tuple[float, ...] = (0.0,) * (len(BROKEN) + len(KEPT_BY))
    tail: tuple[Mark, ...] = ()
    held: int = 0
    decisions: int = 0
    served: int = 0
    shipped: float = 0.0
    labels: int = 0
    lost: float = 0.0
    weighed: float = 0.0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_delta(self.error)
        if check_positive("least", self.least) > 1:
            raise ValueError(f"least must be at most 1, not {self.least!r}")
        if len(self.logs) != _WEIGHTS.size or not all(map(math.isfinite, self.logs)):
            raise ValueError(f"logs must be {_WEIGHTS.size} finite numbers, not {self.logs!r}")

    def after(
        self,
        marks: Sequence[Mark] = (),
        *,
        held: int = 0,
        decisions: int = 0,
        served: int = 0,
        shipped: float = 0.0,
        known: Mapping[int, float] | None = None,
        overdue: float = -math.inf,
    ) -> "VerdictBets":
        """Return the state with more decisions, the next in order, and more losses known or raised.

        `held`: decisions of which nothing shipped, after the last of `marks`. `decisions`,
        `served`, `shipped`: how many there are in all, of how many something shipped, and the sum
        of their shares. `known`: losses by number. `overdue`: a mark of this moment or before waits
        for its label no more.
        """
        losses = known or {}
        if marks:
            marks = [marks[0]._replace(held=marks[0].held + self.held), *marks[1:]]
        tail = [_raised(one, losses.get(one.number)) for one in (*self.tail, *marks)]
        waits = (place for place, one in enumerate(tail) if one.loss is None and one.moment > overdue)
        done = max(min(next(waits, len(tail)), len(tail) - KEPT), len(tail) - MOST_WAITING, 0)
        gone = [one for one in tail[:done] if one.loss is not None]
        return replace(
            self,
            logs=tuple((np.array(self.logs) + self._steps(tail[:done]).sum(axis=0)).tolist()),
            tail=tuple(tail[done:]),
            held=held + (0 if marks else self.held),
            decisions=self.decisions + decisions,
            served=self.served + served,
            shipped=self.shipped + shipped,
            labels=self.labels + len(gone),
            lost=self.lost + math.fsum(one.weight * (one.loss or 0.0) for one in gone),
            weighed=self.weighed + math.fsum(one.weight * one.share for one in gone),
        )

    def says(self, since: float) -> Literal["kept", "broken"] | None:
        """Return what may be said of the decisions up to one that was made `since` then, in
        seconds, or later, or up to the last.
        """
        ends = np.vstack([self._steps(self.tail), self._held(self.held)[None]])
        logs = np.array(self.logs) + ends.cumsum(axis=0) + _WEIGHTS
        recent = np.array([one.moment >= since for one in self.tail] + [True])
        level = -math.log(self.error)
        for word, part in (("broken", logs[:, : len(BROKEN)]), ("kept", logs[:, len(BROKEN) :])):
            if (np.logaddexp.reduce(part[recent], axis=1) >= level).any():
                return word  # type: ignore[return-value]
        return None

    @property
    def nothing_read(self) -> RiskInterval:
        """What is known of no decision."""
        return RiskInterval(
            decisions=0, labels=0, overdue=0, estimate=None, lower=0.0, upper=1.0, delta=2 * self.error
        )

    @property
    def labelled(self) -> int:
        """Drawn decisions that shipped something and have their labels."""
        return self.labels + sum(one.loss is not None for one in self.tail)

    @property
    def selective_risk(self) -> float | None:
        """The error rate among what shipped, estimated from the labels that are there; None without any."""
        there = [one for one in self.tail if one.loss is not None]
        weighed = self.weighed + math.fsum(one.weight * one.share for one in there)
        lost = self.lost + math.fsum(one.weight * (one.loss or 0.0) for one in there)
        return lost / weighed if weighed else None

    def _steps(self, marks: Sequence[Mark]) -> Floats:
        """What each mark, with the held ones before it, adds to the logs: shape (n, 8)."""
        if not marks:
            return np.zeros((0, _WEIGHTS.size))
        weight, share, held = (
            np.array([one[place] for one in marks], dtype=np.float64) for place in (2, 3, 4)
        )
        least = np.array([one.loss or 0.0 for one in marks])
        most = np.array([one.share if one.loss is None else one.loss for one in marks])
        budget = self.alpha * (share if self.selective else 1.0)
        bad, good = weight * (least - budget), weight * (budget - most)
        rates = self._rates
        won = np.hstack(
            [np.multiply.outer(bad, rates[: len(BROKEN)]), np.multiply.outer(good, rates[len(BROKEN) :])]
        )
        found: Floats = np.log1p(won) + self._held(held)
        return found

    def _held(self, held: Floats | int) -> Floats:
        signs = np.array([-1.0] * len(BROKEN) + [1.0] * len(KEPT_BY))
        unit = 0.0 if self.selective else self.least * self.alpha
        found: Floats = np.multiply.outer(np.asarray(held, dtype=np.float64), signs * self._rates * unit)
        return found

    @property
    def _rates(self) -> Floats:
        return np.array([*(u / self.alpha for u in BROKEN), *(v / (1 - self.alpha) for v in KEPT_BY)])


def _raised(one: Mark, loss: float | None) -> Mark:
    if loss is None or (one.loss is not None and loss <= one.loss):
        return one
    return one._replace(loss=min(loss, one.share))
