"""What consumers and people may still get of a gate that was closed, by each place where something waits."""

from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.store.db import bulk_insert
from streamer.store.db.schema import decisions, desk_items, pending_messages, progress
from streamer.store.db.schema.log import QUEUED

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
    keys = sorted((batch,) for batch in queued)
    return sum(1 for _ in bulk_insert.look_up(connection, ships, [decisions.c.batch], keys))
