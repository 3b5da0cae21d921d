"""Is the audit sample drawn with the probabilities that are logged? Everything else here rests on it.

The factors are likelihood ratios of another probability against the logged one, q_i/p_i where a decision was drawn and
(1 - q_i)/(1 - p_i) where not, with the odds of q_i those of p_i times 1/2, 4/5, 5/4 or 2. Their mean is 1 if
p_i is right. It sees a wrong frequency of draws; it does not see draws that follow the answers at the right frequency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamer.risk.states.decisions import AuditedDecisions
from streamer.risk.states.json_form import Evidence
from streamer.risk.states.restarted_bets import RestartedBets

_ODDS = np.array([0.5, 0.8, 1.25, 2.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawAlarm(Evidence):
    """The state of an alarm on wrong logged probabilities. Immutable; `observe` returns the next
    state.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.draw-alarm.v1"

    bets: RestartedBets

    def __post_init__(self) -> None:
        if len(self.bets.stakes) != _ODDS.size:
            raise ValueError(f"the alarm holds {_ODDS.size} bets, not {len(self.bets.stakes)}")

    @classmethod
    def open(cls, *, delta: float, restart_every: int = 500) -> DrawAlarm:
        """Arm an alarm that is raised with probability `delta` at most, ever, while the probabilities are right."""
        return cls(bets=RestartedBets.open(_ODDS.size, delta=delta, restart_every=restart_every))

    def observe(self, decisions: AuditedDecisions) -> DrawAlarm:
        """Return the state after these decisions, which come in the order in which they were made."""
        # Odds o p/(1 - p) make q/p = o/(1 - p + o p) and (1 - q)/(1 - p) = 1/(1 - p + o p), also for p = 1.
        rest = 1 - decisions.probability[:, None] + np.multiply.outer(decisions.probability, _ODDS)
        return replace(self, bets=self.bets.after(np.where(decisions.sampled[:, None], _ODDS, 1.0) / rest))
