"""Messages that must reach Kafka exactly as stored: written together with what they announce, published afterwards."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from typing import Any

import sqlalchemy as sa

from streamer.events.receipts import receipt, with_receipt
from streamer.journal import Headers, OutboxMessage, Partition
from streamer.store.db import bulk_insert
from streamer.store.db.schema import decisions, outbox, outcomes, pending_messages
from streamer.store.db.schema.log import QUEUED, UNPUBLISHED

_CHUNK = 1_000
_ERROR_CHARACTERS = 2_000
_RECEIPTS = sa.select(
    *outcomes.c["batch", "log_id", "topic", "partition", "leaf_index", "leaf_hash", "root"]
).where(outcomes.c.kind == "decision")


def pending_row(number: int, message: OutboxMessage, source: Partition, batch: int | None) -> dict[str, Any]:
    """The row of a message that a record of `source` caused, `number` in the queue; of a decision's action only where it is kept."""
    row: dict[str, Any] = {
        "id": number,
        "source_log_id": source.log_id,
        "source_topic": source.topic,
        "source_partition": source.number,
        "topic": message.topic,
        "batch": batch,
        "key": None,
        "value": None,
        "headers": None,
    }
    if batch is None:
        row |= {"key": message.key, "value": message.value, "headers": message.headers}
    return row


def enqueue(connection: sa.Connection, message: OutboxMessage, now: datetime) -> None:
    """Add one message of no partition."""
    connection.execute(
        sa.insert(outbox).values(
            topic=message.topic,
            key=message.key,
            value=message.value,
            headers=message.headers,
            created_at=now,
        )
    )


def unpublished_topics(
    connection: sa.Connection, *, queued: bool, ownerless: bool, before: datetime | None
) -> list[str]:
    """The topics of rows that wait in the outbox and, with `queued`, in the queue, whichever worker has their partitions."""
    found = set()
    if queued:
        last = ""
        # One look into the index for each topic, however many rows it has.
        while last is not None:
            last = connection.scalar(
                sa.select(sa.func.min(pending_messages.c.topic)).where(
                    QUEUED, pending_messages.c.topic > last
                )
            )
            found.add(last)
        found.remove(None)
    if ownerless:
        mine = UNPUBLISHED & _written(before)
        found |= set(connection.scalars(sa.select(outbox.c.topic).where(mine).distinct()))
    return sorted(found)


def waiting_partitions(connection: sa.Connection, log_id: str) -> list[int]:
    """The numbers of a log's partitions with messages in the queue."""
    columns = pending_messages.c
    query = sa.select(columns.source_partition).where(QUEUED, columns.source_log_id == log_id)
    return list(connection.scalars(query.distinct()))


def unpublished(
    connection: sa.Connection,
    limit: int,
    *,
    before: datetime | None,
    topic: str | None,
) -> list[OutboxMessage]:
    """The oldest messages of no partition that wait, in id order: all, or those written before a moment."""
    query = _unpublished(before is not None, topic is not None)
    rows = connection.execute(query, {"before": before, "topic": topic, "most": limit})
    return [OutboxMessage(*row) for row in rows]


@lru_cache(maxsize=64)
def _unpublished(dated: bool, of_topic: bool) -> sa.Select[Any]:
    """Make the query once: a worker asks it for each group, and to build one takes longer than to run it."""
    query = sa.select(outbox.c.topic, outbox.c.key, outbox.c.value, outbox.c.headers, outbox.c.id)
    if of_topic:
        query = query.where(outbox.c.topic == sa.bindparam("topic"))
    written = _written(sa.bindparam("before") if dated else None)
    return query.where(UNPUBLISHED, written).order_by(outbox.c.id).limit(sa.bindparam("most"))


def queued(
    connection: sa.Connection,
    sources: Sequence[Partition],
    limit: int,
    *,
    topic: str | None,
    after: int,
    max_bytes: int | None,
) -> list[OutboxMessage]:
    """The oldest messages of these partitions in the queue, in id order; see `streamer.journal.Journal.unpublished`."""
    query = _queued(tuple(sources), topic is not None)
    rows = list(connection.execute(query, {"after": after, "topic": topic, "most": limit}))
    if max_bytes is not None:
        ends = accumulate(row.size or 0 for row in rows)
        rows = [
            row
            for place, (row, end) in enumerate(zip(rows, ends, strict=True))
            if not place or end <= max_bytes
        ]
    # In two steps: a join with `decisions` could be planned as a scan of it, for the queue's statistics are never right.
    whole = _contents(
        connection, pending_messages, pending_messages.c.id, "", [row.id for row in rows if row.batch is None]
    )
    kept = _contents(
        connection,
        decisions,
        decisions.c.batch,
        "action_",
        [row.batch for row in rows if row.batch is not None],
    )
    receipts = receipts_of(connection, list(kept))
    # What another worker publishes meanwhile is gone by the second step.
    found = []
    for row in rows:
        content = whole.get(row.id) if row.batch is None else kept.get(row.batch)
        if content is not None:
            key, value, headers = content
            if row.batch in receipts:
                headers = with_receipt(headers, receipts[row.batch])
            found.append(OutboxMessage(row.topic, key, value, headers, id=row.id, queued=True))
    return found


