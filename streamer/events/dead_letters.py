"""The topic `dead-letters`, out: a refused message as it came, and headers that say where it was and why.

The headers are those of Kafka Connect's dead letter queue, so that its tools read them, and `streamer_error_code`.
A message that another component already dead-lettered (a replay) loses the headers of that earlier time.
"""

import hashlib
from typing import Final

from streamer.errors import BadMessage
from streamer.events.excerpts import one_line
from streamer.events.limits import DEFAULT_LIMITS
from streamer.events.outgoing import TRUNCATED, size_of, truncation
from streamer.events.topic import Topic
from streamer.journal import Headers, OutboxMessage, Record

ERROR_CODE: Final = "streamer_error_code"

TOPIC: Final = "__connect.errors.topic"
PARTITION: Final = "__connect.errors.partition"
OFFSET: Final = "__connect.errors.offset"
EXCEPTION_CLASS: Final = "__connect.errors.exception.class.name"
EXCEPTION_MESSAGE: Final = "__connect.errors.exception.message"

ADDED = frozenset({ERROR_CODE, TRUNCATED, TOPIC, PARTITION, OFFSET, EXCEPTION_CLASS, EXCEPTION_MESSAGE})
"""The names of the headers that a dead letter adds."""

_RECORD_OVERHEAD = 1024  # a record batch's own header, lengths and attributes, generously


def original_headers(headers: Headers) -> Headers:
    """Give the headers that a dead-lettered message had before, to replay it."""
    return tuple(header for header in headers if header[0] not in ADDED)


def dead_letter_message(
    record: Record, code: str, detail: str, *, topic: str, max_bytes: int = DEFAULT_LIMITS.max_output_bytes
) -> OutboxMessage:
    """Make the message that says that `record` was refused.

    Key, value and headers are the original ones, and the added headers come after them. Only when
    they do not fit into `max_bytes` (see `Limits.max_output_bytes`), which needs an input beyond
    the limits (or headers and a key of more than 60 KiB beside the largest value), something is
    left out: original headers first, then the end of the value, then the end of the key. The header
    `streamer_truncated` then says what, with the length and SHA-256 of the original. `code` is one
    of `streamer.events.codes`; `detail` is cut to 300 characters. Raises `ValueError` when
    `max_bytes` is less than 16 KiB.
    """
    if max_bytes < 16 * 1024:
        raise ValueError(f"a dead letter needs room for at least 16 KiB, not {max_bytes} bytes")
    error = BadMessage
    added: Headers = (
        (TOPIC, record.partition.topic.encode()),
        (PARTITION, str(record.partition.number).encode()),
        (OFFSET, str(record.offset).encode()),
        (EXCEPTION_CLASS, f"{error.__module__}.{error.__qualname__}".encode()),
        (EXCEPTION_MESSAGE, one_line(detail).encode()),
        (ERROR_CODE, code.encode()),
    )
    missing = truncation(record)
    if missing is not None:
        added += ((TRUNCATED, missing.encode()),)
    room = max_bytes - _RECORD_OVERHEAD - size_of(added)
    kept = original_headers(record.headers)
    if len(record.key or b"") + len(record.value or b"") + size_of(kept) <= room:
        return OutboxMessage(topic=topic, key=record.key, value=record.value, headers=kept + added)
    return _cut_to_fit(record, kept, added, topic=topic, room=room - 512)


def _cut_to_fit(record: Record, kept: Headers, added: Headers, *, topic: str, room: int) -> OutboxMessage:
    left_out: list[str] = []
    key, value = record.key, record.value
    if key is not None and len(key) > room // 4:
        left_out.append(_original("key", key))
        key = key[: room // 4]
    room -= len(key or b"")
    if value is not None and len(value) > room:
        left_out.append(_original("value", value))
        value = value[:room]
    room -= len(value or b"")
    fitting: list[tuple[str, bytes | None]] = []
    for header in kept:
        room -= size_of((header,))
        if room < 0:
            break
        fitting.append(header)
    if len(fitting) < len(kept):
        left_out.append(f"headers: {len(kept) - len(fitting)} of {len(kept)} left out")
    note = (TRUNCATED, "; ".join(left_out).encode())
    return OutboxMessage(topic=topic, key=key, value=value, headers=(*fitting, *added, note))


def _original(part: str, content: bytes) -> str:
    return f"{part}: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"


SPECIFICATION = Topic(
    name="dead-letters",
    place=70,
    says="Refused messages as they came (any bytes), with headers that say why",
    key="the input's key",
    event=None,
    read_by=(),
    line=lambda _, headers: [
        headers.get(ERROR_CODE) or "unknown",
        "/".join(headers.get(part, "") for part in (TOPIC, PARTITION, OFFSET)),
        headers.get(EXCEPTION_MESSAGE, ""),
    ],
)
