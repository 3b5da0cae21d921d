"""What consumers may still get of a gate that was closed: ships that are committed and wait to be published."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlalchemy as sa

from streamer.store import bulk
from streamer.store.schema import decisions, outbox

if TYPE_CHECKING:
    from collections.abc import Iterator

_ACTION_ID = re.compile(rb"[0-9a-f-]{36}")


def unpublished_ships(connection: sa.Connection, gate: str) -> int:
    """Count the gate's enforced decisions that ship something and wait to be published, for the first time or again.

    What was parked does not wait: it is never published.
    """
    ships = sa.select(decisions.c.action_id).where(
        decisions.c.gate == gate, decisions.c.mode == "enforce", decisions.c.outcome.in_(("ship", "mixed"))
    )
    waiting = sorted(set(_waiting(connection)))
    return sum(
        1 for _ in bulk.look_up(connection, ships, [decisions.c.action_id, decisions.c.action_topic], waiting)
    )


def _waiting(connection: sa.Connection) -> Iterator[tuple[str, str]]:
    """Action id and topic of every action that waits; other messages may bring headers of that name, and match nothing."""
    rows = connection.execute(
        sa.select(outbox.c.topic, outbox.c.headers).where(
            outbox.c.published_at.is_(None), outbox.c.parked_at.is_(None), outbox.c.source_topic.is_not(None)
        )
    )
    for topic, headers in rows:
        for name, value in headers:
            if name == "ce_id" and value is not None and _ACTION_ID.fullmatch(value):
                yield value.decode("ascii"), topic