@lru_cache(maxsize=64)
def _queued(sources: tuple[Partition, ...], of_topic: bool) -> sa.Select[Any]:
    columns = pending_messages.c
    query = sa.select(
        columns.id, columns.topic, columns.batch, sa.func.length(columns.value).label("size")
    ).where(QUEUED, columns.id > sa.bindparam("after"), _of_sources(sources))
    if of_topic:
        query = query.where(columns.topic == sa.bindparam("topic"))
    return query.order_by(columns.id).limit(sa.bindparam("most"))


def receipts_of(connection: sa.Connection, decided: Sequence[int]) -> dict[int, str]:
    """The receipts of these batches' decisions."""
    found = bulk_insert.look_up_rows(
        connection, _RECEIPTS, [outcomes.c.batch], [(one,) for one in sorted(decided)], lasting=True
    )
    return {
        batch: receipt(Partition(log_id, topic, number), *place)
        for batch, log_id, topic, number, *place in found
    }


def _contents(
    connection: sa.Connection, table: sa.Table, identity: sa.Column[int], prefix: str, wanted: Sequence[int]
) -> dict[int, tuple[bytes | None, bytes | None, Headers]]:
    """Key, value and headers by id."""
    query = _keyed_contents(table, identity, prefix)
    found = bulk_insert.look_up_rows(
        connection, query, [identity], [(one,) for one in sorted(set(wanted))], lasting=True
    )
    return {number: (key, value, headers) for number, key, value, headers in found}


@lru_cache(maxsize=4)
def _keyed_contents(table: sa.Table, identity: sa.Column[int], prefix: str) -> sa.Select[Any]:
    return sa.select(identity, *(table.c[prefix + name] for name in ("key", "value", "headers")))


def _written(before: datetime | sa.BindParameter[datetime] | None) -> sa.ColumnElement[bool]:
    return sa.true() if before is None else outbox.c.created_at <= before


def _of_sources(sources: Sequence[Partition]) -> sa.ColumnElement[bool]:
    source = sa.tuple_(*pending_messages.c["source_log_id", "source_topic", "source_partition"])
    return source.in_([tuple(partition) for partition in sources])


def is_waiting(connection: sa.Connection, message: OutboxMessage, now: datetime) -> bool:
    """Whether a message of no partition, on this topic and with this key, waits to be published.

    One that a machine with a wrong clock dated ahead does not count: workers leave it alone until then.
    """
    query = sa.exists().where(
        UNPUBLISHED,
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


def mark_published(connection: sa.Connection, messages: Sequence[OutboxMessage], now: datetime) -> None:
    """The broker has acknowledged these. Marking twice keeps the first moment."""
    if connection.dialect.name != "sqlite" and all(message.queued for message in messages):
        # Nobody waits for the disk: what a crash of PostgreSQL brings back is published once more, as after one in between.
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
    for ids in _chunks(message.id for message in messages if message.queued):
        connection.execute(sa.delete(pending_messages).where(pending_messages.c.id.in_(ids)))
    for ids in _chunks(message.id for message in messages if not message.queued):
        connection.execute(
            sa.update(outbox).where(outbox.c.id.in_(ids), UNPUBLISHED).values(published_at=now)
        )


def _chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _CHUNK):
        yield ordered[start : start + _CHUNK]


def park(connection: sa.Connection, message: OutboxMessage, error: str, now: datetime) -> None:
    """Give up on one that can never be published: keep it, with its error, out of the others' way."""
    table, waits = (pending_messages, QUEUED) if message.queued else (outbox, UNPUBLISHED)
    connection.execute(
        sa.update(table)
        .where(table.c.id == message.id, waits)
        .values(parked_at=now, error=error.replace("\x00", "\ufffd")[:_ERROR_CHARACTERS] or "unknown")
    )


def waiting(connection: sa.Connection) -> int:
    """How many messages are neither published nor parked."""
    count = sa.select(sa.func.count())
    rows = count.select_from(outbox).where(UNPUBLISHED).scalar_subquery()
    queued = count.select_from(pending_messages).where(QUEUED).scalar_subquery()
    return int(connection.execute(sa.select(rows + queued)).scalar_one())
