"""What was given out of the database: which decisions, and in which files."""

from typing import Any

import sqlalchemy as sa

from streamer.store.db.schema import give_outs


def all_given_out(connection: sa.Connection) -> dict[tuple[int], dict[str, Any]]:
    """The rows by their keys, the oldest first."""
    found = connection.execute(sa.select(give_outs).order_by(give_outs.c.id)).mappings()
    return {(row["id"],): dict(row) for row in found}
