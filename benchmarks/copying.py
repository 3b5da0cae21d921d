"""Rows that the program wrote of one batch, written again under other keys by COPY: what a database takes for them at least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import Connection

TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "batches": ("id", {"id": "batch", "batch_id": "name"}),
    "responses": ("batch", {"batch": "batch"}),
    "decisions": ("batch", {"batch": "batch", "action_id": "name"}),
    "outcomes": (
        "batch",
        {"batch": "batch", "partition": "partition", "offset": "offset", "chain_height": "batch"},
    ),
    "pending_messages": ("batch", {"id": "batch", "batch": "batch"}),
}
"""Of each table the column that names the batch, and which columns get another value, by its name in `Template.text`."""


class Template:
    """The rows of the newest batch in one table, as lines of COPY."""

    def __init__(self, table: str, lines: Sequence[str]) -> None:
        self.statement = f"COPY anchor.{table} FROM STDIN"
        self._lines = lines

    @classmethod
    def read(cls, connection: Connection[Any], table: str) -> Self:
        """Read them, and make an empty table ``anchor.<table>`` with the same indexes and checks."""
        batch, keys = TABLES[table]
        connection.execute("CREATE SCHEMA IF NOT EXISTS anchor")
        connection.execute(f"CREATE TABLE IF NOT EXISTS anchor.{table} (LIKE streamer.{table} INCLUDING ALL)")
        found = connection.execute(f"SELECT * FROM streamer.{table} LIMIT 0")
        columns = [column.name for column in found.description or ()]
        with connection.cursor().copy(
            f"COPY (SELECT * FROM streamer.{table} WHERE {batch} ="
            " (SELECT max(batch) FROM streamer.decisions)) TO STDOUT"
        ) as copy:
            text = b"".join(bytes(part) for part in copy).decode()
        lines = []
        for line in text.splitlines():
            fields = [one.replace("%", "%%") for one in line.split("\t")]
            for column, key in keys.items():
                fields[columns.index(column)] = f"%({key})s"
            lines.append("\t".join(fields) + "\n")
        return cls(table, lines)

    def text(self, rows: Sequence[Mapping[str, object]]) -> str:
        """What COPY reads for these batches; each has ``batch``, ``name``, ``partition`` and ``offset``."""
        return "".join(line % row for row in rows for line in self._lines)
