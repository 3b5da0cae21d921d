"""The topic `checkpoints`, out: where every log stood at a moment, signed, each naming the one before it."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import datetime  # noqa: TC003 - the decoder resolves annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.codec import Event, Reader
from streamer.events.identifiers import GateName  # noqa: TC001 - the decoder resolves annotations
from streamer.events.limits import DEFAULT_LIMITS, Limits
from streamer.events.outgoing import event_id, event_message
from streamer.events.topic import Topic
from streamer.signing.canonical_json import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamer.journal import OutboxMessage

SCHEMA: Final = "streamer.checkpoints.v1"

CHECKPOINT_NAMESPACE: Final = uuid.UUID("a9becd1c-e88e-4cd2-b9f5-0a103b73cbce")
"""The namespace of the ids of checkpoint events; it must never change."""

SIGNATURE_DOMAIN: Final = b"streamer.checkpoint.v1\x00"
"""What precedes the signed bytes, so that a signature of ours means nothing elsewhere."""

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256 in lower-case hexadecimal.")]
Size = Annotated[int, Meta(ge=0, description="How many leaves the log has.")]
Root = Annotated[
    str, Meta(pattern="^[0-9a-f]{64}$", description="Its Merkle root (RFC 9162), in hexadecimal.")
]


class ControlHeadV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The control log: gates, policies, calibration runs, labels that came by a file."""

    size: Size
    root: Root


class PartitionHeadV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One partition's log of outcomes."""

    log_id: str
    topic: str
    partition: Annotated[int, Meta(ge=0)]
    size: Size
    root: Root
    next_offset: Annotated[int, Meta(ge=0, description="Every offset below it has an outcome.")]


class GateCommitmentV1(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Binds a gate's secrets before they are used: the salt of its audit draw, the seed of its calibrations."""

    gate: GateName
    salt: Digest
    seed: Digest


class CheckpointsV1(Event, frozen=True, gc=False, kw_only=True):
    """Where every Merkle log stood. `sequence` counts from 1 without holes, and `previous` is the SHA-256 of the whole
    checkpoint before it, so that leaving one out shows.

    The signature is Ed25519 over `streamer.checkpoint.v1`, a zero byte, and the canonical JSON of everything but the
    field `signature`.
    """

    schema: Literal["streamer.checkpoints.v1"]
    record_id: Annotated[Digest, Meta(description="Which record this is: drawn once for each database.")]
    sequence: Annotated[int, Meta(ge=1)]
    previous: Digest | None
    made_at: Annotated[datetime, Meta(tz=True)]
    control: ControlHeadV1
    partitions: tuple[PartitionHeadV1, ...]
    gates: tuple[GateCommitmentV1, ...]
    key_id: Annotated[Digest, Meta(description="SHA-256 of the 32 bytes of the public key.")]
    signature: Annotated[str, Meta(description="Base64 of 64 bytes.")]


_reader = Reader(CheckpointsV1, SCHEMA)


def encode_checkpoint(facts: dict[str, Any], *, sign: Callable[[bytes], str]) -> bytes:
    """Sign and write a checkpoint, as canonical JSON; `facts` are all fields but `signature`."""
    value = canonical_json(facts | {"signature": sign(SIGNATURE_DOMAIN + canonical_json(facts))})
    _reader.read(value)  # every reader must accept what we publish
    return value


def signed_bytes(value: bytes) -> bytes:
    """Return what the signature of a checkpoint covers, fields of later versions included."""
    facts = json.loads(value)
    facts.pop("signature", None)
    return SIGNATURE_DOMAIN + canonical_json(facts)


def checkpoint_hash(value: bytes) -> str:
    """Return what the next checkpoint names as `previous`."""
    return hashlib.sha256(value).hexdigest()


def decode_checkpoint(value: bytes | None, limits: Limits = DEFAULT_LIMITS) -> CheckpointsV1:
    """Read a checkpoint; its signature is not looked at.

    Raises
    ------
    BadMessage
        With a code of `streamer.events.codes`; nothing else is raised, whatever the bytes are.
    """
    event = _reader.read_whole(value, limits)
    if (event.sequence == 1) != (event.previous is None):
        raise BadMessage(codes.INVALID_FIELD, "the first checkpoint, and only that, has no previous one")
    return event


def checkpoint_message(value: bytes, *, topic: str) -> OutboxMessage:
    """Make the message that publishes a checkpoint; its key is the record's id, so that order is kept."""
    event = decode_checkpoint(value)
    return event_message(
        event,
        topic=topic,
        key=event.record_id.encode(),
        source=f"record:{event.record_id}",
        id=event_id(CHECKPOINT_NAMESPACE, event.record_id, event.sequence),
        subject=str(event.sequence),
        time=event.made_at,
        value=value,
    )


SPECIFICATION = Topic(
    name="checkpoints",
    place=60,
    says="Where every Merkle log of the record stood, signed",
    key="the record's id",
    event=CheckpointsV1,
    decode=decode_checkpoint,
    encode=lambda event: canonical_json(msgspec.to_builtins(event)),
    # Each names the one before it, so that they are read in one order; and they are needed as long as the record is.
    one_partition=True,
    kept_forever=True,
    line=lambda event, _: [
        f"{event['sequence']}",
        f"control log {event['control']['size']}",
        f"outcomes {sum(one['size'] for one in event['partitions'])}",
        f"key {event['key_id'][:8]}",
    ],
)
