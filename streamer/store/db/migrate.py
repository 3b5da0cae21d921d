"""Upgrading a database's schema to this version's, and checking whether it is.

Alembic is imported where something is migrated or compared: every command and service starts here, and only looks whether
the revision is right.

Tables that PostgreSQL keeps month by month: they are partitioned by the number of their batch.

Each month has numbers of its own. Once a month has its partitions, the sequence of batches moves on to its numbers, so that
keys, queries and the order of numbers are the same with one partition and with a hundred.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from streamer.errors import Unavailable, UsageError
from streamer.store.db import roles
from streamer.store.db.engine import SCHEMA, Database
from streamer.store.db.schema import metadata, progress
from streamer.store.db.schema.decisions import ONLY_ON_SQLITE
from streamer.store.db.schema.types import MONTH, MONTHLY, is_month
from streamer.store.db.transport import psycopg

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

T = TypeVar("T")

VERSION_TABLE = "schema_version"
_VERSIONS = sa.table(VERSION_TABLE, sa.column("version_num", sa.Text), sa.column("serves", sa.Text))

COMPARED: dict[str, Any] = {
    "target_metadata": metadata,
    "version_table": VERSION_TABLE,
    "compare_type": True,
    "include_name": lambda name, _kind, _parents: name != ONLY_ON_SQLITE and not is_month(name),
    "include_object": lambda one, name, kind, _reflected, _other: (
        name != ONLY_ON_SQLITE
        and not (
            kind == "foreign_key_constraint" and is_month(one.elements[0].target_fullname.split(".")[-2])
        )
    ),
}
"""How Alembic compares a database with our tables."""

_PACKAGE = Path(__file__).parents[2]
_MIGRATIONS = next(
    folder
    for folder in (_PACKAGE / "migrations", _PACKAGE.parent / "migrations")
    if (folder / "env.py").is_file()
)
"""In a wheel they lie within the package, in the repository beside it."""

_ADVISORY_LOCK = 0x53_54_52_45_41_4D  # "STREAM"
LOCK_SECONDS: float = 10
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SchemaState:
    """A database's revision. `revision` is None before the first migration. `drift` names each difference between its
    tables and this version's, as Alembic describes it; it is empty where nothing was compared: at another revision than
    `head`, and after a migration. `before` is where a migration found it. `serves`: a newer version made it, and says that
    this one works on it.
    """

    revision: str | None
    head: str
    drift: tuple[str, ...]
    before: str | None = None
    serves: bool = False

    @property
    def current(self) -> bool:
        """True when nothing has to be done."""
        return self.serves or (self.revision == self.head and not self.drift)


def migrate(
    url: str, revision: str = "head", *, insecure: bool = False, lock_seconds: float = LOCK_SECONDS
) -> SchemaState:
    """Bring the database to `revision` (the newest) and return its revision; `check` compares its tables.

    A SQLite file and its folder are made when absent. Two may run at once: the second waits and finds nothing
    to do. It is one transaction: all of it or nothing. On PostgreSQL a table that stays locked for `lock_seconds`
    makes it give up rather than queue up all traffic behind itself. Raises `UsageError` when the
    URL cannot be read, or the database was made by another version that this one does not read;
    `Unavailable` when the server cannot be reached or a lock does not come.
    """
    with closing(Database(url, insecure=insecure)) as database:
        database.make_file()
        before = again_after_collisions(lambda: _upgrade(database, revision, lock_seconds), database)
        reached, serves = _revision(database)
        return SchemaState(reached, head(), (), before, serves)


def _upgrade(database: Database, revision: str, lock_seconds: float) -> str | None:
    """Returns the revision that the database was at."""
    from alembic import command

    with alone(database, lock_seconds) as connection:
        before, serves = _known_revision(connection)
        if not serves:
            command.upgrade(_config(connection), revision)
        return before


def again_after_collisions(work: Callable[[], T], database: Database) -> T:
    """Run a transaction, and again if it and another one waited for each other and it was the one that was ended."""
    for attempt in range(_ATTEMPTS):
        try:
            return work()
        except Unavailable:
            # Another migration holds the file's lock, for longer than one wait.
            if not database.sqlite or attempt + 1 == _ATTEMPTS:
                raise
        except exc.DBAPIError as error:
            if not isinstance(error.orig, psycopg.errors.DeadlockDetected):
                raise
            if attempt + 1 == _ATTEMPTS:
                raise Unavailable(
                    f"{database}: other transactions kept colliding with this one, which has changed nothing"
                ) from error
        time.sleep(random.uniform(0.2, 1.0))  # noqa: S311  # jitter, no secret
    raise AssertionError("unreachable")


def check(url: str, *, insecure: bool = False) -> str | None:
    """Say in one sentence what is wrong with the database's schema; None when it is this version's.

    Raises as `schema_state` does.
    """
    state = schema_state(url, insecure=insecure)
    if state.current:
        return None
    if state.revision is None:
        return "the database has no tables yet"
    if state.revision != state.head:
        return f"the schema is at revision {state.revision}, not {state.head}"
    return f"the tables differ from revision {state.head}: {'; '.join(state.drift)}"


def schema_state(url: str, *, insecure: bool = False) -> SchemaState:
    """Return a database's revision and drift, changing nothing.

    Raises `UsageError` when the URL cannot be read, or its SQLite file is not there; `Unavailable`
    when the server cannot be reached.
    """
    with closing(Database(url, insecure=insecure)) as database:
        require_file(database)
        with database.reading() as connection:
            revision, serves = _known_revision(connection)
            if revision != head():
                return SchemaState(revision, head(), (), serves=serves)
            from alembic.autogenerate import compare_metadata
            from alembic.migration import MigrationContext

            context = MigrationContext.configure(connection, opts=COMPARED)
            drift = tuple(str(difference) for difference in compare_metadata(context, metadata))
        return SchemaState(revision, head(), drift)


def require_migrated(database: Database) -> None:
    """Raise `UsageError`, saying what to do, unless the schema is this version's, or a newer one's that serves it."""
    require_file(database)
    revision, serves = _revision(database)
    if revision != head() and not serves:
        found = "has no tables yet" if revision is None else f"is at revision {revision}, not {head()}"
        raise UsageError(f"the database {database} {found}; run `streamer db upgrade`")


def require_file(database: Database) -> None:
    """Raise `UsageError` when a SQLite database is not there: opening it would quietly make an empty one."""
    if not database.sqlite or database.url.database is None:
        return
    if not Path(database.url.database).is_file():
        raise UsageError(f"there is no database {database.url.database}; `streamer db upgrade` creates it")


def head() -> str:
    """The newest revision that this version knows."""
    return revisions()[-1]


@cache
def revisions() -> tuple[str, ...]:
    """Every revision that this version knows, the oldest first: files are named ``rNNNN_what.py`` after theirs."""
    files = (_MIGRATIONS / "versions").glob("r[0-9][0-9][0-9][0-9]_*.py")
    return tuple(sorted(file.name[1:5] for file in files))


def note_served(connection: sa.Connection, scripts: ScriptDirectory) -> None:
    """Write beside the revision the oldest one whose programs work on it, as its file says, for programs that have no such file."""
    revision = connection.scalar(sa.select(_VERSIONS.c.version_num))
    if revision is not None:
        serves = scripts.get_revision(revision).module.serves
        connection.execute(sa.update(_VERSIONS).values(serves=serves))


def _revision(database: Database) -> tuple[str | None, bool]:
    return database.read(_known_revision)


def _known_revision(connection: sa.Connection) -> tuple[str | None, bool]:
    """Returns the revision, and whether a newer version made it that serves this one."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None, False
    # All columns: a database of before the baseline has the first alone.
    found = connection.execute(sa.select(sa.text("*")).select_from(_VERSIONS)).one_or_none()
    if found is None:
        return None, False
    revision: str = found.version_num
    if revision in revisions():
        return revision, False
    serves = found._mapping.get("serves") or revision
    if revision > head() >= serves:
        return revision, True
    raise UsageError(f"the database is at revision {revision}, {_not_read(revision, serves)}")


