"""The alarm: has exposure risk ever been above alpha plus a tolerance? A bet against the budget, from audit labels.

With theta = alpha + tolerance and X_i = (S_i/p_i) L_i, the factors 1 + u_j (X_i - theta), u_j = .27 2^-j / theta for
j = 0..6, have mean 1 + u_j (E[L_i | past] - theta) <= 1 as long as every expected loss is at most theta; restarts
every so many decisions keep a late change from being outweighed by the quiet before it (`restarted_bets`).

It promises the chance of a false alarm over all time, which "the estimate is above alpha" does not: in a stable
stream with risk alpha an estimate is above alpha half of the time.

Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (2024).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration.arguments import check_alpha
from streamer.risk.states import json_form
from streamer.risk.states.restarted_bets import RestartedBets

if TYPE_CHECKING:
    from streamer.risk.states.decisions import AuditedDecisions

KIND = "streamer.monitoring.risk-alarm.v1"

_STRENGTHS = np.array([0.27 * 2.0**-j for j in range(7)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskAlarm:
    """The state of the alarm: a few numbers, whatever has been read. Immutable; `observe` returns the next state.

    A label that is overdue counts 0, so that missing labels raise no alarm (`ExposureSequence` counts and shows
    them). A raised alarm stays raised and reads no more. Whoever opens the next one spends its `delta` anew: among n
    alarms opened one after another, at most n delta are false on average. A new policy needs no new alarm.

    Attributes
    ----------
    alpha : the budget on exposure risk, in (0, 1).
    tolerance : how far above it is still accepted, 0 or more, with alpha + tolerance < 1.
    bets : the evidence.
    """

    alpha: float
    tolerance: float
    bets: RestartedBets

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        if not 0 <= self.tolerance < 1 - self.alpha:
            raise ValueError(f"tolerance must be in [0, {1 - self.alpha:.6g}), not {self.tolerance!r}")
        if len(self.bets.stakes) != _STRENGTHS.size:
            raise ValueError(f"the alarm holds {_STRENGTHS.size} bets, not {len(self.bets.stakes)}")

    @classmethod
    def open(
        cls, *, alpha: float, delta: float, tolerance: float | None = None, restart_every: int = 500
    ) -> RiskAlarm:
        """Arm an alarm; nothing has been read.

        Parameters
        ----------
        alpha : the budget on exposure risk, in (0, 1).
        delta : chance of an alarm at any time although no expected loss ever passes alpha + tolerance; in (0, 1).
        tolerance : None takes a fifth of alpha. With 0 a gate that uses its whole budget is on the edge.
        restart_every : decisions from one restart to the next, in 1..1000.
        """
        return cls(
            alpha=alpha,
            tolerance=min(0.2 * check_alpha(alpha), (1 - alpha) / 2) if tolerance is None else tolerance,
            bets=RestartedBets.open(_STRENGTHS.size, delta=delta, restart_every=restart_every),
        )

    @property
    def theta(self) -> float:
        """What is bet against: alpha + tolerance."""
        return self.alpha + self.tolerance

    @property
    def evidence(self) -> float:
        """The e-value so far; 1/delta raises the alarm."""
        return self.bets.evidence

    @property
    def known_evidence(self) -> float:
        """The e-value of the draws whose labels are known."""
        return self.evidence

    @property
    def raised_at(self) -> int | None:
        """Number of the decision, from 1, that raised the alarm; None while it is quiet."""
        return self.bets.raised_at

    def observe(self, decisions: AuditedDecisions) -> RiskAlarm:
        """Return the state after these decisions, which come in the order in which they were made."""
        weighted = decisions.weight * decisions.least_loss
        factors = 1 + np.multiply.outer(weighted - self.theta, _STRENGTHS / self.theta)
        return replace(self, bets=self.bets.after(factors))

    def to_json(self) -> str:
        """Write the state as one JSON object; `from_json` gives it back to the last bit."""
        fields = {"alpha": self.alpha, "tolerance": self.tolerance, "bets": self.bets.to_fields()}
        return json_form.write(KIND, fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> RiskAlarm:
        """Read what `to_json` wrote.

        Raises
        ------
        ValueError
            If `text` is not such an object, or its numbers contradict one another.
        """
        fields = json_form.read(text, KIND)
        return cls(
            alpha=json_form.number(fields, "alpha"),
            tolerance=json_form.number(fields, "tolerance"),
            bets=RestartedBets.from_fields(json_form.inner(fields, "bets"), _STRENGTHS.size),
        )
