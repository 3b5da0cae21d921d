"""The topic `thresholds`, out, compacted by gate: the policy that a gate decides with."""

import math
import uuid
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
import msgspec.structs
from msgspec import Meta

from streamer.calibration.guarantee import budget
from streamer.calibration.threshold import ThresholdState
from streamer.errors import BadMessage
from streamer.events import codes, json_structure
from streamer.events.codec import Event, Reader
from streamer.events.excerpts import one_line
from streamer.events.identifiers import GateName, about, check_name
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.outgoing import event_id, event_message
from streamer.events.topic import Topic, bound_text
from streamer.gates.policy import Policy
from streamer.gates.rule import RuleKind, rule_from_json, rule_to_json
from streamer.gates.setting import NO_VALUE, Setting
from streamer.gates.settings import FLAT_NAMES, SETTINGS, GateSettings
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
            about(
                "Points (level, summed loss from this level on), for `transductive`; a level of null is "
                "below every score. At most 256 KiB."
            ),
        ]
        | None
    ) = None


class _Head(Event, frozen=True, gc=False, kw_only=True, rename={"threshold": "lambda"}):
    schema: Literal["streamer.thresholds.v1"]
    gate: GateName
    version: Annotated[int, Meta(ge=1)]
    gate_revision: Annotated[int, Meta(ge=1)]
    state: ThresholdState
    threshold: Annotated[float | None, about("Null unless the state is `cut`.")]
    calibrated: bool
    rule: RuleV1


def _field(one: Setting) -> tuple[Any, ...]:
    kind: Any = one.kind
    if one.choices:
        kind = Literal[one.choices]
    elif kind in _ITEMS:
        kind = _ITEMS[kind]
    meta: dict[str, Any] = {"description": one.help}
    if one.numeric:
        meta |= one.bounds()
    elif one.sized:
        looks = {} if one.matching is None else {"pattern": f"^{one.matching.pattern}$"}
        meta["extra_json_schema"] = {"minLength": int(one.least), "maxLength": int(one.most), **looks}
    said = Annotated[kind, Meta(**meta)]
    hint = said | None if one.optional else said
    return (one.name, hint) if one.before is NO_VALUE else (one.name, hint, one.before)


_ITEMS: dict[type, Any] = {tuple: tuple[str, ...], dict: dict[str, int | float]}
_WithSettings: Any = msgspec.defstruct(
    "_WithSettings",
    [_field(one) for one in SETTINGS.values()],
    bases=(_Head,),
    module=__name__,
    frozen=True,
    gc=False,
    kw_only=True,
)


class ThresholdsV1(_WithSettings, frozen=True, gc=False, kw_only=True):  # type: ignore[misc, call-arg]  # made of settings
    """A gate's whole policy. `version` only grows within a gate; a rollback writes a new one.

    In Python the JSON name `lambda` is `threshold`. The event says that a policy exists; workers read the
    policy itself from the database.
    """

    calibration_run: int | None
    seed: int
    valid_from: Annotated[datetime, Meta(tz=True)]
    guarantee: str
    created_by: str
    reason: str
    signature: Annotated[str, about("Base64 of an Ed25519 signature; see docs/security.md.")] | None = None
    key_id: Annotated[str, about("SHA-256 of the public key, in hexadecimal.")] | None = None
    record_id: Annotated[str, about("Which record the signature is for, in hexadecimal.")] | None = None
    audit_salt: (
        Annotated[str, about("Commitment to the gate's audit salt, which the signature covers.")] | None
    ) = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # The writer would silently write null for a number that is not finite.
        values = [*msgspec.structs.astuple(self), *(self.parameters or {}).values()]
        if not all(map(math.isfinite, [value for value in values if isinstance(value, float)])):
            raise ValueError("numbers of a policy must be finite")


_reader = Reader(ThresholdsV1, SCHEMA)

_AS_IN_POLICY = tuple(
    field.name for field in fields(Policy) if field.compare and field.name not in ("settings", "rule")
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

    Raises `BadMessage` ``invalid_field``, when the parts contradict each other, for example a
    closed policy with a threshold.
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

    Raises `BadMessage` with a code of `streamer.events.codes`; nothing else is raised, whatever the
    bytes are.
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
