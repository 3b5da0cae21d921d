"""Messages that must reach Kafka exactly as stored: written with what they tell of, published afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.journal import OutboxMessage, Partition
from streamer.store.schema import outbox

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_CHUNK = 1_000
_ERROR_CHARACTERS = 2_000


def outbox_row(message: OutboxMessage, source: Partition | None, now: datetime) -> dict[str, Any]:
    """The row of a new message; `source` None for one that no input record caused."""
    return {
        "source_log_id": source.log_id if source else None,
        "source_topic": source.topic if source else None,
        "source_partition": source.number if source else None,
        "topic": message.topic,
        "key": message.key,
        "value": message.value,
        "headers": message.headers,
        "created_at": now,
    }


def enqueue(connection: sa.Connection, message: OutboxMessage, now: datetime) -> None:
    """Add one message of no partition."""
    connection.execute(sa.insert(outbox).values(outbox_row(message, None, now)))


def unpublished(
    connection: sa.Connection,
    sources: Sequence[Partition],
    limit: int,
    *,
    ownerless: bool,
    before: datetime | None,
) -> list[OutboxMessage]:
    """The oldest waiting messages of these partitions, in id order.

    With `ownerless` also those of no partition: all, or those written before a moment.
    """
    mine: sa.ColumnElement[bool] = sa.false()
    if ownerless:
        mine = outbox.c.source_topic.is_(None)
        if before is not None:
            mine &= outbox.c.created_at <= before
    if sources:
        source = sa.tuple_(outbox.c.source_log_id, outbox.c.source_topic, outbox.c.source_partition)
        mine = mine | source.in_([tuple(partition) for partition in sources])
    rows = connection.execute(
        sa.select(outbox.c.topic, outbox.c.key, outbox.c.value, outbox.c.headers, outbox.c.id)
        .where(outbox.c.published_at.is_(None), outbox.c.parked_at.is_(None), mine)
        .order_by(outbox.c.id)
        .limit(limit)
    )
    return [OutboxMessage(*row) for row in rows]


def is_waiting(connection: sa.Connection, message: OutboxMessage, now: datetime) -> bool:
    """Whether a message of no partition, on this topic and with this key, waits to be published.

    One that a machine with a wrong clock dated ahead does not count: workers leave it alone until then.
    """
    query = sa.exists().where(
        outbox.c.published_at.is_(None),
        outbox.c.parked_at.is_(None),
        outbox.c.source_topic.is_(None),
        outbox.c.topic == message.topic,
        outbox.c.key == message.key,
        outbox.c.created_at <= now,
    )
    return bool(connection.execute(sa.select(query)).scalar_one())


def newer(connection: sa.Connection, messages: Sequence[OutboxMessage]) -> list[OutboxMessage]:
    """Of each topic and key the newest message of no partition, if it is newer than all of these; in id order.

    Whoever has just published `messages` may have come after somebody who published a newer one.
    """
    last: dict[tuple[str, bytes | None], int] = {}
    for message in messages:
        last[message.topic, message.key] = max(message.id, last.get((message.topic, message.key), 0))
    if not last:
        return []
    rows = connection.execute(
        sa.select(outbox.c.topic, outbox.c.key, outbox.c.value, outbox.c.headers, outbox.c.id)
        .where(
            outbox.c.id > min(last.values()),
            outbox.c.source_topic.is_(None),
            outbox.c.parked_at.is_(None),
            outbox.c.topic.in_(sorted({topic for topic, _ in last})),
        )
        .order_by(outbox.c.id)
    )
    found: dict[tuple[str, bytes | None], OutboxMessage] = {}
    for row in rows:
        message = OutboxMessage(*row)
        key = (message.topic, message.key)
        if message.key is not None and message.id > last.get(key, message.id):
            found[key] = message
    return sorted(found.values(), key=lambda message: message.id)


def mark_published(connection: sa.Connection, ids: Sequence[int], now: datetime) -> None:
    """The broker has acknowledged these. Marking twice keeps the first moment."""
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _CHUNK):
        connection.execute(
            sa.update(outbox)
            .where(
                outbox.c.id.in_(ordered[start : start + _CHUNK]),
                outbox.c.published_at.is_(None),
                outbox.c.parked_at.is_(None),
            )
            .values(published_at=now)
        )


def park(connection: sa.Connection, row: int, error: str, now: datetime) -> None:
    """Give up on one that can never be published: keep it, with its error, out of the others' way."""
    connection.execute(
        sa.update(outbox)
        .where(outbox.c.id == row, outbox.c.published_at.is_(None), outbox.c.parked_at.is_(None))
        .values(parked_at=now, error=error.replace("\x00", "\ufffd")[:_ERROR_CHARACTERS] or "unknown")
    )


def waiting(connection: sa.Connection) -> int:
    """How many messages are neither published nor parked."""
    return connection.execute(
        sa.select(sa.func.count())
        .select_from(outbox)
        .where(outbox.c.published_at.is_(None), outbox.c.parked_at.is_(None))
    ).scalar_one()
