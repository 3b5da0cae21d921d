"""What consumers and people may still get of a gate that was closed, by each place where something waits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.store.db import bulk_insert
from streamer.store.db.schema import decisions, desk_items, outbox, pending_messages, progress
from streamer.store.db.schema.log import QUEUED, UNPUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ACTION_ID = re.compile(rb"[0-9a-f-]{36}")
_SHIPS = (decisions.c.mode == "enforce", decisions.c.outcome.in_(("ship", "mixed")))


class Waiting(NamedTuple):
    """What still waits of one gate.

    Attributes
    ----------
    queue : records of the topic of responses, of whichever gate, that no worker has recorded; None: the broker was not asked.
    outbox : ships that are committed and not published yet.
    desk : batches that wait for a person.
    repeats : ships on record, which whoever repeats the same batch or key gets once more.
    """

    queue: int | None
    outbox: int
    desk: int
    repeats: int


def still_waiting(
    connection: sa.Connection, gate: str, log: Mapping[Partition, tuple[int, int]] | None
) -> Waiting:
    """Count what waits of a gate. `log`: first and end offset of each partition of the responses; None: not known."""
    own = decisions.c
    desk, repeats = connection.execute(
        sa.select(
            sa.select(sa.func.count()).where(desk_items.c.gate == gate).scalar_subquery(),
            sa.select(sa.func.count()).where(own.gate == gate, *_SHIPS).scalar_subquery(),
        )
    ).one()
    queue = None
    if log is not None:
        read = {
            Partition(*row[:3]): row.next_offset
            for row in connection.execute(
                sa.select(*progress.c["log_id", "topic", "partition", "next_offset"])
            )
        }
        queue = sum(max(0, end - max(first, read.get(one, 0))) for one, (first, end) in log.items())
    return Waiting(queue, unpublished_ships(connection, gate), desk, repeats)


def unpublished_ships(connection: sa.Connection, gate: str) -> int:
    """Count the gate's enforced decisions that ship something and wait to be published, for the first time or again.

    What was parked does not wait: it is never published.
    """
    ships = sa.select(decisions.c.batch).where(decisions.c.gate == gate, *_SHIPS)
    queued = connection.scalars(
        sa.select(pending_messages.c.batch).where(pending_messages.c.batch.is_not(None), QUEUED).distinct()
    )
    found = {
        row["batch"]
        for columns, keys in (
            ([decisions.c.batch], sorted((batch,) for batch in queued)),
            ([decisions.c.action_id, decisions.c.action_topic], sorted(set(_left_in_outbox(connection)))),
        )
        for row in bulk_insert.look_up(connection, ships, columns, keys)
    }
    return len(found)


def _left_in_outbox(connection: sa.Connection) -> Iterator[tuple[str, str]]:
    """Action id and topic of every action that an earlier version left in the outbox.

    Other messages may bring headers of that name, and match nothing.
    """
    rows = connection.execute(
        sa.select(outbox.c.topic, outbox.c.headers).where(UNPUBLISHED, outbox.c.source_topic.is_not(None))
    )
    for topic, headers in rows:
        for name, value in headers:
            if name == "ce_id" and value is not None and _ACTION_ID.fullmatch(value):
                yield value.decode("ascii"), topic
