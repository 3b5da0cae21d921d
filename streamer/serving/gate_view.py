"""A gate as it is shown to those who ask it."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from streamer.gates.policy import Policy


class PolicyView(
    msgspec.Struct, frozen=True, kw_only=True, rename={"threshold": "lambda"}, omit_defaults=False
):
    """The policy in force."""

    version: int
    state: str
    threshold: float | None
    alpha: float
    method: str
    unit: str
    scorer: str
    encoder: str
    enforced: bool
    hold_action: str
    desk_deadline_seconds: float | None
    valid_from: datetime


class GateView(msgspec.Struct, frozen=True, kw_only=True):
    """A gate: its policy, what that promises, and whether the promise was kept."""

    gate: str
    policy: PolicyView
    promise: Annotated[str | None, Meta(description="In words; null while nothing is promised.")]
    verdict: Annotated[
        str | None, Meta(description="`kept`, `broken` or `not known yet`, while the gate was open.")
    ]
    risk: Annotated[str | None, Meta(description="The same in a sentence, with what it rests on.")]


def gate_view(policy: Policy, verdict: str | None, risk: str | None) -> GateView:
    """Return what is shown of a gate."""
    settings = policy.settings
    return GateView(
        gate=policy.gate,
        policy=PolicyView(
            version=policy.version,
            state=policy.state,
            threshold=policy.threshold,
            alpha=settings.alpha,
            method=settings.method,
            unit=settings.unit,
            scorer=settings.scorer,
            encoder=settings.encoder,
            enforced=settings.mode == "enforce",
            hold_action=settings.hold_action,
            desk_deadline_seconds=settings.desk_deadline_seconds,
            valid_from=policy.valid_from,
        ),
        promise=policy.guarantee or None,
        verdict=verdict,
        risk=risk,
    )
