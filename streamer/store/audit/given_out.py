"""What was given out of the database: which decisions, and in which files."""

import json
from typing import Any

import sqlalchemy as sa

from streamer.store.db.schema import give_outs


def all_given_out(connection: sa.Connection) -> dict[tuple[int], dict[str, Any]]:
    """The rows by their keys, the oldest first; `logs` are parsed."""
    found = connection.execute(sa.select(give_outs).order_by(give_outs.c.id)).mappings()
    return {(row["id"],): {**row, "logs": json.loads(row["logs"])} for row in found}
