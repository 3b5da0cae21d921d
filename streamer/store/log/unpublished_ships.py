"""What consumers may still get of a gate that was closed: ships that are committed and wait to be published."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlalchemy as sa

from streamer.store.db import bulk_insert
from streamer.store.db.schema import decisions, outbox, pending_messages
from streamer.store.db.schema.log import QUEUED, UNPUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterator

_ACTION_ID = re.compile(rb"[0-9a-f-]{36}")


def unpublished_ships(connection: sa.Connection, gate: str) -> int:
    """Count the gate's enforced decisions that ship something and wait to be published, for the first time or again.

    What was parked does not wait: it is never published.
    """
    ships = sa.select(decisions.c.batch).where(
        decisions.c.gate == gate, decisions.c.mode == "enforce", decisions.c.outcome.in_(("ship", "mixed"))
    )
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
