"""Which errors of a database blame a value, which may pass by waiting, and which need somebody to repair it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from streamer.errors import BadData, DatabaseFault, StreamerError, Unavailable, UnfitText, UsageError
from streamer.store.db.bulk_insert import execute_all, insert
from streamer.store.db.engine import Database
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import UtcDateTime

_RAISE = """
CREATE FUNCTION raising(state text, message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING MESSAGE = message, ERRCODE = state; END $$
"""
_BY_SQLSTATE: dict[type[Exception], tuple[str, ...]] = {
    BadData: ("21000", "22001", "22003", "22008", "22021", "22P02", "22P05", "54000", "54001", "54023"),
    exc.IntegrityError: ("23502", "23503", "23505", "23514"),
    Unavailable: ("08006", "53100", "53200", "53300", "55P03", "57014", "57P01", "58030", "25006"),
    DatabaseFault: ("42P01", "42703", "42883", "0A000", "XX000", "XX001", "XX002", "P0001"),
    UsageError: ("42501",),
}


@pytest.fixture
def postgres(postgres_database_url: str) -> Iterator[Database]:
    with closing(Database(postgres_database_url)) as database:
        with database.engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA streamer")
            connection.exec_driver_sql(_RAISE)
        yield database


@pytest.fixture
def sqlite(sqlite_database_url: str) -> Iterator[Database]:
    with closing(Database(sqlite_database_url)) as database:
        yield database


def caught(database: Database, statement: str, *parameters: object) -> Exception:
    def work(connection: sa.Connection) -> None:
        connection.exec_driver_sql(statement, parameters)

    with pytest.raises((StreamerError, exc.SQLAlchemyError, UnicodeError, OverflowError)) as found:
        database.writing(work)
    return found.value


@pytest.mark.parametrize(
    ("kind", "state"),
    [(kind, state) for kind, states in _BY_SQLSTATE.items() for state in states],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_postgresql_by_sqlstate(postgres: Database, kind: type[Exception], state: str) -> None:
    error = caught(postgres, "SELECT raising(%s, 'somebody''s text')", state)
    assert type(error) is kind
    if kind is BadData:
        assert state in str(error)
        assert "somebody" not in str(error)


def test_a_value_larger_than_postgresql_keeps(postgres: Database) -> None:
    error = caught(postgres, "SELECT raising('XX000', 'invalid memory alloc request size 1073741824')")
    assert type(error) is BadData
    assert type(caught(postgres, "SELECT repeat('xx', 1000000000)")) is BadData


@pytest.mark.parametrize(
    "value", ["a\x00b", "\ud800", object(), 10**40], ids=["nul", "surrogate", "object", "large"]
)
def test_what_a_driver_cannot_send_is_no_outage(request: pytest.FixtureRequest, value: object) -> None:
    for name, mark in (("postgres", "%s::text"), ("sqlite", "?")):
        if name == "postgres" and value == 10**40:
            continue  # this it keeps
        error = caught(request.getfixturevalue(name), f"SELECT {mark}", value)
        assert isinstance(error, BadData | UnicodeError | OverflowError)


@pytest.mark.parametrize("name", ["postgres", "sqlite"])
def test_no_text_has_a_nul_however_it_is_written(request: pytest.FixtureRequest, name: str) -> None:
    database, table = (
        request.getfixturevalue(name),
        sa.Table("texts", sa.MetaData(), sa.Column("text", sa.Text)),
    )
    database.writing(table.create)
    rows = [{"text": "a"}, {"text": "a\x00b"}]
    ways: list[Callable[[sa.Connection], object]] = [
        lambda connection: connection.execute(table.insert(), rows[1]),
        lambda connection: connection.execute(table.insert(), rows),
        lambda connection: connection.execute(table.insert().values(rows)),
        lambda connection: execute_all(connection, list(insert(connection, table, rows))),
        lambda connection: connection.execute(table.update().values(rows[1])),
        lambda connection: connection.execute(sa.select(table).where(table.c.text == rows[1]["text"])),
    ]
    for way in ways:
        with pytest.raises(BadData):
            database.writing(way)
    with database.reading() as connection:
        assert connection.execute(sa.select(table)).all() == []


def test_sqlite_by_result_code(sqlite: Database) -> None:
    def work(connection: sa.Connection) -> None:
        connection.exec_driver_sql(
            "CREATE TABLE narrow (id INTEGER PRIMARY KEY, text TEXT CHECK (length(text) < 9))"
        )

    sqlite.writing(work)
    assert type(caught(sqlite, "INSERT INTO absent VALUES (1)")) is DatabaseFault
    assert type(caught(sqlite, "INSERT INTO narrow VALUES (?, 'x')", "no number")) is exc.IntegrityError
    assert type(caught(sqlite, "INSERT INTO narrow VALUES (1, ?)", "x" * 9)) is exc.IntegrityError

    def too_big(connection: sa.Connection) -> None:
        driver = connection.connection.driver_connection
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        connection.exec_driver_sql("INSERT INTO narrow VALUES (1, ?)", ("x" * 2000,))

    with pytest.raises(BadData, match="refuses a value"):
        sqlite.writing(too_big)


def test_a_value_that_cannot_be_converted(sqlite: Database) -> None:
    when = sa.table("somewhere", sa.column("at", UtcDateTime))
    with pytest.raises(BadData, match="ValueError"), sqlite.reading() as connection:
        connection.execute(sa.insert(when).values(at=datetime(2026, 1, 1)))  # noqa: DTZ001


def test_a_text_of_another_length_than_its_column_takes(postgres: Database, sqlite: Database) -> None:
    erasures = metadata.tables["erasures"]
    at = datetime(2026, 11, 20, tzinfo=UTC)
    row = {"id": "a", "at": at, "before": at, "by": "ada", "sooner": False}
    for database in (postgres, sqlite):
        database.writing(erasures.create)
        for reason in ("", "r" * 501):
            insert = erasures.insert().values(row | {"reason": reason})
            with pytest.raises(
                UnfitText, match="reason has 1 to 500 characters in the table erasures; nothing"
            ):
                database.writing(lambda connection, insert=insert: connection.execute(insert))
