"""Making checkpoints: when one is due, what it says, and keeping the file outside the database up with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import structlog

from streamer.errors import BadMessage
from streamer.events.checkpoints import (
    SCHEMA,
    checkpoint_hash,
    checkpoint_message,
    decode_checkpoint,
    encode_checkpoint,
)
from streamer.events.cloudevents import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from streamer.audit.checkpoint_file import CheckpointFile
    from streamer.audit.signing import Signer
    from streamer.events.checkpoints import CheckpointsV1
    from streamer.journal import OutboxMessage

log = structlog.get_logger(__name__)

_PAGE = 500


class CheckpointStore(Protocol):
    """The store as checkpoints need it. Calls block and may raise `Unavailable`."""

    def make(
        self,
        make: Callable[[dict[str, Any], bytes | None], bytes | None],
        *,
        message: Callable[[bytes], OutboxMessage],
        now: datetime,
    ) -> bytes | None:
        """Store and enqueue the checkpoint that `make` returns, given where the logs stand and the newest one.

        Nobody else makes one meanwhile. Returns what was stored.
        """
        ...

    def after(self, sequence: int, *, limit: int) -> list[bytes]:
        """The oldest checkpoints behind a sequence number."""
        ...

    def newest(self) -> bytes | None:
        """The last checkpoint; None when there is none."""
        ...

    def uncommitted_gates(self, known: int) -> bool:
        """Whether there are more than `known` gates."""
        ...


class Checkpointer:
    """Makes a checkpoint when the last one is old, or a gate's secrets are not committed to yet.

    Several may run: they take turns in the database, and one checkpoint in each interval is enough for all.

    Parameters
    ----------
    store : where the logs and the checkpoints are.
    signer : signs them.
    topic : where they are published, by the outbox.
    file : where they are appended; None: nowhere.
    every : between two checkpoints while something happens; without news there is none.
    clock : returns the present time, with zone.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        signer: Signer,
        topic: str,
        file: CheckpointFile | None,
        every: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._signer = signer
        self._topic = topic
        self._file = file
        self._every = every
        self._clock = clock
        self._idle_since: datetime | None = None
        self._kept: int | None = None

    def run_if_due(self) -> None:
        """Do what is due now; cheap when nothing is. To be called every few seconds."""
        now = self._clock()
        newest = self._newest()
        if self._is_due(newest, now):
            made = self.make(now=now, only_if_due=True)
            self._idle_since = now if made is None else None
            newest = newest if made is None else decode_checkpoint(made)
        if newest is not None and newest.sequence != self._kept:
            self.keep_up()

    def make(self, *, now: datetime | None = None, only_if_due: bool = False) -> bytes | None:
        """Make a checkpoint; None when nothing has happened since the last one."""
        moment = now or self._clock()

        def next_one(standing: dict[str, Any], last: bytes | None) -> bytes | None:
            before = None if last is None else decode_checkpoint(last)
            if only_if_due and not self._old_or_lacking(before, len(standing["gates"]), moment):
                return None  # another worker made it first
            if before is not None and _same(standing, before):
                return None
            return encode_checkpoint(
                {
                    "schema": SCHEMA,
                    **standing,
                    "sequence": 1 if before is None else before.sequence + 1,
                    "previous": None if last is None else checkpoint_hash(last),
                    "made_at": rfc3339(moment),
                    "key_id": self._signer.key_id,
                },
                sign=self._signer.sign,
            )

        return self._store.make(
            next_one, message=lambda value: checkpoint_message(value, topic=self._topic), now=moment
        )

    def keep_up(self) -> str | None:
        """Append to the file what the database has and the file has not. A full disk is logged, and tried again.

        Returns what keeps the newest one from the file; None: it is there, or there is no file.
        """
        newest = self._newest()
        if self._file is None or newest is None:
            self._kept = None if newest is None else newest.sequence
            return None
        try:
            while True:
                last = self._file.last()
                held = None if last is None else decode_checkpoint(last)
                if held is not None and held.record_id != newest.record_id:
                    log.error("audit.checkpoint_file_of_another_record", path=str(self._file.path))
                    self._kept = newest.sequence
                    return f"{self._file.path} has checkpoints of another record; name another file"
                reached = 0 if held is None else held.sequence
                missing = self._store.after(reached, limit=_PAGE)
                if not missing:
                    break
                self._file.append(missing, after=last)
        except (OSError, BadMessage) as error:
            log.error("audit.checkpoint_file_failed", path=str(self._file.path), error=str(error))
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return f"{self._file.path}: {why}"
        self._kept = newest.sequence
        if reached > newest.sequence:
            log.error("audit.checkpoints_lost", in_file=reached, in_database=newest.sequence)
            return f"{self._file.path} has {reached} checkpoints, the database {newest.sequence}: after a restore name another file"
        return None

    def _newest(self) -> CheckpointsV1 | None:
        value = self._store.newest()
        return None if value is None else decode_checkpoint(value)

    def _is_due(self, newest: CheckpointsV1 | None, now: datetime) -> bool:
        if newest is None:
            return True
        if self._store.uncommitted_gates(len(newest.gates)):
            return True
        if self._idle_since is not None and abs(now - self._idle_since) < self._every:
            return False
        return self._old_or_lacking(newest, len(newest.gates), now)

    def _old_or_lacking(self, newest: CheckpointsV1 | None, gates: int, now: datetime) -> bool:
        """Report whether the newest checkpoint is old, of a clock that was ahead, or knows fewer gates."""
        return newest is None or abs(now - newest.made_at) >= self._every or gates > len(newest.gates)


def _same(standing: dict[str, Any], before: CheckpointsV1) -> bool:
    """Report whether no log has grown."""
    ends = {(h.log_id, h.topic, h.partition): (h.size, h.next_offset) for h in before.partitions}
    present = {
        (h["log_id"], h["topic"], h["partition"]): (h["size"], h["next_offset"])
        for h in standing["partitions"]
    }
    return standing["control"]["size"] == before.control.size and present == ends
