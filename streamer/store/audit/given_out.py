"""What was given out of the database: which decisions, and in which files."""

from typing import Any

import sqlalchemy as sa

from streamer.store.db.schema import give_outs
from streamer_verify.values import given_out_of


def left_by(row: dict[str, Any]) -> int:
    """How many decisions left by it."""
    return sum(count for *_, count, _, _ in given_out_of(row["logs"]).values())


def all_given_out(connection: sa.Connection) -> dict[tuple[int], dict[str, Any]]:
    """The rows by their keys, the oldest first."""
    found = connection.execute(sa.select(give_outs).order_by(give_outs.c.id)).mappings()
    return {(row["id"],): dict(row) for row in found}
