"""Many rows at once, and several statements in one round trip: arrays in a pipeline on PostgreSQL, executemany on SQLite.

Rows are mappings from column names to Python values, as for an ordinary insert; the columns' types convert them.
"""

import json
import select
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from streamer.store.db.schema.types import Columns, Row, columns_of
from streamer.store.db.transport import psycopg

_DRAW = sa.text(
    # The transaction gets its number first, so that readers of coming rows see that it is under way.
    "SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval(ids.name) END"
    " FROM (SELECT CAST(pg_get_serial_sequence(:name, 'id') AS regclass) AS name OFFSET 0) AS ids,"
    " generate_series(1, CAST(:count AS integer))"
)
_DRAW_SQLITE = sa.text(
    # The writer's lock is ours, so nobody can take these before the rows are there.
    "WITH RECURSIVE ids (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM ids WHERE n < :count)"
    " SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = :name), 0) + n FROM ids WHERE n <= :count"
)
_LOOKUP = 2_000
"""Keys in one look-up: far below both databases' limits on parameters."""
_AT_ONCE = 1_000
"""Rows that are fetched at a time."""
_UNTYPED: Any = sa.types.NULLTYPE
"""Of keys: a text would be read as an array anew for each row that a scan compares with it."""


class Statement(NamedTuple):
    """What `execute_all` runs: SQL in the server's form (``$1``) with its parameters, or a clause with named ones.

    A clause is compiled once and its results come as the driver gives them, so neither bounds that expand nor column types
    that convert results can be in it.
    """

    sql: str | sa.Executable
    parameters: Any = ()


def execute_all(connection: sa.Connection, statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """Run the statements one after another and wait for all of them together; returns the rows of each.

    The first one that fails is raised, and what comes after it is not run.
    """
    if connection.dialect.name == "sqlite":
        rows = []
        for sql, parameters in statements:
            run: Any = connection.exec_driver_sql if isinstance(sql, str) else connection.execute
            found = run(sql, parameters)
            rows.append([*map(tuple, found)] if found.returns_rows else [])
        return rows
    if not statements:
        return []
    driver: Any = connection.connection.dbapi_connection
    given = [_in_driver_form(connection.dialect, *one) for one in statements]
    try:
        return _run_together(driver, connection.info, given)
    except psycopg.Error as error:  # as SQLAlchemy does with a driver's error
        dialect: Any = connection.dialect
        gone = dialect.is_disconnect(error, driver, None)
        if gone:
            connection.invalidate(error)
        raise exc.DBAPIError.instance(
            None, None, error, psycopg.Error, connection_invalidated=gone, dialect=dialect
        ) from error
    finally:
        if driver.pgconn.pipeline_status:  # interrupted in the middle
            connection.invalidate()


def _run_together(
    driver: Any, session: dict[Any, Any], statements: Sequence[tuple[str, Sequence[Any]]]
) -> list[list[tuple[Any, ...]]]:
    """Send all statements at once, in libpq's pipeline, a Sync at its end, and wait for the results.

    The driver's own pipeline sends each statement as soon as it is ready, and a Flush at the end.
    Either way PostgreSQL waits for the rest, and a process that is stopped then keeps its locks for
    as long as it is: only a transaction that sits idle is ended (`FROZEN_SECONDS`). So all values
    are written before the first statement is sent.
    """
    adapted, form = psycopg.adapt.Transformer(driver), psycopg.adapt.PyFormat.AUTO
    written = []
    for text, parameters in statements:
        values = adapted.dump_sequence(parameters, [form] * len(parameters))
        written.append(((text.encode(), adapted.types), values, adapted.formats))
    prepared = session.get("prepared")  # None: not in this session
    fresh: dict[Any, bytes] = {}
    sent: list[Any] = []  # what is prepared, and None for what is run
    server = driver.pgconn
    server.enter_pipeline_mode()
    for key, values, formats in written:
        if prepared is None:
            server.send_query_params(key[0], values, key[1], formats)
        else:
            if key not in prepared and key not in fresh:
                fresh[key] = b"streamer_%d" % (len(prepared) + len(fresh))
                server.send_prepare(fresh[key], *key)
                sent.append(key)
            server.send_query_prepared(prepared.get(key) or fresh[key], values, formats)
        sent.append(None)
    server.pipeline_sync()
    results = _results(server)
    done = psycopg.pq.ExecStatus.COMMAND_OK
    for key, result in zip(sent, results, strict=False):
        if key and prepared is not None and result.status == done:
            prepared[key] = fresh[key]
    for result in results:
        if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, driver.info.encoding)
    if len(results) < len(sent):
        raise psycopg.OperationalError("the connection is lost")
    rows = []
    for key, result in zip(sent, results, strict=True):
        if key is None:
            adapted.set_pgresult(result)
            rows.append(adapted.load_rows(0, result.ntuples, tuple))
    return rows


