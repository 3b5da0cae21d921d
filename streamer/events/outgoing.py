"""The message that publishes an event of ours, and the id that its consumers deduplicate on.

Records that are larger than anything that is read: kept as an excerpt, with the length and SHA-256 of the rest.

The reader cuts such a record before it goes anywhere, so that neither memory, nor a row, nor a message ever holds the
whole of it. What was cut is said by a last header of a type of its own, which no publisher can send.
"""

import hashlib
import uuid
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from streamer.events import cloudevents
from streamer.events.codec import Event, encode
from streamer.journal import Headers, OutboxMessage, Record
from streamer.signing.canonical_json import canonical_json


def event_id(namespace: uuid.UUID, *about: str | int) -> str:
    """Derive an id from what an event is about: the UUID of version 5, in `namespace`, of the canonical JSON of the array
    `about`. The same cause gives the same id.
    """
    return str(uuid.uuid5(namespace, canonical_json(about).decode()))


def event_message(
    event: Event,
    *,
    topic: str,
    key: bytes | None,
    source: str,
    id: str,  # noqa: A002 - CloudEvents' own name
    subject: str,
    time: datetime,
    value: bytes | None = None,
    trace: Headers = (),
) -> OutboxMessage:
    """Make the message that publishes an event.

    Order is kept for each `key` alone. `source` is the context in which it happened, for example
    ``gate:support-bot``; (source, id) is unique. `subject` is what it is about; `time`, with zone,
    when it happened. `value` is the event as it is written already; None: written here, the same
    event always as the same bytes. `trace`: headers of what led to it; their trace context is
    carried on.
    """
    return OutboxMessage(
        topic=topic,
        key=key,
        value=encode(event) if value is None else value,
        headers=cloudevents.headers(
            type=event.schema,
            source=f"urn:streamer:{source}",
            subject=subject,
            time=time,
            id=id,
            dataschema=f"urn:streamer:schema:{event.schema.removeprefix('streamer.').replace('.', ':')}",
            trace=trace,
        ),
    )


TRUNCATED: Final = "streamer_truncated"

UNREADABLE: Final = "unreadable"
"""How the note begins of a record that stands for what could not be read at all."""

EXCERPT_BYTES: Final = 16 * 1024
"""Bytes kept of a value, and of each other part together, once a record is cut."""

_KEY_BYTES = 1024
_HEADERS_BYTES = 8 * 1024
_HEADER_OVERHEAD = 10  # two lengths as varints


class Truncation(NamedTuple):
    """The header that says what a record lacks, as it is stored and published."""

    name: str
    value: bytes


class Part(NamedTuple):
    """A key or a value of `length` bytes, of which `kept` is the beginning.

    `sha256` is that of the first `hashed` bytes; None for one that is kept whole.
    """

    kept: bytes
    length: int
    sha256: str | None
    hashed: int

    @classmethod
    def of(cls, content: bytes) -> "Part":
        """Describe one that is at hand."""
        return cls(content, len(content), None, len(content))

    def __str__(self) -> str:
        of = "" if self.hashed == self.length else f" of the first {self.hashed} bytes"
        return f"{self.length} bytes, sha256{of} {self.sha256 or hashlib.sha256(self.kept).hexdigest()}"


def truncation(record: Record) -> str | None:
    """What the reader cut off this record; None for one that is whole."""
    last = record.headers[-1] if record.headers else None
    return last.value.decode() if isinstance(last, Truncation) else None


def size_of(headers: Headers) -> int:
    """Bytes that headers take."""
    return sum(len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD for name, content in headers)


def excerpt(
    key: Part | None, value: Part | None, headers: Headers, left_out: int = 0
) -> tuple[bytes | None, bytes | None, Headers]:
    """Cut to excerpts, with the header that says so; `left_out` headers are gone already."""
    notes = []
    for name, part, most in (("key", key, _KEY_BYTES), ("value", value, EXCERPT_BYTES)):
        if part is not None and part.length > most:
            notes.append(f"{name}: {part}")
    fitting: list[tuple[str, bytes | None]] = []
    room = _HEADERS_BYTES
    for header in headers:
        room -= size_of((header,))
        if room < 0:
            break
        fitting.append(header)
    every = len(headers) + left_out
    if len(fitting) < every:
        notes.append(f"headers: {every - len(fitting)} of {every} left out")
    return (
        None if key is None else key.kept[:_KEY_BYTES],
        None if value is None else value.kept[:EXCERPT_BYTES],
        (*fitting, Truncation(TRUNCATED, "; ".join(notes).encode())),
    )


def bounded(record: Record, most: int) -> Record:
    """Return the record as it is, or its excerpt where key, value and headers take more than `most` bytes."""
    if truncation(record) is not None:
        return record
    size = len(record.key or b"") + len(record.value or b"") + size_of(record.headers)
    if size <= most:
        return record
    key, value, headers = excerpt(
        None if record.key is None else Part.of(record.key),
        None if record.value is None else Part.of(record.value),
        record.headers,
    )
    return replace(record, key=key, value=value, headers=headers)
