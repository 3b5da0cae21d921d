"""What was decided while a gate was open: the share served, the error rate among it, and exposure risk with its bounds.

A decision that ships nothing lost nothing, drawn or not. So only decisions that shipped something are read by the interval
(`ExposureSequence`, with t' of them and shipped shares A): with bounds [l, u] on their summed loss

    selective risk in [l, u]/A,    exposure risk in [l, u]/t,    t' <= t decisions while the gate was open,

at all times at once. What ships is fixed before the draw, so leaving out the rest is no choice by labels; and exposure risk
is at most the share that shipped, which is counted, not estimated. Decisions under a closed gate are not given at all: a
closed phase of any length changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from streamer.calibration.arguments import whole_number
from streamer.risk.states.decisions import AuditedDecisions
from streamer.risk.states.exposure import ExposurePlan, ExposureSequence
from streamer.risk.states.interval import RiskInterval
from streamer.risk.states.json_form import State


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTime(State):
    """The state: a few numbers, whatever has been read. Immutable; `observe` returns the next state.

    `served`: the decisions that shipped something. `decisions`: all decisions that were read, those
    that shipped nothing included. `answers`: shipped answers with a label.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.open-time.v1"

    served: ExposureSequence
    decisions: int = 0
    answers: int = 0

    def __post_init__(self) -> None:
        whole_number("decisions", self.decisions, least=self.served.decisions)
        whole_number("answers", self.answers, least=0)

    @classmethod
    def begin(cls, plan: ExposurePlan) -> OpenTime:
        """Begin with nothing read."""
        return cls(served=ExposureSequence(plan=plan))

    @property
    def share_served(self) -> float | None:
        """Share of prompts of which something shipped: counted, so exact; None before the first decision."""
        return self.served.decisions / self.decisions if self.decisions else None

    def observe(self, decisions: AuditedDecisions, *, answers: int) -> OpenTime:
        """Return the state after these decisions, the next in order; it does not depend on how they are cut into pieces.

        `decisions`: made while the gate was open. `answers`: of their shipped answers, those with a
        label. Raises `ValueError` if a logged probability is below the plan's least one.
        """
        return replace(
            self,
            served=self.served.observe(decisions.where(decisions.shipped > 0)),
            decisions=self.decisions + len(decisions),
            answers=self.answers + answers,
        )

    def selective(self) -> RiskInterval:
        """Return the interval of selective risk: the error rate among what shipped; without a label there is no estimate."""
        found = replace(self.served.selective(), decisions=self.decisions)
        return found if self.answers else replace(found, estimate=None)

    def exposure(self) -> RiskInterval:
        """Return the interval of exposure risk; it fails together with the other or not at all."""
        found = self.selective()
        if not self.decisions:
            return found
        share = self.served.shipped / self.decisions
        estimate = None if found.estimate is None else share * found.estimate
        if not share:
            estimate = 0.0
        return replace(found, estimate=estimate, lower=share * found.lower, upper=share * found.upper)
