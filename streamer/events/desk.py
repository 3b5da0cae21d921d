"""The topic `desk`, out: what became of a batch that waited for a person. One event per batch, the key is the input's key."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta

from streamer.events.codec import Event, Reader
from streamer.events.identifiers import GateName, Identifier, about
from streamer.events.outgoing import event_id, event_message
from streamer.events.responses import Attempt
from streamer.events.topic import Topic, batch_text
from streamer.gates.batch_key import BatchKey
from streamer.journal import Headers, OutboxMessage

SCHEMA: Final = "streamer.desk.v1"

DESK_NAMESPACE: Final = uuid.UUID("5b1f1f64-9d0f-4f0e-8d55-6a4f1b7d3f0c")
"""The namespace of the ids of outcomes; it must never change."""

DeskAction = Literal["released", "rejected"]
DeskReason = Literal["person", "deadline_passed"]
DESK_ACTIONS: tuple[DeskAction, ...] = get_args(DeskAction)
DESK_REASONS: tuple[DeskReason, ...] = get_args(DeskReason)

MOST_REMARK_CHARACTERS: Final = 500


class DeskV1(Event, frozen=True, gc=False, kw_only=True):
    """What a person, or the deadline, made of a held batch; there is exactly one per batch, and it is final.

    Consumers deduplicate on `desk_id`, show `text` only when `action` is `released`, and go on holding otherwise; where a gate
    of claims shipped in part, what it shipped stands. The gate promises nothing about what people release.

    Raises `ValueError` on construction, when the parts contradict each other.
    """

    schema: Literal["streamer.desk.v1"]
    desk_id: Annotated[str, about("Stable: a republication has the same.")]
    action_id: Annotated[str, about("Of the action event by which the batch was held.")]
    gate: GateName
    batch_id: Identifier
    attempt: Attempt
    action: DeskAction
    reason: Annotated[DeskReason, about("Who decided: a person, or nobody until the deadline.")]
    selected: Annotated[str | None, about("The response that was released; null when rejected.")]
    text: Annotated[str | None, about("What may be shown. Null when rejected, or once the text was erased.")]
    claims: (
        Annotated[
            tuple[Identifier, ...],
            about(
                "Of a gate of claims, those of the response that a person put back: the "
                "text has them and what the gate shipped. Absent for other gates."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    edited: Annotated[bool, about("Whether a person changed the text of the response.")] = False
    by: Annotated[
        str | None, about("Who decided; `account:` stands before the name of somebody who had signed in.")
    ]
    remark: Annotated[str, Meta(extra_json_schema={"maxLength": MOST_REMARK_CHARACTERS})] = ""
    until: Annotated[datetime, about("The deadline.", tz=True)]
    decided_at: Annotated[datetime, Meta(tz=True)]

    def __post_init__(self) -> None:
        super().__post_init__()
        released = self.action == "released"
        if (self.selected is not None) != released or (
            not released and (self.text is not None or self.edited or self.claims)
        ):
            raise ValueError("a response and its text are released, and nothing else has any")
        if (self.by is None) != (self.reason == "deadline_passed") or (released and self.by is None):
            raise ValueError("a person decides by name; a deadline rejects, and has none")


def desk_id(key: BatchKey) -> str:
    """Derive the id of what becomes of a batch at the desk.

    It is the UUID of version 5, in `DESK_NAMESPACE`, of the canonical JSON of the array [gate, batch_id, attempt].
    """
    return event_id(DESK_NAMESPACE, key.gate, key.batch_id, key.attempt)


decode_desk = Reader(DeskV1, SCHEMA).read_whole
"""Read an outcome, as a consumer would. Raises `BadMessage`."""


def desk_message(event: DeskV1, *, topic: str, key: bytes | None, trace: Headers = ()) -> OutboxMessage:
    """Make the message that publishes an outcome.

    `key` is that of the action, so that order per key is kept; `trace`, its headers, whose trace
    context is carried on.
    """
    time, subject = event.decided_at, event.batch_id
    return event_message(
        event,
        topic=topic,
        key=key,
        source=f"gate:{event.gate}",
        id=event.desk_id,
        subject=subject,
        time=time,
        trace=trace,
    )


def _line(event: Mapping[str, Any], _: object) -> list[str]:
    chosen = f" {event['selected']}{' edited' if event['edited'] else ''}" if event.get("selected") else ""
    if event.get("claims"):
        chosen += f" with {', '.join(event['claims'])}"
    who = event["by"] or "nobody by the deadline"
    remark = f": {event['remark']}" if event["remark"] else ""
    return [event["gate"], batch_text(event), event["action"] + chosen, f"by {who}{remark}"]


SPECIFICATION = Topic(
    name="desk",
    place=30,
    says="What became of a held batch that waited for a person, one per batch, at least once",
    key="the input's key",
    event=DeskV1,
    decode=decode_desk,
    has_receipts=True,
    line=_line,
)
