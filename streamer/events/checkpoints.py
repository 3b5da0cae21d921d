"""The topic `checkpoints`, out: how large the log of heads was at a moment, and its root, signed."""

import uuid
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from streamer.events.cloudevents import rfc3339
from streamer.events.codec import Event, Reader
from streamer.events.identifiers import about
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.outgoing import event_id, event_message
from streamer.events.topic import Topic
from streamer.journal import OutboxMessage
from streamer.signing.canonical_json import canonical_json

SCHEMA: Final = "streamer.checkpoints.v1"

CHECKPOINT_NAMESPACE: Final = uuid.UUID("a9becd1c-e88e-4cd2-b9f5-0a103b73cbce")
"""The namespace of the ids of checkpoint events; it must never change."""


class CheckpointsV1(Event, frozen=True, gc=False, kw_only=True):
    """A checkpoint of the record: a signed note by https://c2sp.org/tlog-checkpoint. It binds every log of the record as it
    was then, and every checkpoint before it.
    """

    schema: Literal["streamer.checkpoints.v1"]
    checkpoint: Annotated[
        str,
        about(
            "Origin, size and root of the log of heads, a line each; an empty line; signatures.",
            pattern="^[^\n]+\n[1-9][0-9]*\n[A-Za-z0-9+/]{43}=\n([^\n]+\n)*\n(\u2014 [^ \n]+ [A-Za-z0-9+/=]+\n)+$",
        ),
    ]
    made_at: Annotated[datetime, about("When it was published; not signed.", tz=True)]


_reader = Reader(CheckpointsV1, SCHEMA)


def encode_checkpoint(note: bytes, at: datetime) -> bytes:
    """Write the event of a signed note."""
    return canonical_json({"schema": SCHEMA, "checkpoint": note.decode(), "made_at": rfc3339(at)})


def decode_checkpoint(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> CheckpointsV1:
    """Read a checkpoint; its signatures are not looked at.

    Raises `BadMessage` with a code of `streamer.events.codes`; nothing else is raised, whatever the
    bytes are.
    """
    return _reader.read_whole(value, limits)


def checkpoint_message(note: bytes, *, topic: str, at: datetime) -> OutboxMessage:
    """Make the message that publishes a checkpoint; its key is the origin."""
    value = encode_checkpoint(note, at)
    event = decode_checkpoint(value)  # every reader must accept what we publish
    origin, size, *_ = event.checkpoint.split("\n")
    return event_message(
        event,
        topic=topic,
        key=origin.encode(),
        source=f"record:{origin}",
        id=event_id(CHECKPOINT_NAMESPACE, origin, size),
        subject=size,
        time=at,
        value=value,
    )


SPECIFICATION = Topic(
    name="checkpoints",
    place=60,
    says="How large the log of heads was and what its root was, signed",
    key="the origin",
    event=CheckpointsV1,
    decode=decode_checkpoint,
    encode=lambda event: canonical_json(msgspec.to_builtins(event)),
    # They are needed as long as the record is.
    one_partition=True,
    kept_forever=True,
    line=lambda event, _: event["checkpoint"].split("\n")[:3],
)
