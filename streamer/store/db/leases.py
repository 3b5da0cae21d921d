"""Leases: who leads among recalibrators, who signs, who calibrates a gate, and whose a slot of `streamer serve` is. A row each, with an expiry and an epoch.

A lease belongs to the holder of its row until the row expires; a thread renews it meanwhile. A process that hangs or is cut off
renews nothing, and another one takes the lease over, with the next epoch. Whatever is written under a lease reads the row
in the transaction that writes, with a lock that a takeover waits for: what was lost cannot be written under any more.

No session of the database has a part in it, so that a pooler may stand between.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import sqlalchemy as sa

from streamer.errors import LeaseLost, TryLater, Unavailable
from streamer.lazy import LazyLogger
from streamer.store.db.engine import Database, upsert
from streamer.store.db.schema import leases

log = LazyLogger(__name__)

LEADER = "recalibrator"
DESK = "desk"
SIGNER = "signer"

LEASE_SECONDS: float = 12
"""How long a lease lasts unless it is renewed: what another process waits for when a holder is killed, hangs or is cut off."""

SIGN_OF_LIFE_SECONDS: float = 120
"""A leader that has neither asked for its lease nor written for so long has it renewed no more: one of its threads hangs."""

_RENEWALS = 4
"""Renewals in the life of a lease: one or two may fail."""

_TRY_AGAIN_SECONDS = 0.1
_JOIN_SECONDS = 2.0


class GateBusy(TryLater):
    """Another process calibrates this gate at the moment."""


class Leases:
    """The leases of one database; one lasts for `seconds` unless it is renewed."""

    def __init__(self, database: Database, *, seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._seconds = seconds

    def leadership(self) -> ProcessLease:
        """The holder leads the recalibrators of this database."""
        return ProcessLease(self._database, LEADER, seconds=self._seconds, sign_of_life=SIGN_OF_LIFE_SECONDS)

    def of_desk(self) -> ProcessLease:
        """The holder rejects what has waited at the desk past its deadline."""
        return ProcessLease(self._database, DESK, seconds=self._seconds)

    def of_signer(self) -> ProcessLease:
        """The holder signs where the logs stand."""
        return ProcessLease(self._database, SIGNER, seconds=self._seconds, sign_of_life=SIGN_OF_LIFE_SECONDS)

    def of_slot(self, number: int) -> ProcessLease:
        """The holder records its requests in the partitions of this number."""
        return ProcessLease(self._database.unwatched(), f"serve-{number}", seconds=self._seconds)

    def free_slot(self) -> tuple[int, ProcessLease]:
        """Take the free slot with the lowest number."""
        for number in count():
            lease = self.of_slot(number)
            if lease.held():
                return number, lease
        raise AssertionError("numbers do not end")

    @contextmanager
    def of_gate(self, gate: str, *, wait_seconds: float) -> Iterator[ProcessLease]:
        """Hold the right to calibrate a gate.

        Raises `GateBusy` when another process still has it after `wait_seconds` and `Unavailable`
        when the database does not answer.
        """
        lease = ProcessLease(self._database, f"gate-{gate}", seconds=self._seconds)
        deadline = time.monotonic() + wait_seconds
        while not lease.held():
            if time.monotonic() >= deadline:
                raise GateBusy(
                    f"another calibration of gate {gate!r} is under way, by {lease.holder}; wait until it is done and run"
                    f" again (if that process was killed, its claim expires within {self._seconds:.0f} seconds)"
                )
            time.sleep(_TRY_AGAIN_SECONDS)
        try:
            yield lease
        finally:
            lease.release()


@dataclass(eq=False)
class ProcessLease:
    """One process's part in one lease: taken when it is free, renewed by a thread of its own, and
    given back.

    After `sign_of_life` seconds it is renewed no more, unless the holder asks `held` or writes;
    None: until `release`. `holder` is who holds it, as of the last look.
    """

    database: Database
    name: str
    _: KW_ONLY
    seconds: float
    sign_of_life: float | None = None

    def __post_init__(self) -> None:
        self._me = f"{socket.gethostname()[:150]} (process {os.getpid()}, {secrets.token_hex(4)})"
        self._epoch: int | None = None
        self._until = float("-inf")
        self._alive_at = float("-inf")
        self._keeper: threading.Thread | None = None
        self._released = threading.Event()
        self.holder = self._me

    def held(self) -> bool:
        """Take it if it is free, and report whether it is ours now. Raises `Unavailable`, and then nobody knows."""
        self._alive_at = time.monotonic()
        if not self._renew(only_if_due=True) and not self._take():
            return False
        if self._keeper is None:
            self._released = threading.Event()
            self._keeper = threading.Thread(
                target=self._renew_until, args=(self._released,), name=f"lease-{self.name}", daemon=True
            )
            self._keeper.start()
        return True

    def lapsed(self) -> bool:
        """Report, without asking the database, whether it was ours and could not be renewed in time."""
        return self._epoch is not None and not self.certain()

    def certain(self) -> bool:
        """Report, without asking the database, whether it is ours: nobody else can have it yet."""
        return self._epoch is not None and time.monotonic() < self._until

    def renewed(self) -> bool:
        """Lengthen it, and report whether it was ours all the time. Raises `Unavailable`, and then nobody knows."""
        return self._renew()

    def check(self, connection: sa.Connection) -> None:
        """Raise `LeaseLost` unless it is still ours; nobody takes it over before this transaction has ended.

        For the end of a transaction: a takeover waits from here on.
        """
        query = sa.select(leases.c.epoch).where(self._mine(self._epoch))
        if not self.database.sqlite:
            # A SQLite file's one writer is this transaction: whether the row has expired, nobody could have taken it.
            query = query.where(leases.c.expires_at > sa.func.clock_timestamp()).with_for_update(read=True)
        if connection.execute(query).first() is None:
            raise LeaseLost(
                f"the lease {self.name!r} was lost before this could be written: the process was stopped, or cut off from"
                " the database, for too long. Nothing was written"
            )
        self._alive_at = time.monotonic()

    def release(self) -> None:
        """Let another one have it."""
        self._released.set()
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.join(_JOIN_SECONDS)  # a renewal under way would lengthen it after all
        mine, self._epoch = self._mine(self._epoch), None
        with suppress(Unavailable):  # it expires by itself
            self.database.writing(
                lambda connection: connection.execute(
                    sa.update(leases).where(mine).values(expires_at=_now(connection))
                )
            )

    def _mine(self, epoch: int | None) -> sa.ColumnElement[bool]:
        """The row of this lease while it is ours. Epochs begin at 1: with None there is no such row."""
        return sa.and_(
            leases.c.name == self.name, leases.c.holder == self._me, leases.c.epoch == (epoch or 0)
        )

    def _renew_until(self, released: threading.Event) -> None:
        while not released.wait(self.seconds / _RENEWALS):
            silent = time.monotonic() - self._alive_at
            if self.sign_of_life is not None and silent > self.sign_of_life:
                if not self.lapsed():
                    log.error("lease.holder_hangs", lease=self.name, seconds=round(silent))
                continue
            try:
                self._renew()
            except Unavailable:
                continue
            except Exception:
                log.exception("lease.not_renewed", lease=self.name)

    def _renew(self, *, only_if_due: bool = False) -> bool:
        """Lengthen it, or, where that is not due, see that it is ours; False when it is not."""
        if (epoch := self._epoch) is None:
            return False
        asked = time.monotonic()
        mine = self._mine(epoch)
        if only_if_due and self._until - asked > self.seconds * (1 - 1.5 / _RENEWALS):
            with self.database.reading() as connection:
                found = connection.execute(sa.select(leases.c.epoch).where(mine)).first()
        else:
            found = self.database.writing(
                lambda connection: connection.execute(
                    sa.update(leases)
                    .where(mine)
                    .values(expires_at=_later(connection, self.seconds))
                    .returning(leases.c.epoch)
                ).first()
            )
            if found is not None:
                self._until = max(self._until, asked + self.seconds)
        if found is None and self._epoch == epoch:
            self._epoch = None
        return found is not None

    def _take(self) -> bool:
        asked = time.monotonic()
        with self.database.reading() as connection:
            row = connection.execute(
                sa.select(leases.c.holder, self._free(connection)).where(leases.c.name == self.name)
            ).first()
        if row is not None:
            self.holder = row[0]
            if not row[1]:
                return False

        def work(connection: sa.Connection) -> int | None:
            until = _later(connection, self.seconds)
            new = upsert(connection, leases).values(
                name=self.name, holder=self._me, epoch=1, expires_at=until
            )
            return connection.execute(
                new.on_conflict_do_update(
                    index_elements=[leases.c.name],
                    set_={"holder": self._me, "epoch": leases.c.epoch + 1, "expires_at": until},
                    where=self._free(connection),
                ).returning(leases.c.epoch)
            ).scalar()

        epoch = self.database.writing(work)
        if epoch is None:
            return False  # another one took it first
        self._epoch, self._until, self.holder = epoch, asked + self.seconds, self._me
        return True

    def _free(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        # An expiry later than any lease can have was written by a clock that was set back since.
        far = _later(connection, 2 * max(self.seconds, LEASE_SECONDS))
        return sa.or_(leases.c.expires_at <= _now(connection), leases.c.expires_at > far)


def _now(connection: sa.Connection) -> Any:
    """The database's clock; of a SQLite file this machine's, on which all its users are."""
    return datetime.now(UTC) if connection.dialect.name == "sqlite" else sa.func.clock_timestamp()


def _later(connection: sa.Connection, seconds: float) -> Any:
    return _now(connection) + timedelta(seconds=seconds)
