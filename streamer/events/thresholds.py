"""The topic `thresholds`, out, compacted by gate: the policy that a gate decides with."""

from __future__ import annotations

import math
import uuid
from dataclasses import fields
from datetime import datetime  # noqa: TC003 - the decoder resolves annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from streamer.calibration.guarantee import budget
from streamer.calibration.threshold import ThresholdState  # noqa: TC001 - the decoder resolves annotations
from streamer.errors import BadMessage
from streamer.events import codes, json_structure
from streamer.events.codec import Event, Reader
from streamer.events.excerpts import one_line
from streamer.events.identifiers import GateName, check_name
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.outgoing import event_id, event_message
from streamer.events.topic import Topic, bound_text
from streamer.gates.policy import Policy
from streamer.gates.rule import RuleKind, rule_from_json, rule_to_json
from streamer.gates.setting_ranges import DIMENSIONS, MOST_BOOST
from streamer.gates.settings import (
    FLAT_NAMES,
    Embeddings,
    GateSettings,
    HoldAction,
    Mode,
    OnAlarm,
    Pending,
    Recalibrate,
    SegmentFallback,
    Unit,
)
from streamer.scoring.plugins import LONGEST as LONGEST_MODEL

if TYPE_CHECKING:
    from streamer.journal import OutboxMessage
    from streamer.signing.policies import PolicySignature

SCHEMA: Final = "streamer.thresholds.v1"

THRESHOLD_NAMESPACE: Final = uuid.UUID("ac9f8185-3332-44d9-9811-bc50a119c60f")
"""The namespace of the ids of threshold events; it must never change."""


