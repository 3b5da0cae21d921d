"""Connections to SQLite and PostgreSQL, their transactions, and which of their errors are worth a retry."""

from __future__ import annotations

import hashlib
import random
import re
import select
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.pool import ConnectionPoolEntry

from streamer.errors import BadData, DatabaseFault, Unavailable, UnfitText, Unreadable, UsageError, why
from streamer.failpoints import Failpoint, disarmed
from streamer.security.visible import redact_text
from streamer.signing.canonical_json import canonical_json
from streamer.store.db.schema.types import asked_of_text
from streamer.store.db.transport import STATEMENT_MODE, is_pooled, protected, psycopg, to_the_primary

T = TypeVar("T")
P = ParamSpec("P")

SCHEMA = "streamer"
"""The schema that holds all our tables on PostgreSQL."""

BUSY_SECONDS: float = 10
"""How long a writer waits for another's lock before the database counts as unavailable."""

_ASKING_MILLISECONDS = 8
"""A writer on SQLite asks for the lock after 1, 2 and 5 ms, and again so."""

FROZEN_SECONDS: float = 30
"""PostgreSQL ends a transaction that sat idle this long: a stopped worker must not hold its partitions' locks."""

LEASED_SECONDS: float = 5
"""The same under a lease: the next holder needs the rows that a stopped process has locked."""

THINKING_SECONDS: float = 900
"""The same for a transaction that holds nothing others wait for, while it computes."""

_OVER_THE_NETWORK = {
    "connect_timeout": 5,
    "application_name": "streamer",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_ATTEMPTS = 6
_DAMAGED = "the SQLite file is damaged; restore a backup"
_PASSING_SQLITE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_REFUSED_SQLITE = frozenset(
    {
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_RANGE,
    }
)
_REFUSED_POSTGRESQL = ("21", "22", "23", "54")
"""Classes of SQLSTATE that blame a value: cardinality, data, integrity, program limits."""
_TOO_MUCH_MEMORY = "invalid memory alloc request size"
"""What PostgreSQL says, as an internal error, of a value that is larger than any that it keeps."""
_UNSUPPORTED = ("Error binding parameter", "cannot adapt type")
"""How the drivers' messages begin when a value has a type or size that they cannot send; they have no code for it."""
_READ_ONLY = ("default_transaction_read_only", "in_hot_standby")
"""What PostgreSQL 14 and later report of themselves whenever it changes."""
_COLLISIONS = ("40P01", "40001")
"""SQLSTATEs of a deadlock and a serialization failure, which are tried again."""


def parse_url(url: str) -> sa.URL:
    """Read a database URL; raises `UsageError` for one that no store can have.

    ``sqlite:///file`` and ``postgresql://user:password@host/database`` are understood; the latter is always
    spoken with psycopg 3.
    """
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):  # the latter of a port that is no number
        raise UsageError(
            "the database URL cannot be read; write sqlite:///path/to/file.db or"
            " postgresql://user:password@host:5432/database"
        ) from None
    backend = parsed.drivername.partition("+")[0]
    if backend == "postgres":
        backend = "postgresql"
    if backend == "postgresql":
        if not parsed.database:
            raise UsageError(f"the database URL {shown(parsed)} names no database")
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise UsageError("SQLite needs a file (sqlite:///path/to/file.db): several processes share it")
        return parsed.set(drivername="sqlite")
    raise UsageError(f"databases of kind {backend!r} are not supported; use sqlite or postgresql")


def shown(url: sa.URL) -> str:
    """The URL as people may see it: without the passwords of its authority and of its query."""
    return redact_text(url.render_as_string(hide_password=True))