def _results(server: Any) -> list[Any]:
    """Send what is not sent yet, return the result of each command, and end the pipeline."""
    status, changed = psycopg.pq.ExecStatus, select.poll()
    changed.register(server.socket, select.POLLIN | select.POLLOUT)
    while server.flush():
        if changed.poll()[0][1] & select.POLLIN:
            server.consume_input()
    changed.modify(server.socket, select.POLLIN)
    results: list[Any] = []
    while not results or results[-1].status != status.PIPELINE_SYNC:
        while server.is_busy():
            changed.poll()
            server.consume_input()
        result = server.get_result()
        if result is not None:
            results.append(result)
        elif server.status != psycopg.pq.ConnStatus.OK:
            return results
    server.exit_pipeline_mode()
    return results[:-1]


def _in_driver_form(
    dialect: sa.Dialect, sql: str | sa.Executable, parameters: Any
) -> tuple[str, Sequence[Any]]:
    if isinstance(sql, str):
        return sql, parameters
    text, processors = _compiled(dialect, sql)
    return text, [convert(parameters[name]) for name, convert in processors]


@lru_cache(maxsize=64)
def _compiled(dialect: sa.Dialect, statement: Any) -> tuple[str, list[tuple[str, Callable[[Any], Any]]]]:
    kind: Any = type(dialect)
    compiled = statement.compile(dialect=kind(paramstyle="numeric_dollar"))
    return str(compiled), [
        (name, compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect) or _as_it_is)
        for name in compiled.positiontup or ()
    ]


def _as_it_is(value: Any) -> Any:
    return value


def drawing(connection: sa.Connection, table: sa.Table, count: int) -> Statement:
    """What reserves `count` values of the table's identity, nobody else's."""
    return Statement(
        _DRAW_SQLITE if connection.dialect.name == "sqlite" else _DRAW, {"name": table.name, "count": count}
    )


def allocate_ids(connection: sa.Connection, table: sa.Table, count: int) -> list[int]:
    """Reserve `count` ascending values of the table's identity, nobody else's."""
    (drawn,) = execute_all(connection, [drawing(connection, table, count)] if count else []) or [[]]
    return sorted(one for (one,) in drawn)


