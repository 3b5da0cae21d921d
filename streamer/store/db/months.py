"""Tables that PostgreSQL keeps month by month: they are partitioned by the number of their batch.

Each month has numbers of its own. Once a month has its partitions, the sequence of batches moves on to its numbers, so that
keys, queries and the order of numbers are the same with one partition and with a hundred.
"""

from datetime import datetime

import sqlalchemy as sa

from streamer.errors import UsageError
from streamer.store.db.engine import Database
from streamer.store.db.migrate import alone, require_migrated
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import MONTH, MONTHLY

_LOCK_SECONDS = 10
"""How long to wait for a table in use."""


def make_months(url: str, *, now: datetime, ahead: int, insecure: bool = False) -> list[str]:
    """Make the partitions of this month and of the next ones, and give new batches this month's numbers; safe to repeat.

    Readers are not waited for.

    Parameters
    ----------
    now
        Its month in UTC is this month. Batches keep the numbers of the month before until this is called.
    ahead
        How many months after this one, at least 0.

    Returns
    -------
    list of str
        The partitions that were made.

    Raises
    ------
    UsageError
        When the database is SQLite or not migrated, or its user may not change tables.
    Unavailable
        When the database is unavailable, or a table stays in use.
    """
    database = Database(url, insecure=insecure)
    try:
        if database.sqlite:
            raise UsageError("SQLite has no partitions; only PostgreSQL keeps tables month by month")
        require_migrated(database)
        this = now.year * 12 + now.month - 1
        with alone(database, _LOCK_SECONDS) as connection:
            there = set(sa.inspect(connection).get_table_names())
            made = [
                _make(connection, table, month)
                for month in range(this, this + ahead + 1)
                for table in metadata.sorted_tables
                if table.dialect_options["postgresql"]["partition_by"] == MONTHLY
                and _name(table, month) not in there
            ]
            # Only this function moves the sequence, alone, and no number of a later month is given out before.
            connection.execute(
                sa.text(
                    "SELECT setval(name, :first, false) FROM pg_get_serial_sequence('batches', 'id') AS name"
                    " WHERE coalesce(pg_sequence_last_value(CAST(name AS regclass)), 0) < :first"
                ),
                {"first": this * MONTH},
            )
        return made
    finally:
        database.close()


def _make(connection: sa.Connection, table: sa.Table, month: int) -> str:
    name = _name(table, month)
    # A table that is made as a partition would wait for whoever reads, and all others behind it.
    connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table.name} INCLUDING ALL)")
    connection.exec_driver_sql(
        f"ALTER TABLE {table.name} ATTACH PARTITION {name}"
        f" FOR VALUES FROM ({month * MONTH}) TO ({(month + 1) * MONTH})"
    )
    return name


def _name(table: sa.Table, month: int) -> str:
    return f"{table.name}_{month // 12}_{month % 12 + 1:02}"
