"""What the record says of the topics' own records: an outcome for each offset, an action for each decision."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.events.receipts import with_receipt
from streamer.gates.batch_key import BatchKey
from streamer.journal import OutboxMessage, Partition, RecordedOutcome
from streamer.store.db import bulk_insert
from streamer.store.db.schema import (
    batches,
    control_log,
    data_gaps,
    dead_letters,
    decisions,
    desk_outcomes,
    label_revisions,
    label_signatures,
    outbox,
    outcomes,
    pending_messages,
    progress,
)
from streamer.store.db.schema.joins import BATCH, RESPONSE, key_of, same
from streamer.store.desk.rows import event_of, outcome_query
from streamer.store.desk.rows import receipts_of as receipts_of_desk
from streamer.store.log.outbox import receipts_of
from streamer.store.log.progress import in_partition

if TYPE_CHECKING:
    from streamer.audit.logged import RecordedDesk

_PAGE = 1_000
_LABEL = (*RESPONSE, "kind", "labeller", "severity", "labelled_at")
_SIGNATURE = ("signature", "key_id")


class LoggedRows:
    """The record at one moment, by offset and by batch."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def ends(self, log_id: str) -> dict[tuple[str, int], int]:
        """The next offset of each partition of a log that was ever read, by topic and number."""
        query = sa.select(progress.c.topic, progress.c.partition, progress.c.next_offset)
        rows = self._connection.execute(query.where(progress.c.log_id == log_id))
        return {(topic, number): end for topic, number, end in rows}

    def topic_id(self, log_id: str, topic: str) -> str | None:
        """The broker's id of a topic when it was read; None where it gave none."""
        query = sa.select(sa.func.max(progress.c.topic_id))
        found = self._connection.scalar(query.where(progress.c.log_id == log_id, progress.c.topic == topic))
        return None if found is None else str(found)

    def gaps(self, partition: Partition) -> list[tuple[int, int]]:
        """The offsets that are recorded as lost: first, and one past the last."""
        query = sa.select(data_gaps.c.from_offset, data_gaps.c.to_offset)
        return [
            (first, end)
            for first, end in self._connection.execute(query.where(in_partition(partition, data_gaps)))
        ]

    def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
        """The outcomes of the offsets from `first` to `end` - 1."""
        label = [
            table.c[name].label(f"label_{name}")
            for table, names in ((label_revisions, _LABEL), (label_signatures, _SIGNATURE))
            for name in names
        ]
        query = (
            sa.select(
                *outcomes.c["offset", "kind"],
                *batches.c[*BATCH, "content_hash"],
                *dead_letters.c["code", "value", "headers"],
                *label,
            )
            .select_from(outcomes)
            .outerjoin(batches, batches.c.id == outcomes.c.batch)
            .outerjoin(dead_letters, dead_letters.c.id == outcomes.c.dead_letter)
            .outerjoin(label_revisions, label_revisions.c.id == outcomes.c.label)
            .outerjoin(label_signatures, label_signatures.c.id == outcomes.c.label_signature)
            .where(in_partition(partition, outcomes), outcomes.c.offset >= first, outcomes.c.offset < end)
        )
        return {row["offset"]: _outcome(row) for row in self._connection.execute(query).mappings()}

    def actions(self, keys: Collection[BatchKey]) -> dict[BatchKey, OutboxMessage]:
        """The actions of those of these batches that are decided, as they are published today: with their receipts."""
        query = sa.select(
            batches.c.id,
            *batches.c[BATCH],
            *(decisions.c[f"action_{name}"] for name in ("topic", "key", "value", "headers")),
        ).join(outcomes, (outcomes.c.batch == batches.c.id) & (outcomes.c.kind == "decision"))
        # What was given out is not kept here, and was decided all the same.
        query = query.outerjoin(decisions, decisions.c.batch == batches.c.id)
        rows = list(bulk_insert.look_up(self._connection, query, list(batches.c[BATCH]), sorted(set(keys))))
        receipts = receipts_of(self._connection, [row["id"] for row in rows])
        return {
            key_of(row): OutboxMessage(
                row["action_topic"],
                row["action_key"],
                row["action_value"],
                with_receipt(row["action_headers"] or (), receipts[row["id"]]),
            )
            for row in rows
        }

    def published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        """Yield the batches whose action was sent to a topic, of decisions about a log's records, later than `since`.

        Those whose action still waits, or was parked, are left out.
        """
        waits = sa.exists().where(pending_messages.c.batch == decisions.c.batch)
        query = (
            sa.select(decisions.c.batch, *batches.c[BATCH])
            .join_from(decisions, batches, batches.c.id == decisions.c.batch)
            .join(outcomes, (outcomes.c.batch == decisions.c.batch) & (outcomes.c.kind == "decision"))
            .where(outcomes.c.log_id == log_id, decisions.c.action_topic == topic, ~waits)
            .order_by(decisions.c.batch)
            .limit(_PAGE)
        )
        if since is not None:
            query = query.where(decisions.c.decided_at > since)
        after = -1
        while page := self._connection.execute(query.where(decisions.c.batch > after)).mappings().all():
            for row in page:
                yield key_of(row)
            after = page[-1]["batch"]

    def desk(self, keys: Collection[BatchKey]) -> dict[BatchKey, RecordedDesk]:
        """What became of those of these batches that were decided about at the desk: the event, the message's key, its receipt."""
        query = outcome_query().add_columns(decisions.c.action_key)
        columns = list(desk_outcomes.c[BATCH])
        rows = list(bulk_insert.look_up(self._connection, query, columns, sorted(set(keys))))
        events = [event_of(row) for row in rows]
        receipts = receipts_of_desk(self._connection, events)
        return {
            key_of(row): (event, row["action_key"], receipts.get(event.desk_id))
            for row, event in zip(rows, events, strict=True)
        }

    def desk_published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        """Yield the batches, of a log's records, whose outcome at the desk was sent to a topic later than `since`.

        In the order of the control log. Those whose message still waits, or was parked, are left out.
        """
        # Written in one transaction, and of one moment; of what was parked for long the outbox has nothing else.
        waits = sa.exists().where(
            outbox.c.topic == topic,
            outbox.c.published_at.is_(None),
            outbox.c.created_at == desk_outcomes.c.at,
        )
        sealed = (control_log.c.kind == desk_outcomes.name) & (
            control_log.c.subject == sa.literal('["') + desk_outcomes.c.id + '"]'
        )
        query = (
            sa.select(*desk_outcomes.c[BATCH])
            .join(batches, same(batches, desk_outcomes, *BATCH))
            .join(outcomes, (outcomes.c.batch == batches.c.id) & (outcomes.c.kind == "decision"))
            .outerjoin(control_log, sealed)
            .where(outcomes.c.log_id == log_id, ~waits)
            .order_by(control_log.c.leaf_index)
            .execution_options(yield_per=_PAGE)
        )
        if since is not None:
            query = query.where(desk_outcomes.c.at > since)
        yield from map(key_of, self._connection.execute(query).mappings())


def _outcome(row: Any) -> RecordedOutcome:
    return RecordedOutcome(
        kind=row["kind"],
        key=None if row["gate"] is None else key_of(row),
        content_hash=row["content_hash"],
        code=row["code"],
        refused=row["value"],
        refused_headers=row["headers"] or (),
        label=None
        if row["label_gate"] is None
        else tuple(row[f"label_{name}"] for name in (*_LABEL, *_SIGNATURE)),
    )