def append(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert rows that cannot collide. All have the keys of the first; other columns get their defaults."""
    execute_all(connection, insert(connection, table, rows))


def insert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Row], *, ending: str = "", order: str = ""
) -> list[Statement]:
    """What `append` runs: one statement, or none without rows."""
    names = tuple(rows[0]) if rows else ("",)
    # The first once more, and left out: of one name alone there would be no tuples.
    columns = columns_of(names, map(itemgetter(*names, names[0]), rows))
    return insert_columns(connection, table, columns, ending=ending, order=order)


def insert_columns(
    connection: sa.Connection,
    table: sa.Table,
    columns: Columns,
    *,
    ending: str = "",
    order: str = "",
) -> list[Statement]:
    """What inserts rows that are given by columns; nothing where there are none."""
    if not any(columns.values()):
        return []
    text, writers = _inserting(connection.dialect, table, tuple(columns), order, ending)
    written = zip(writers, columns.values(), strict=True)
    if connection.dialect.name != "sqlite":
        return [Statement(text, [write(column) for write, column in written])]
    converted = [map(convert, column) if convert else column for convert, column in written]
    return [Statement(text, list(zip(*converted, strict=True)))]


@lru_cache(maxsize=256)
def _inserting(
    dialect: Any, table: sa.Table, names: tuple[str, ...], order: str, ending: str
) -> tuple[str, list[Any]]:
    """The SQL of an insert, and what writes a column, on SQLite a value."""
    target, columns = _quoted(dialect, [table.name]), _quoted(dialect, names)
    kinds = [table.c[name].type.dialect_impl(dialect) for name in names]
    # Our own tables' names, quoted; values are parameters.
    if dialect.name == "sqlite":
        values = f"VALUES ({', '.join('?' * len(names))})"
        writers: list[Any] = [kind.bind_processor(dialect) for kind in kinds]
    else:
        types = [f"{table.c[name].type.compile(dialect=dialect)}[]" for name in names]
        arrays = ", ".join(f"${place}::{kind}" for place, kind in enumerate(types, 1))
        values = f"SELECT {columns} FROM unnest({arrays}) AS new ({columns}){order}"  # noqa: S608
        writers = [_writer(dialect, kind) for kind in kinds]
    return f"INSERT INTO {target} ({columns}) {values}{ending}", writers


def insert_new(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Row], *, unique: Sequence[str]
) -> set[int]:
    """Insert the rows whose `unique` columns are not there yet and return their ids.

    Rows carry their ``id`` (see `allocate_ids`). A row that another transaction is inserting is waited for, in
    the order of the unique columns, so that two writers of the same keys do not deadlock.
    """
    if not rows:
        return set()
    keys = _quoted(connection.dialect, unique)
    ending = f" ON CONFLICT ({keys}) DO NOTHING"
    if connection.dialect.name == "sqlite":
        execute_all(connection, insert(connection, table, rows, ending=ending))
        first = min(row["id"] for row in rows)
        return set(connection.execute(sa.select(table.c.id).where(table.c.id >= first)).scalars())
    (inserted,) = execute_all(
        connection,
        insert(connection, table, rows, order=f" ORDER BY {keys}", ending=f"{ending} RETURNING id"),
    )
    return {one for (one,) in inserted}


def look_up(
    connection: sa.Connection,
    query: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
) -> Iterator[sa.RowMapping]:
    """Run `query` for those rows whose `columns` equal one of `keys`."""
    for found in _looked_up(connection, query, columns, keys):
        for part in found.mappings().partitions(_AT_ONCE):  # many times quicker than one by one
            yield from part


def look_up_rows(
    connection: sa.Connection,
    query: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
    *,
    lasting: bool = False,
) -> list[tuple[Any, ...]]:
    """Do as `look_up` does, for many rows: they come as tuples.

    `lasting`: the query is the same object each time, so what is made of it is kept.
    """
    return [
        tuple(row)
        for found in _looked_up(connection, query, columns, keys, lasting=lasting)
        for row in found.all()
    ]


def as_given(result: sa.CursorResult[Any]) -> list[tuple[Any, ...]]:
    """All rows as the driver gives them, for columns whose types convert nothing: in half of the time."""
    return [] if result.cursor is None else list(result.cursor.fetchall())


def _looked_up(
    connection: sa.Connection,
    query: sa.Select[Any],
    columns: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
    *,
    lasting: bool = False,
) -> Iterator[sa.CursorResult[Any]]:
    width = max(1, _LOOKUP // len(columns))
    for start in range(0, len(keys), width):
        chunk = keys[start : start + width]
        if len(columns) == 1:
            made = (_lasting if lasting else _of_keys)(connection.dialect, query, columns[0])
            keyed = _as_keys(connection.dialect, columns[0], [key[0] for key in chunk])
            yield connection.execute(made, {"keys": keyed})
            continue
        if connection.dialect.name == "sqlite" and all(_as_json(value) for key in chunk for value in key):
            wanted = sa.func.json_each(json.dumps(list(dict.fromkeys(map(tuple, chunk))))).table_valued(
                "value", name="wanted"
            )
            condition = sa.and_(
                *(
                    column == sa.func.json_extract(wanted.c.value, f"$[{place}]")
                    for place, column in enumerate(columns)
                )
            )
        else:
            condition = sa.tuple_(*columns).in_([tuple(key) for key in chunk])
        yield connection.execute(query.where(condition))


def _as_json(value: object) -> bool:
    """Whether SQLite reads the same value from JSON; a text would end at its first zero."""
    return isinstance(value, int) or (isinstance(value, str) and "\x00" not in value)


def _of_keys(dialect: sa.Dialect, query: sa.Select[Any], column: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """The query for those rows whose column is one of the parameter `keys`, on PostgreSQL one: thousands cost the driver
    more than the server."""
    if dialect.name == "sqlite":
        return query.where(column.in_(sa.bindparam("keys", expanding=True)))
    keys = sa.cast(sa.bindparam("keys", type_=_UNTYPED), sa.ARRAY(column.type))
    return query.where(column == sa.any_(keys))


_lasting = lru_cache(maxsize=32)(_of_keys)


def _as_keys(dialect: sa.Dialect, column: sa.ColumnElement[Any], values: Sequence[Any]) -> Any:
    if dialect.name == "sqlite":
        return values
    return _writer(dialect, column.type.dialect_impl(dialect))(values)


def _writer(dialect: Any, kind: sa.types.TypeEngine[Any]) -> Callable[[Sequence[Any]], str]:
    """What writes a column as an array; many times quicker than the driver, item by item."""
    numbers = isinstance(kind, sa.Integer | sa.Float | sa.Boolean)
    convert: Any = None if numbers else kind.bind_processor(dialect)
    if isinstance(kind, sa.LargeBinary):
        convert = _hexadecimal
    elif isinstance(kind, sa.JSON):  # its processor wraps the value, for the driver to write it
        convert = _unless_null(dialect._json_serializer)
    written = _numbers if numbers else _texts
    exact = _NOTHING if isinstance(kind, sa.Float) else _EXACT

    def write(values: Sequence[Any]) -> str:
        # Most columns of a group say the same of all its rows.
        alike = type(values[0]) in exact and values.count(values[0]) == len(values)
        given = values[:1] if alike else values
        made = written(given if convert is None else [*map(convert, given)])
        return "{" + ",".join(made * len(values) if alike else made) + "}"

    return write


_NOTHING = frozenset({type(None)})
_EXACT = _NOTHING | {str, bytes, int, bool}
"""Types of which equal values are written alike, other than -0.0 and 0.0."""


def _numbers(values: Sequence[Any]) -> list[str]:
    return ["NULL" if one is None else str(one) for one in values]


def _texts(values: Sequence[Any]) -> list[str]:
    if {*map(type, values)} == {str}:
        joined = "\x00".join(values)
        if joined.count("\x00") == len(values) - 1:  # else the driver refuses it
            return ['"' + _escaped(joined).replace("\x00", '","') + '"']
    return ["NULL" if one is None else f'"{_escaped(str(one))}"' for one in values]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _hexadecimal(value: bytes | None) -> str | None:
    return None if value is None else "\\x" + value.hex()


def _unless_null(convert: Callable[[Any], str]) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else convert(value)


def _quoted(dialect: Any, names: Sequence[str]) -> str:
    return ", ".join(map(dialect.identifier_preparer.quote, names))
