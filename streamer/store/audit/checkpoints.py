"""Checkpoints of all logs: made one at a time, kept, and put into the outbox in the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.signing.commitments import salt_commitment, seed_commitment
from streamer.store.audit import control
from streamer.store.db.schema import checkpoints, gates
from streamer.store.log.outbox import enqueue
from streamer.store.log.progress import partition_heads

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from streamer.journal import OutboxMessage
    from streamer.store.db.engine import Database

    Make = Callable[[dict[str, Any], bytes | None], bytes | None]


class Checkpoints:
    """Implements `streamer.audit.checkpointing.CheckpointStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(self, make: Make, *, message: Callable[[bytes], OutboxMessage], now: datetime) -> bytes | None:
        """Make the next checkpoint, unless `make` sees no need.

        Parameters
        ----------
        make : given where the logs stand (`record_id`, `control`, `partitions`, `gates`) and the newest
            checkpoint; returns the next one, or None.
        message : makes the event of it.

        Nobody else makes a checkpoint or writes to the control log meanwhile. Returns what was made.
        """

        def work(connection: sa.Connection) -> bytes | None:
            head = control.head(connection, lock=True)
            last = connection.execute(
                sa.select(checkpoints.c.sequence, checkpoints.c.value)
                .order_by(checkpoints.c.sequence.desc())
                .limit(1)
            ).one_or_none()
            standing = {
                "record_id": head.record_id.hex(),
                "control": head.as_said(),
                "partitions": partition_heads(connection),
                "gates": _commitments(connection),
            }
            value = make(standing, None if last is None else last.value)
            if value is not None:
                sequence = 1 if last is None else last.sequence + 1
                connection.execute(sa.insert(checkpoints).values(sequence=sequence, made_at=now, value=value))
                enqueue(connection, message(value), now)
            return value

        return self._database.writing(work)

    def after(self, sequence: int, *, limit: int) -> list[bytes]:
        query = sa.select(checkpoints.c.value).where(checkpoints.c.sequence > sequence)
        with self._database.reading() as connection:
            found = connection.execute(query.order_by(checkpoints.c.sequence).limit(limit))
            return list(found.scalars())

    def newest(self) -> bytes | None:
        query = sa.select(checkpoints.c.value).order_by(checkpoints.c.sequence.desc()).limit(1)
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one_or_none()

    def uncommitted_gates(self, known: int) -> bool:
        with self._database.reading() as connection:
            there = connection.execute(sa.select(sa.func.count()).select_from(gates)).scalar_one()
        return there > known


def _commitments(connection: sa.Connection) -> list[dict[str, str]]:
    rows = connection.execute(sa.select(gates.c.name, gates.c.audit_salt, gates.c.seed)).all()
    return [
        {
            "gate": name,
            "salt": salt_commitment(name, salt),
            "seed": seed_commitment(name, seed),
        }
        for name, salt, seed in sorted(rows, key=lambda row: str(row[0]))
    ]
