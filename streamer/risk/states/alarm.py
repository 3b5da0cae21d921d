"""Two alarms on audit labels. Exposure: is the expected harm of a decision above alpha plus a tolerance? Selective risk:
is what ships no better than if everything shipped?

Both bet on the decisions that the audit sample took while the gate could ship (`drawn_bets`); everything else, a closed
phase of any length above all, changes no bit of their states.

**Exposure.** x_i = L_i, the loss of the decision, 0 where it was held; the limit is theta = alpha + tolerance, the share 1.
As long as no decision has an expected loss above theta, given the past, E[x_i | past] <= theta.

**Selective risk.** Of the decisions that shipped something: x_i is the mean over the drawn responses of severity where
shipped and 0 where held, the share w_i is that of the drawn responses that shipped, and x_i - s_i w_i = w_i (sev_i - s_i)
with sev_i the mean severity of those. What shipped is known when the decision is made, before any label; so is the limit
s_i, which the policy in force brings. So to choose the draws that shipped something, and to bet on each by its own limit,
are choices by the past, and as long as E[w_i (sev_i - s_i) | past, what shipped] <= 0 for each of them, a bet does not win on
average. Where at most one thing ships, w_i = 1 and that says: the expected severity of what ships is at most s_i.

Neither says that the present estimate is above a limit, which in a stable stream at the limit happens half of the time.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from streamer.calibration.arguments import check_alpha
from streamer.risk.states.drawn_bets import Draw, DrawnBets, StateOfBets


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAlarm(StateOfBets):
    """An alarm on labels: a few numbers and the draws that wait for a label. Immutable.

    Whoever opens the next one spends its `delta` again. A new policy needs no
    new alarm.

    `bets`: the evidence.
    """

    bets: DrawnBets

    @property
    def known_evidence(self) -> float:
        """The present evidence of the draws whose loss is known; the others are left out."""
        return self.bets.known_evidence

    def observe(
        self,
        draws: Iterable[Draw] = (),
        *,
        known: Mapping[int, float] | None = None,
        overdue: float = -math.inf,
    ) -> Self:
        """Return the state with more draws and more losses known; see `DrawnBets.after`."""
        return replace(self, bets=self.bets.after(draws, known=known, overdue=overdue))


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskAlarm(LabelAlarm):
    """The alarm on exposure risk above the budget `alpha`, in (0, 1), by more than `tolerance` >=
    0, alpha + tolerance < 1.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.risk-alarm.v1"

    alpha: float
    tolerance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        if not 0 <= self.tolerance < 1 - self.alpha:
            raise ValueError(f"tolerance must be in [0, {1 - self.alpha:.6g}), not {self.tolerance!r}")

    @classmethod
    def open(
        cls, *, alpha: float, delta: float, tolerance: float | None = None, false_every: int | None = None
    ) -> "RiskAlarm":
        """Arm an alarm; nothing has been read.

        `alpha`: the budget on exposure risk, in (0, 1). `delta`: in (0, 1); see `DrawnBets.chance`
        for what it promises. `tolerance`: None takes a fifth of alpha. With 0 a gate that uses its
        whole budget is on the edge. `false_every`: H, draws for which one false alarm more is
        accepted; None: none, ever.
        """
        return cls(
            alpha=alpha,
            tolerance=min(0.2 * check_alpha(alpha), (1 - alpha) / 2) if tolerance is None else tolerance,
            bets=DrawnBets(delta=delta, false_every=false_every),
        )

    @property
    def theta(self) -> float:
        """What is bet against: alpha + tolerance."""
        return self.alpha + self.tolerance

    def draw(self, number: int, loss: float | None = None, *, moment: float = 0.0) -> Draw:
        """A decision of an open phase that was drawn, as this alarm bets on it; a loss of None is not known yet."""
        return Draw(number, self.theta, 1.0, loss, moment)

    def draw_due(
        self,
        number: int,
        loss: float | None = None,
        *,
        moment: float,
        lag: float,
        share: float,
        most: float = 1.0,
    ) -> Draw:
        """The same as the alarm on missing labels bets on it: half on its loss, half on that it has none after the label lag.

        `share` : of the decisions, whose labels may be missing then; `most` : the loss that the missing ones can bring.
        """
        limit = min(2 * self.theta, (1 + self.theta) / 2)
        return Draw(number, limit, 1.0, loss, moment, most * (limit - self.theta) / share, lag)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveAlarm(LabelAlarm):
    """The alarm on selective risk; each draw brings its own limit."""

    json_kind: ClassVar[str] = "streamer.monitoring.selective-alarm.v1"

    @classmethod
    def open(cls, *, delta: float, false_every: int | None = None) -> "SelectiveAlarm":
        """Arm an alarm; nothing has been read."""
        return cls(bets=DrawnBets(delta=delta, false_every=false_every))
