"""Many rows at once: COPY on PostgreSQL, executemany on SQLite; the same calls on both.

Rows are mappings from column names to Python values, as for an ordinary insert; the columns' types convert them.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import exc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamer.store.db.schema.types import Row

_DRAW = sa.text(
    # The transaction gets its number first, so that readers of coming rows see that it is under way.
    "SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval(pg_get_serial_sequence(:name, 'id')) END"
    " FROM generate_series(1, :count)"
)
_LOOKUP = 2_000
"""Keys in one look-up: far below both databases' limits on parameters."""


def allocate_ids(connection: sa.Connection, table: sa.Table, count: int) -> list[int]:
    """Reserve `count` ascending values of the table's identity, nobody else's."""
    if count == 0:
        return []
    if connection.dialect.name == "sqlite":
        # The writer's lock is ours, so nobody can take these before the rows are there.
        last = connection.execute(
            sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name}
        ).scalar()
        return list(range((last or 0) + 1, (last or 0) + 1 + count))
    drawn = connection.execute(_DRAW, {"name": table.name, "count": count}).scalars()
    return sorted(drawn)


def append(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert rows that cannot collide. All have the keys of the first; other columns get their defaults."""
    if not rows:
        return
    names = tuple(rows[0])
    values = _values(connection.dialect, table, names, rows)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(names))
        connection.exec_driver_sql(
            f"INSERT INTO {_quoted(connection, table.name)} ({_columns(connection, names)}) VALUES ({marks})",  # noqa: S608 - our own tables' names, quoted; values are parameters
            list(values),
        )
    else:
        _copy(connection, table.name, names, values)


def insert_new(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Row], *, unique: Sequence[str]
) -> set[int]:
    """Insert the rows whose `unique` columns are not there yet and return their ids.

    Rows carry their ``id`` (see `allocate_ids`). A row that another transaction is inserting is waited for, in
    the order of the unique columns, so that two writers of the same keys do not deadlock.
    """
    if not rows:
        return set()
    names = tuple(rows[0])
    values = _values(connection.dialect, table, names, rows)
    columns, target = _columns(connection, names), _quoted(connection, table.name)
    keys = _columns(connection, unique)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(names))
        connection.exec_driver_sql(
            f"INSERT INTO {target} ({columns}) VALUES ({marks}) ON CONFLICT ({keys}) DO NOTHING",  # noqa: S608 - as above
            list(values),
        )
        first = min(row["id"] for row in rows)
        return set(connection.execute(sa.select(table.c.id).where(table.c.id >= first)).scalars())
    types = (table.c[name].type.compile(dialect=connection.dialect) for name in names)
    arrays = ", ".join(f"%s::{kind}[]" for kind in types)
    inserted = connection.exec_driver_sql(
        f"INSERT INTO {target} ({columns}) SELECT {columns} FROM unnest({arrays}) AS new ({columns})"  # noqa: S608 - as above
        f" ORDER BY {keys} ON CONFLICT ({keys}) DO NOTHING RETURNING id",
        tuple(list(column) for column in zip(*values, strict=True)),
    )
    return set(inserted.scalars())


def look_up(
    connection: sa.Connection,
    query: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
) -> Iterator[sa.RowMapping]:
    """Run `query` for those rows whose `columns` equal one of `keys`."""
    for found in _looked_up(connection, query, columns, keys):
        yield from found.mappings()


def look_up_rows(
    connection: sa.Connection,
    query: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
) -> list[tuple[Any, ...]]:
    """Do as `look_up` does, for many rows: they come as tuples."""
    return [tuple(row) for found in _looked_up(connection, query, columns, keys) for row in found.all()]


def _looked_up(
    connection: sa.Connection,
    query: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
) -> Iterator[sa.CursorResult[Any]]:
    width = max(1, _LOOKUP // len(columns))
    for start in range(0, len(keys), width):
        chunk = keys[start : start + width]
        if len(columns) == 1:
            condition = columns[0].in_([key[0] for key in chunk])
        else:
            condition = sa.tuple_(*columns).in_([tuple(key) for key in chunk])
        yield connection.execute(query.where(condition))


def _copy(
    connection: sa.Connection, table: str, names: Sequence[str], values: Iterator[tuple[Any, ...]]
) -> None:
    statement = f"COPY {_quoted(connection, table)} ({_columns(connection, names)}) FROM STDIN"
    driver: Any = connection.connection.dbapi_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in values:
                copy.write_row(row)
    except psycopg.Error as error:
        # COPY goes past SQLAlchemy, so what it does with a driver's error is done here.
        dialect: Any = connection.dialect
        gone = dialect.is_disconnect(error, driver, None)
        if gone:
            connection.invalidate(error)
        raise exc.DBAPIError.instance(
            statement, None, error, psycopg.Error, connection_invalidated=gone, dialect=dialect
        ) from error


def _values(
    dialect: sa.Dialect, table: sa.Table, names: tuple[str, ...], rows: Sequence[Row]
) -> Iterator[tuple[Any, ...]]:
    converters = _converters(dialect, table, names)
    pick = itemgetter(*names)
    for row in rows:
        values = pick(row)
        if converters:
            mutable = list(values)
            for index, convert in converters:
                mutable[index] = convert(mutable[index])
            yield tuple(mutable)
        else:
            yield values


@lru_cache(maxsize=64)
def _converters(
    dialect: sa.Dialect, table: sa.Table, names: tuple[str, ...]
) -> tuple[tuple[int, Callable[[Any], Any]], ...]:
    found = []
    for index, name in enumerate(names):
        kind = table.c[name].type.dialect_impl(dialect)
        if isinstance(kind, sa.LargeBinary):
            continue  # bytes go as they are; the driver's wrapper would only cost time
        convert = kind.bind_processor(dialect)
        if convert is not None:
            found.append((index, convert))
    return tuple(found)


def _quoted(connection: sa.Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote(name)


def _columns(connection: sa.Connection, names: Sequence[str]) -> str:
    return ", ".join(_quoted(connection, name) for name in names)