class RuleV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How lambda is to be read.

    `indicator`: ship iff the score is above lambda. `smooth`, `ramp`: ship iff the randomised score is, of `width`.
    `quantile`: the same as `indicator`; lambda is where the frozen distribution passes `quantile`. `rank`: ship iff the
    share of the batch that scores strictly less is above lambda. `transductive`: each batch has a lambda of its own, from
    `curve`; the policy's is the strictest. `segments`: `own` has state and lambda by the value of the metadata key `key`;
    the policy's serve every other. `full`: state `full` and no lambda; what ships looks better, by
    all signals, than all but `allowed` less one of the `groups` calibration prompts that were bad, of each of `fits`; `rows` is
    the SHA-256 of these prompts, which are in the database.
    """

    kind: RuleKind
    parameters: dict[str, Any] = {}
    curve: (
        Annotated[
            tuple[tuple[float | None, float], ...],
            Meta(
                description="Points (level, summed loss from this level on), for `transductive`; a level of null is "
                "below every score. At most 256 KiB."
            ),
        ]
        | None
    ) = None


class ThresholdsV1(Event, frozen=True, gc=False, kw_only=True, rename={"threshold": "lambda"}):
    """A gate's whole policy. `version` only grows within a gate; a rollback writes a new one.

    In Python the JSON name `lambda` is `threshold`. The event says that a policy exists; workers read the
    policy itself from the database.
    """

    schema: Literal["streamer.thresholds.v1"]
    gate: GateName
    version: Annotated[int, Meta(ge=1)]
    gate_revision: Annotated[int, Meta(ge=1)]
    state: ThresholdState
    threshold: Annotated[float | None, Meta(description="Null unless the state is `cut`.")]
    calibrated: bool
    rule: RuleV1
    unit: Unit
    scorer: str
    model: (
        Annotated[
            str,
            Meta(
                extra_json_schema={"maxLength": LONGEST_MODEL},
                description="What is frozen of another package's scorer (`NAME@HASH`), as JSON; null: the scorer is none.",
            ),
        ]
        | None
    ) = None
    signals: (
        Annotated[
            str,
            Meta(
                extra_json_schema={"maxLength": 20_000},
                description="The list of signals that decisions keep, as JSON; null: none.",
            ),
        ]
        | None
    ) = None
    encoder: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})]
    embeddings: Annotated[
        Embeddings,
        Meta(description="Whether a batch that brings embeddings of `encoder` is decided by them, or held."),
    ] = "refuse"
    dimension: (
        Annotated[
            int,
            Meta(ge=DIMENSIONS[0], le=DIMENSIONS[1], description="Of the embeddings that are accepted."),
        ]
        | None
    ) = None
    upstream: (
        Annotated[
            str,
            Meta(
                extra_json_schema={"minLength": 10, "maxLength": 200},
                description="The upstream whose answers the gate decides about; null: answers of any origin.",
            ),
        ]
        | None
    ) = None
    severity_kind: GateName
    labellers: (
        Annotated[tuple[str, ...], Meta(description="Whose labels are read; null: everybody's.")] | None
    ) = None
    signed_labels: Annotated[bool, Meta(description="Whether only signed labels are read.")] = False
    alpha: Annotated[float, Meta(gt=0, lt=1, description="The budget on exposure risk.")]
    method: str
    eta: Annotated[float, Meta(gt=0)]
    draws: Annotated[int, Meta(ge=1)]
    delta: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    rho: Annotated[float, Meta(gt=0, le=1)] = 0.99
    shape: str = "indicator"
    width: Annotated[float, Meta(gt=0, le=100)] = 0.05
    parameters: (
        Annotated[
            dict[str, int | float],
            Meta(description="Parameters of method and shape that have no field of their own; null: none."),
        ]
        | None
    ) = None
    segment_by: str | None = None
    group_by: str | None = None
    judged: str = "whole@1"
    segment_fallback: SegmentFallback = "closed"
    label_floor: Annotated[float, Meta(ge=0, le=1)] | None = None
    hold_action: HoldAction
    desk_deadline_seconds: (
        Annotated[
            float,
            Meta(
                ge=1, description="How long a batch that is held by escalate waits for a person; null: not."
            ),
        ]
        | None
    ) = None
    max_attempts: Annotated[int, Meta(ge=1, le=1000)]
    mode: Mode
    audit_probability: Annotated[float, Meta(ge=0, le=1)]
    audit_draws: Annotated[int, Meta(ge=1, le=256)]
    audit_boost: (
        Annotated[
            float,
            Meta(gt=1, le=MOST_BOOST, description="Times the audit probability in doubt; null: never."),
        ]
        | None
    ) = None
    audit_boost_most: Annotated[
        int, Meta(ge=1, le=1_000_000_000, description="Labels a day that this may ask for.")
    ] = 400
    label_deadline_seconds: Annotated[float, Meta(ge=0)]
    pending: Pending = "age"
    window: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    decision_deadline_seconds: Annotated[float, Meta(gt=0)] | None
    keep_texts: bool = True
    two_people: Annotated[
        bool, Meta(description="Whether what a person proposes needs another one, who has signed in.")
    ] = False
    recalibrate: Recalibrate = "propose"
    recalibrate_every_seconds: Annotated[float, Meta(gt=0)] | None = 86_400.0
    recalibrate_after_groups: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = 100
    max_lambda_step: Annotated[float, Meta(gt=0, le=1)] = 0.1
    max_ship_rate_step: Annotated[float, Meta(gt=0, le=1)] = 0.1
    least_groups: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100
    on_alarm: OnAlarm = "close"
    on_selective_alarm: OnAlarm = "report"
    monitor_delta: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    alarm_delta: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    alarm_false_every: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    alarm_tolerance: Annotated[float, Meta(ge=0, le=10)] = 0.2
    monitor_deadline_seconds: Annotated[float, Meta(ge=0)] = 86_400.0
    budget_period_days: Annotated[float, Meta(gt=0, le=3660)] = 30.0
    drift_delta: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    judge_kind: GateName | None = None
    calibration_run: int | None
    seed: int
    valid_from: Annotated[datetime, Meta(tz=True)]
    guarantee: str
    created_by: str
    reason: str
    signature: (
        Annotated[str, Meta(description="Base64 of an Ed25519 signature; see docs/security.md.")] | None
    ) = None
    key_id: Annotated[str, Meta(description="SHA-256 of the public key, in hexadecimal.")] | None = None
    record_id: (
        Annotated[str, Meta(description="Which record the signature is for, in hexadecimal.")] | None
    ) = None
    audit_salt: (
        Annotated[str, Meta(description="Commitment to the gate's audit salt, which the signature covers.")]
        | None
    ) = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # The writer would silently write null for a number that is not finite.
        values = (getattr(self, name) for name in self.__struct_fields__)
        if not all(
            math.isfinite(value)
            for value in (*values, *(self.parameters or {}).values())
            if isinstance(value, float)
        ):
            raise ValueError("numbers of a policy must be finite")


_reader = Reader(ThresholdsV1, SCHEMA)

_AS_IN_POLICY = tuple(
    field.name for field in fields(Policy) if field.name not in ("settings", "rule", "losses", "bursts")
)


def threshold_event(policy: Policy, signature: PolicySignature | None = None) -> ThresholdsV1:
    """Say a policy as an event, with its signature if it has one; `policy_from_event` is the way back."""
    return ThresholdsV1(
        schema=SCHEMA,
        rule=msgspec.convert(rule_to_json(policy.rule), RuleV1),
        signature=None if signature is None else signature.value,
        key_id=None if signature is None else signature.key_id,
        record_id=None if signature is None else signature.record,
        audit_salt=None if signature is None else signature.audit_salt,
        **{name: getattr(policy, name) for name in _AS_IN_POLICY},
        **policy.settings.flat(),
    )


def policy_from_event(event: ThresholdsV1) -> Policy:
    """Build the policy that an event speaks of.

    Raises
    ------
    BadMessage
        ``invalid_field``, when the parts contradict each other, for example a closed policy with a threshold.
    """
    try:
        return Policy(
            settings=GateSettings(**{name: getattr(event, name) for name in FLAT_NAMES}),
            rule=rule_from_json(msgspec.to_builtins(event.rule)),
            **{name: getattr(event, name) for name in _AS_IN_POLICY},
        )
    except ValueError as error:
        raise BadMessage(codes.INVALID_FIELD, one_line(str(error))) from None


def decode_threshold(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> ThresholdsV1:
    """Read a threshold event. A tombstone, as compaction leaves one, is a bad message too: keep the last good.

    Raises
    ------
    BadMessage
        With a code of `streamer.events.codes`; nothing else is raised, whatever the bytes are.
    """
    event = _reader.read_whole(value, limits)
    check_name("gate", event.gate)
    if event.rule.curve is not None:
        size = len(msgspec.json.encode(event.rule.curve))
        if size > limits.max_curve_bytes:
            raise BadMessage(
                codes.INVALID_FIELD,
                f"the rule's curve has {size} bytes, at most {limits.max_curve_bytes} are allowed",
            )
    json_structure.survey(event.rule.parameters, limits.max_depth - 2, "$.rule.parameters")
    return event


def threshold_message(event: ThresholdsV1, *, topic: str) -> OutboxMessage:
    """Make the message that publishes a policy; its key is the gate."""
    return event_message(
        event,
        topic=topic,
        key=event.gate.encode(),
        source=f"gate:{event.gate}",
        id=event_id(THRESHOLD_NAMESPACE, event.gate, event.version),
        subject=event.gate,
        time=event.valid_from,
    )


SPECIFICATION = Topic(
    name="thresholds",
    place=40,
    says="The newest policy of each gate",
    key="the gate",
    event=ThresholdsV1,
    decode=decode_threshold,
    read_by=("workers", "consumers"),
    one_partition=True,
    compacted=True,
    line=lambda event, _: [
        event["gate"],
        f"v{event['version']}",
        bound_text(event),
        f"budget {budget(event['alpha'])}",
        event["method"],
        event["unit"],
    ],
)