class Database:
    """One database: a pool of connections that threads may share, and the two kinds of transaction.

    The URL is ``sqlite:///file`` or ``postgresql://user:password@host/database``, libpq's
    parameters as its query. `insecure` permits a connection to another machine that is not
    encrypted, or to a server that proves nothing. Whatever writes calls `failpoint` with
    ``in_transaction`` and ``after_transaction``.

    Every call blocks. A connection that breaks, a lock that does not come and a disk that is full
    are `Unavailable`; a text in a SQLite file that is no text, or a damaged file, is `Unreadable`.
    A value that the database cannot keep is `BadData`, a text of another length than its column
    takes `UnfitText`; any other broken constraint is raised as it is, for the caller to say what it
    means. Everything else, such as a missing table, is a `DatabaseFault`.
    """

    def __init__(self, url: str, *, insecure: bool = False, failpoint: Failpoint = disarmed) -> None:
        self.url = parse_url(url)
        self.failpoint = failpoint
        self._checks: tuple[Callable[[sa.Connection], None], ...] = ()
        self.sqlite = self.url.get_backend_name() == "sqlite"
        own: dict[str, Any] = {"connect_args": {"check_same_thread": False, "timeout": BUSY_SECONDS}}
        if not self.sqlite:
            self.url = to_the_primary(protected(self.url, insecure=insecure))
            # Few sessions that know their statements, in place of many that do not.
            own = {"connect_args": _OVER_THE_NETWORK, "pool_use_lifo": True}
        self.engine = sa.create_engine(
            self.url,
            pool_timeout=BUSY_SECONDS,
            json_serializer=_document,
            hide_parameters=True,  # they hold people's texts
            **own,
        )
        if self.sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
            event.listen(self.engine, "before_cursor_execute", _refuse_nul)
            event.listen(self.engine, "handle_error", _refuse_damage)
        else:
            event.listen(self.engine, "connect", _prepare_postgresql, insert=True)
            event.listen(self.engine, "checkin", _note_use)
            event.listen(self.engine, "checkout", _refuse_ended)
            event.listen(self.engine, "begin", _begin_postgresql)
        self._readers = self.engine.execution_options(only_reads=True)
        self._snapshots = self._readers.execution_options(snapshot=True)

    def __str__(self) -> str:
        return shown(self.url)

    @contextmanager
    def reading(self, *, snapshot: bool = False) -> Iterator[sa.Connection]:
        """A transaction that only reads; with `snapshot` every statement sees the same moment."""
        with self.errors(), (self._snapshots if snapshot else self._readers).begin() as connection:
            if snapshot and not self.sqlite:
                # Before its moment: of a month that `giving_out` exchanges later it would see no row.
                connection.exec_driver_sql("LOCK TABLE ONLY decisions, ONLY responses IN ACCESS SHARE MODE")
            yield connection

    def read(
        self, work: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Return what `work` makes of a transaction that only reads, and these arguments."""
        with self.reading() as connection:
            return work(connection, *args, **named)

    def read_at_once(
        self, work: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Do the same where every statement sees the same moment."""
        with self.reading(snapshot=True) as connection:
            return work(connection, *args, **named)

    def rows(self, query: sa.Executable) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Return all rows of one query."""
        with self.reading() as connection:
            return connection.execute(query).all()

    def mappings(self, query: sa.Executable) -> Sequence[sa.RowMapping]:
        """Return all rows of one query by their columns' names."""
        with self.reading() as connection:
            return connection.execute(query).mappings().all()

    def counts(self, *columns: sa.ColumnElement[Any]) -> dict[tuple[Any, ...], int]:
        """Count the rows of a table by the values of these columns."""
        query = sa.select(*columns, sa.func.count()).group_by(*columns)
        return {tuple(values): count for *values, count in self.rows(query)}

    def under(self, check: Callable[[sa.Connection], None]) -> Database:
        """The same database, where whatever writes calls `check` before it commits, and writes nothing if that raises.

        Such a transaction may sit idle for `LEASED_SECONDS` only, whichever process is stopped in it: others wait for its locks.
        """
        other = copy(self)
        other._checks = (*self._checks, check)
        other.engine = self.engine.execution_options(idle_seconds=LEASED_SECONDS)
        return other

    def unwatched(self) -> Database:
        """The same database, where no failpoint is passed: for what is written at any time beside the work."""
        other = copy(self)
        other.failpoint = disarmed
        return other

    def take_time(self, connection: sa.Connection) -> None:
        """Allow this transaction to be idle between two statements for as long as a million rows take.

        Only for one that holds no lock that others wait for; before it takes one, `be_brief`.
        """
        self._idle_at_most(connection, THINKING_SECONDS)

    def be_brief(self, connection: sa.Connection) -> None:
        """From here on a stopped process must not hold up the others: see `FROZEN_SECONDS`."""
        self._idle_at_most(connection, _idle_seconds(connection))

    def _idle_at_most(self, connection: sa.Connection, seconds: float) -> None:
        if not self.sqlite:
            connection.exec_driver_sql(
                f"SET LOCAL idle_in_transaction_session_timeout = '{int(seconds * 1000)}ms'"
            )

    def writing(
        self, work: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Run `work` with these arguments in one transaction and commit it.

        A deadlock or serialization failure rolls back and runs `work` afresh, a few times, and a server that turned
        read-only by another connection, once; `work` must therefore touch nothing but its connection.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with self.errors(), self.engine.begin() as connection:
                    done = work(connection, *args, **named)
                    for check in self._checks:
                        check(connection)
                    self.failpoint("in_transaction")
                self.failpoint("after_transaction")
                return done
            except exc.DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) not in _COLLISIONS:
                    raise
                if attempt + 1 == _ATTEMPTS:
                    raise Unavailable(f"{self}: transactions kept colliding: {_first_line(error)}") from error
            except Unavailable as error:
                if attempt or not _is_read_only(getattr(error.__cause__, "orig", None)):
                    raise
            time.sleep(random.uniform(0.005, 0.02) * 2**attempt)  # noqa: S311  # jitter, no secret
        raise AssertionError("unreachable")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors of the database as what they ask of the caller (see `Database`); the password is never in their text."""
        try:
            yield
        except exc.TimeoutError as error:
            raise Unavailable(f"{self}: every connection is in use") from error
        except exc.DBAPIError as error:
            if STATEMENT_MODE in str(error.orig):
                raise UsageError(
                    f"{self}: the pooler gives each statement another session, and so permits no transactions; let it"
                    " pool transactions (PgBouncer: pool_mode = transaction), or connect to PostgreSQL itself"
                ) from error
            if _is_read_only(error.orig):
                self.engine.dispose()  # after a failover another server takes writes
            if _may_pass(error):
                raise Unavailable(f"{self}: {_first_line(error)}") from error
            if (
                isinstance(error.orig, sqlite3.DatabaseError)
                and _sqlite_code(error.orig) == sqlite3.SQLITE_NOTADB
            ):
                raise UsageError(f"{self.url.database} is not a SQLite database") from error
            if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                raise UsageError(
                    f"{self}: this database user lacks the rights to do it: {_first_line(error)}. `db upgrade` and"
                    " `db prune` take a member of the role streamer_migrate, everything else one of streamer_app"
                ) from error
            if getattr(error.orig, "sqlstate", None) in _COLLISIONS:
                raise  # tried again by `writing`
            if not isinstance(error, exc.IntegrityError):
                if _blames_a_value(error):
                    raise bad_data(error) from None
                raise DatabaseFault(f"{self}: {_first_line(error)}; `streamer doctor` shows more") from error
            if (asked := asked_of_text(_constraint(error))) is not None:
                raise UnfitText(f"{asked}; nothing was written") from None
            if isinstance(error.orig, psycopg.Error) and error.orig.diag.message_detail is not None:
                # PostgreSQL's detail quotes the row, people's texts included; logs must not.
                bare = type(error.orig)(error.orig.diag.message_primary or "")
                raise type(error)(error.statement, None, bare, hide_parameters=True) from None
            raise
        except exc.StatementError as error:
            if error.orig is None or isinstance(error.orig, exc.SQLAlchemyError):
                raise  # SQLAlchemy's own complaints are not about values
            raise bad_data(error) from None

    def make_file(self) -> None:
        """Make a SQLite file, and its folder, where there is none; raises `UsageError` when it cannot be.

        It will hold people's texts and the gates' secrets, so that only its owner may read it.
        """
        if not self.sqlite or self.url.database is None:
            return
        path = Path(self.url.database)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            raise UsageError(f"the database {path} cannot be created: {why(error)}") from None

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()


@contextmanager
def unless_there(constraint: str, error: Exception) -> Iterator[None]:
    """Raise this error where another process wrote a row of this key a moment earlier."""
    try:
        yield
    except exc.IntegrityError as broken:
        if constraint in str(broken.orig):
            raise error from None
        raise


def upsert(connection: sa.Connection, table: sa.Table) -> Any:
    """An insert of this database's kind, with its ``on_conflict_do_update`` and ``on_conflict_do_nothing``."""
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


def _document(value: object) -> str:
    return canonical_json(value).decode("utf-8")


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    # The driver's own habit of opening transactions is off; `_begin_sqlite` says which kind it is to be.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except UnicodeDecodeError:
        # Not even SQLite's message can be read: it quotes the file.
        raise Unreadable(_DAMAGED) from None
    # FULL, not NORMAL: after a power cut NORMAL may lose the last commits of a WAL, whose actions are
    # published already; decided again under a newer policy they could contradict what consumers hold.
    # The price is one fsync for each group commit.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _refuse_damage(context: ExceptionContext) -> None:
    """Describe what SQLite cannot read without quoting its bytes: they may be people's texts."""
    error = context.original_exception
    if not isinstance(error, sqlite3.Error):
        return
    if undecodable := re.match(r"Could not decode to UTF-8 column '([^']*)'", str(error)):
        raise Unreadable(f"a value of the column {undecodable[1]} is no text") from None
    if _sqlite_code(error) == sqlite3.SQLITE_CORRUPT:
        raise Unreadable(_DAMAGED) from None


def _refuse_nul(
    _connection: sa.Connection,
    _cursor: object,
    _sql: str,
    parameters: Any,
    _context: object,
    executemany: bool,
) -> None:
    """Refuse what PostgreSQL cannot keep: a record must be the same on both."""
    for row in parameters if executemany else (parameters,):
        for value in row.values() if isinstance(row, dict) else row:
            if type(value) is str and "\0" in value:
                raise BadData("the database refuses a value: a text with a NUL character")


def _begin_sqlite(connection: sa.Connection) -> None:
    if connection.get_execution_options().get("only_reads", False):
        connection.exec_driver_sql("BEGIN DEFERRED")
        return
    # A writer takes the lock at once: one that reads first and upgrades later can fail without waiting. There is no queue for it,
    # and SQLite asks ever more rarely: whoever writes without pause would keep out a closing, so we ask again from the start.
    deadline = time.monotonic() + BUSY_SECONDS
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {_ASKING_MILLISECONDS}")
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except exc.OperationalError as error:
                busy = (
                    isinstance(error.orig, sqlite3.Error) and _sqlite_code(error.orig) == sqlite3.SQLITE_BUSY
                )
                if not busy or time.monotonic() >= deadline:
                    raise
            else:
                return
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _prepare_postgresql(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    # The driver's own habit of opening transactions is off; `_begin_postgresql` opens them, with their settings.
    connection.autocommit = True
    # The driver would deallocate all prepared statements, ours too, after each rollback.
    connection.prepare_threshold = None
    # A pooler gives each transaction another session, which knows none of this connection's, or
    # another client's by the same name.
    record.info["prepared"] = None if is_pooled(connection) else {}


def _note_use(_connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    record.info["used"] = True


def _refuse_ended(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Open another connection in place of one that the server has ended since its last use, or that turned read-only.

    Either it says unasked; the latter beside an answer, so that reads leave a former primary, too.
    """
    said = select.poll()
    said.register(connection.fileno(), select.POLLIN)
    read_only = any(connection.info.parameter_status(name) == "on" for name in _READ_ONLY)
    if record.info.get("used") and (read_only or said.poll(0)):
        raise exc.DisconnectionError


def _is_read_only(error: object) -> bool:
    return isinstance(error, psycopg.errors.ReadOnlySqlTransaction)


def _begin_postgresql(connection: sa.Connection) -> None:
    # In each transaction and for it alone, in one round trip: what a session was set to, a pooler may give to somebody
    # else, and our next transaction a session that was never set.
    options = connection.get_execution_options()
    # Whatever the server's default: after waiting for a lock, what was committed meanwhile must be visible.
    level = "REPEATABLE READ" if options.get("snapshot", False) else "READ COMMITTED"
    statements = [
        f"BEGIN ISOLATION LEVEL {level}",
        f"SET LOCAL search_path = {SCHEMA}",
        "SET LOCAL timezone = 'UTC'",
        f"SET LOCAL lock_timeout = {int(BUSY_SECONDS * 1000)}",
        f"SET LOCAL idle_in_transaction_session_timeout = {int(_idle_seconds(connection) * 1000)}",
    ]
    if not options.get("only_reads", False):
        # As with SQLite: a crash must not lose what was published, whatever the server's default.
        statements.append(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.exec_driver_sql("; ".join(statements))


def _idle_seconds(connection: sa.Connection) -> float:
    return float(connection.get_execution_options().get("idle_seconds", FROZEN_SECONDS))


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code (the low byte of an extended one); 0 when the driver raised by itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _may_pass(error: exc.DBAPIError) -> bool:
    original: Any = error.orig
    if isinstance(original, sqlite3.Error):
        return _sqlite_code(original) in _PASSING_SQLITE
    if original.sqlstate in _COLLISIONS:
        return False  # tried again by `writing`
    if error.connection_invalidated:
        return True
    # A program limit that a value is beyond (class 54) is an operational error to the driver, and stays one forever.
    return not _blames_a_value(error) and isinstance(
        original, (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)
    )


def _blames_a_value(error: exc.DBAPIError) -> bool:
    """Whether other values may pass where these did not."""
    original: Any = error.orig
    if isinstance(original, sqlite3.Error):
        return _sqlite_code(original) in _REFUSED_SQLITE or str(original).startswith(_UNSUPPORTED)
    if original.sqlstate is None:  # the driver's own error
        return isinstance(original, psycopg.DataError) or str(original).startswith(_UNSUPPORTED)
    return original.sqlstate.startswith(_REFUSED_POSTGRESQL) or _TOO_MUCH_MEMORY in str(original)


def bad_data(error: exc.StatementError) -> BadData:
    """The error for a value that the database refuses, without the value."""
    if isinstance(error, exc.IntegrityError):  # its first line has only our own names
        return BadData(f"the database refuses a row: {_first_line(error)}")
    state = getattr(error.orig, "sqlstate", None)
    return BadData(
        f"the database refuses a value: {type(error.orig).__name__}"
        + (f", SQLSTATE {state}" if state else "")
    )


def _constraint(error: exc.IntegrityError) -> str:
    """The name of the broken constraint; empty where the database does not name it."""
    if isinstance(error.orig, psycopg.Error):
        return error.orig.diag.constraint_name or ""
    return str(error.orig).removeprefix("CHECK constraint failed: ")


def _first_line(error: exc.StatementError) -> str:
    return str(error.orig).strip().partition("\n")[0]


def absolute_url(url: str) -> str:
    """Return `url` with the path of a SQLite file made absolute, for a process in another directory."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database is not None:
        parsed = parsed.set(database=str(Path(parsed.database).resolve()))
    return parsed.render_as_string(hide_password=False)


def _key(name: str) -> int:
    digest = hashlib.sha256(f"streamer.lock.v1\x00{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


_NO_EVIDENCE = _key("writes neither batches nor labels")


def writes_no_evidence(connection: sa.Connection) -> None:
    """Say of this transaction that it writes neither batches nor labels: nobody who reads these has to wait for its end."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _NO_EVIDENCE})


def first_unfinished() -> sa.TextClause:
    """The least id of a transaction that has begun by the PostgreSQL snapshot ``s``, has not ended, and may write evidence.

    Where there is none, the first id that is not given yet.
    """
    unsigned = _NO_EVIDENCE % 2**64
    return sa.text(
        "(SELECT coalesce(min(x::text::bigint), pg_snapshot_xmax(s)::text::bigint) FROM pg_snapshot_xip(s) AS x"
        " WHERE x::xid NOT IN (SELECT own.transactionid FROM pg_locks AS told"
        " JOIN pg_locks AS own USING (virtualtransaction)"
        " WHERE told.locktype = 'advisory' AND told.objsubid = 1"
        " AND told.classid = :high AND told.objid = :low"
        " AND told.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.transactionid IS NOT NULL))"
    ).bindparams(high=unsigned >> 32, low=unsigned % 2**32)