def _not_read(revision: str, serves: str) -> str:
    """Say whose revision this is, that we do not know, and what to do."""
    if revision > head():
        return (
            f"which a newer version made, for programs of revision {serves} and later, and this one is of {head()}; "
            "upgrade streamer"
        )
    return (
        f"which an older version made, and this one reads databases made from revision {revisions()[0]} on. To keep the old "
        "record, export it in a checkout with the tag pre-0.1: `git checkout pre-0.1 && streamer db upgrade && streamer audit "
        "export --out BUNDLE.zip && git checkout -`. Then name another database and run `streamer db upgrade`"
    )


def _config(connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def alone(database: Database, lock_seconds: float = LOCK_SECONDS) -> Iterator[sa.Connection]:
    """Open the transaction of a migration: no other one runs beside it, and everything is done or nothing.

    At its end the roles may do with the tables what they may, where roles are in use.
    """
    with database.errors(), database.engine.begin() as connection:
        if not database.sqlite:  # there the writer's lock is enough
            connection.execute(sa.text("SET LOCAL lock_timeout = '120s'"))
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})
            connection.execute(sa.text(f"SET LOCAL lock_timeout = '{max(1, int(lock_seconds * 1000))}ms'"))
            # Asked first: a role that owns the schema need not be allowed to create one.
            if not sa.inspect(connection).has_schema(SCHEMA):
                connection.execute(sa.text(f"CREATE SCHEMA {SCHEMA}"))
            roles.become_owner(connection)
            revision, serves = _known_revision(connection)
            if not serves and revision != head() and sa.inspect(connection).has_table(progress.name):
                # Every commit locks it first: workers then wait here, and hold nothing that a migration needs.
                connection.execute(sa.text("LOCK TABLE progress IN ACCESS EXCLUSIVE MODE"))
        yield connection
        if not database.sqlite:
            roles.grant(connection)


_LOCK_SECONDS = 10
"""How long to wait for a table in use."""


def make_months(url: str, *, now: datetime, ahead: int, insecure: bool = False) -> list[str]:
    """Make the partitions of this month and of `ahead` (>= 0) next ones, give new batches this
    month's numbers, and return the partitions that were made. Safe to repeat.

    The month is that of `now` in UTC; batches keep the numbers of the month before until this is
    called. Readers are not waited for. Raises `UsageError` when the database is SQLite or not
    migrated, or its user may not change tables; `Unavailable` when the database is unavailable, or
    a table stays in use.
    """
    with closing(Database(url, insecure=insecure)) as database:
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
