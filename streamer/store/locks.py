"""Locks between processes that outlive a transaction: a run of a gate, and who leads among recalibrators.

On PostgreSQL session-level advisory locks, each on a connection of its own: the server lets go of them when the process
or the connection dies. Beside a SQLite file a folder of lock files, which the kernel lets go of. Neither can be left behind.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

from streamer.errors import TryLater, Unavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamer.store.engine import Database

LEADER = "recalibrator"

_TRY_AGAIN_SECONDS = 0.1


class GateBusy(TryLater):
    """Another process calibrates this gate at the moment."""


class _Lock(Protocol):
    def take(self) -> bool:
        """Take it if nobody has it, and tell whether it is ours; safe to repeat. Raises `Unavailable`."""
        ...

    def release(self) -> None:
        """Let go of it."""
        ...


class Locks:
    """The locks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def leadership(self) -> Leadership:
        """Whoever holds this leads among the recalibrators of this database."""
        return Leadership(self._named(LEADER))

    @contextmanager
    def of_gate(self, gate: str, *, wait_seconds: float) -> Iterator[None]:
        """Hold the right to calibrate a gate.

        Raises
        ------
        GateBusy
            When another process still has it after `wait_seconds`.
        Unavailable
            When the database is away.
        """
        lock = self._named(f"gate-{gate}")
        deadline = time.monotonic() + wait_seconds
        while not lock.take():
            if time.monotonic() >= deadline:
                raise GateBusy(
                    f"another calibration of gate {gate!r} is under way; wait until it is done and run again"
                )
            time.sleep(_TRY_AGAIN_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _named(self, name: str) -> _Lock:
        if self._database.sqlite:
            # One file has one folder, by whatever links it is named.
            return _FileLock(Path(f"{os.path.realpath(self._database.url.database or '')}.locks"), name)
        return _AdvisoryLock(self._database, name)


class Leadership:
    """The right to lead, taken by whoever asks first and kept until `release` or the end of the process."""

    def __init__(self, lock: _Lock) -> None:
        self._lock = lock

    def held(self) -> bool:
        """Take it if nobody has it, and tell whether it is ours now. Raises `Unavailable`, and then it is not."""
        return self._lock.take()

    def release(self) -> None:
        """Let another one lead."""
        self._lock.release()


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


class _AdvisoryLock:
    def __init__(self, database: Database, name: str) -> None:
        self._key = _key(name)
        self._database = database
        self._connection: sa.Connection | None = None

    def take(self) -> bool:
        if self._connection is not None:
            try:
                with self._database.errors():
                    self._connection.execute(sa.text("SELECT 1"))
            except BaseException:
                self._drop()  # the server let go of the lock with the session
                raise
            return True
        with self._database.errors():
            connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._database.errors():
                taken = bool(
                    connection.execute(
                        sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}
                    ).scalar_one()
                )
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        if taken:
            self._connection = connection
        else:
            connection.close()
        return taken

    def release(self) -> None:
        if self._connection is None:
            return
        try:
            with self._database.errors():
                self._connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
        except Unavailable:
            self._drop()
        else:
            self._connection.close()
            self._connection = None

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.invalidate()
            with suppress(Exception):
                connection.close()


class _FileLock:
    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name
        self._descriptor: int | None = None

    def take(self) -> bool:
        try:
            import fcntl
        except ImportError:
            raise UsageError(
                "this system has no locks on files; use PostgreSQL to recalibrate from here"
            ) from None

        if self._descriptor is not None:
            if self._is_still_there(self._descriptor):
                return True
            self.release()  # somebody took the file away: others would lock a new one
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"the lock file {self._path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise Unavailable(f"the lock file {self._path} cannot be locked: {error.strerror}") from error
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _is_still_there(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except OSError:
            return False
