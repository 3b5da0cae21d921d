"""The topic `alerts`, out: what needs attention, and how soon. One event per alert; the key is the gate."""

import math
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.codec import Event, Reader
from streamer.events.identifiers import GateName, about, check_name
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.outgoing import event_id, event_message
from streamer.events.topic import Topic
from streamer.journal import OutboxMessage

SCHEMA: Final = "streamer.alerts.v1"

ALERT_NAMESPACE: Final = uuid.UUID("d0a0f6f5-6b0e-4f0a-9b9e-3a1d9b7a54c1")
"""The namespace of alert ids; it must never change."""

AlarmKind = Literal["risk", "selective", "missing", "early", "draws", "drift_scores", "drift_cloud"]
ALARMS: Final[tuple[AlarmKind, ...]] = get_args(AlarmKind)
"""What the recalibrator's watch raises alarms on, by what they mean for who is woken: the worst first."""
AlertKind = Literal[
    AlarmKind, "policy_refused", "large_step", "gate_closed", "no_signing_key", "labels_not_at_random"
]
Level = Literal["page", "ticket"]

LEVELS: Final[Mapping[AlertKind, Level]] = {
    "risk": "page",
    "selective": "page",
    "missing": "page",
    "early": "page",
    "draws": "page",
    "drift_scores": "ticket",
    "drift_cloud": "ticket",
    "policy_refused": "page",
    "large_step": "ticket",
    "gate_closed": "ticket",
    "no_signing_key": "page",
    "labels_not_at_random": "ticket",
}
"""How soon somebody should look: at once (`page`), or in working hours (`ticket`)."""

OTHER_CAUSES: Final[Mapping[AlertKind, str]] = {
    "draws": "draws",
    "policy_refused": "policies",
    "no_signing_key": "policies",
}
"""What an alert is about, where that is not the gate's answers: open alerts of one gate and cause are one incident."""

MEANINGS: Final[Mapping[AlertKind, str]] = {
    "risk": "The labels of the audit sample say that expected exposure risk passed the budget and its tolerance.",
    "selective": "The labels of the audit sample say that what ships is no better than if everything shipped.",
    "missing": "So many labels of drawn answers stay missing that the budget may be broken by what nobody labels.",
    "early": "A cheap mark of what ships is bad more often than it was: the gate is held until people's labels clear it.",
    "draws": "The audit sample is not drawn at the rate that is logged; until that is explained, no risk figure holds.",
    "drift_scores": "Scores no longer come from where those of calibration came from.",
    "drift_cloud": "Embeddings no longer come from where those of calibration came from.",
    "policy_refused": "A worker refused a policy and continues with the last good one.",
    "large_step": "A recalibration moved a threshold further than the limit for one step.",
    "gate_closed": "A gate was closed by the program: it ships nothing until it is recalibrated.",
    "no_signing_key": "The recalibrator has no key to sign policies with: no alarm can close the gate.",
    "labels_not_at_random": "Labels are missing more often at some scores, or from some labeller, than from others.",
}

Detail = float | int | str | None


class AlertsV1(Event, frozen=True, gc=False, kw_only=True):
    """One alert. The same cause always has the same `alert_id`, so that it is reported once however often it is found.

    `message` says in words what happened and what to do; `details` has the numbers that it speaks of.
    """

    schema: Literal["streamer.alerts.v1"]
    alert_id: str
    gate: GateName
    kind: AlertKind
    level: Annotated[Level, about("`page`: look at once. `ticket`: look in working hours.")]
    message: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 2000})]
    details: dict[str, Detail] = msgspec.field(default_factory=dict)
    policy_version: Annotated[
        int | None, about("The policy in force when it was raised, as far as it bears on it.")
    ] = None
    raised_at: Annotated[datetime, Meta(tz=True)]

    def __post_init__(self) -> None:
        super().__post_init__()
        # The writer would silently write null for a number that is not finite.
        for name, value in self.details.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"the detail {name} must be finite, not {value!r}")


_reader = Reader(AlertsV1, SCHEMA)


def alert(
    gate: str,
    kind: AlertKind,
    cause: str,
    *,
    message: str,
    raised_at: datetime,
    details: Mapping[str, Detail] | None = None,
    policy_version: int | None = None,
) -> AlertsV1:
    """Make an alert.

    The same `cause` within a gate and kind is the same alert, and is reported once, for example
    ``alarm 3``, or ``version 7``. `message`, 1 to 2,000 characters for people, says what happened
    and what to do; `details` are the numbers and words that it speaks of, finite. `raised_at` has a
    zone.
    """
    return AlertsV1(
        schema=SCHEMA,
        alert_id=event_id(ALERT_NAMESPACE, gate, kind, cause),
        gate=gate,
        kind=kind,
        level=LEVELS[kind],
        message=message,
        details=dict(details or {}),
        policy_version=policy_version,
        raised_at=raised_at,
    )


def decode_alert(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> AlertsV1:
    """Read an alert.

    Raises `BadMessage` with a code of `streamer.events.codes`; nothing else is raised, whatever the
    bytes are.
    """
    event = _reader.read_whole(value, limits)
    check_name("gate", event.gate)
    if not 0 < len(event.message) <= 2000:
        raise BadMessage(codes.INVALID_FIELD, "a message has 1 to 2000 characters")
    return event


def alert_message(event: AlertsV1, *, topic: str) -> OutboxMessage:
    """Make the message that publishes an alert; its key is the gate."""
    return event_message(
        event,
        topic=topic,
        key=event.gate.encode(),
        source=f"gate:{event.gate}",
        id=event.alert_id,
        subject=event.kind,
        time=event.raised_at,
    )


SPECIFICATION = Topic(
    name="alerts",
    place=50,
    says="What somebody should look at, and how soon",
    key="the gate",
    event=AlertsV1,
    decode=decode_alert,
    line=lambda event, _: [
        event["gate"],
        event["level"],
        event["kind"],
        event["alert_id"][:8],
        event["message"],
    ],
)
