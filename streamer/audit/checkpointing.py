"""Signing the record: a leaf of the log of heads when a log has grown, and a checkpoint of it, kept outside the database too."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog

from streamer.errors import BadMessage, LeaseLost, Unavailable
from streamer.events.checkpoints import checkpoint_message, encode_checkpoint, said
from streamer.signing.canonical_json import canonical_json

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from datetime import timedelta

    from streamer.audit.checkpoint_file import CheckpointFile
    from streamer.audit.signing import Signer
    from streamer.journal import OutboxMessage
    from streamer.store.audit.heads import SignedHead

log = structlog.get_logger(__name__)


class HeadStore(Protocol):
    """The store as checkpoints need it; see `streamer.store.audit.heads.Heads`. Calls block and may raise `Unavailable`."""

    def standing(self) -> tuple[dict[str, Any], bytes | None, SignedHead]: ...

    def append(
        self,
        data: bytes,
        *,
        before: SignedHead,
        sign: Callable[[int, bytes], bytes],
        message: Callable[[bytes], OutboxMessage] | None,
        now: datetime,
    ) -> SignedHead | None: ...

    def publish(self, signed: SignedHead, message: OutboxMessage, *, now: datetime) -> SignedHead: ...

    def root(self, first: int, end: int) -> bytes: ...

    def data(self, index: int) -> bytes | None: ...


class Leadership(Protocol):
    """At most one process holds it; see `streamer.store.db.leases.ProcessLease`."""

    def held(self) -> bool: ...

    def lapsed(self) -> bool: ...


def origin_of(record_id: str) -> str:
    """The origin line of a record's checkpoints: the name of its log of heads, under which its key signs."""
    return f"streamer/{record_id}"


class Checkpointer:
    """Signs where the logs stand.

    Several may run: the database gives each leaf its place once.

    Parameters
    ----------
    store : where the logs and the checkpoints are.
    signer : signs them.
    topic : where they are published, by the outbox.
    file : where they are appended; None: nowhere.
    every : between two checkpoints that are published and appended to the file; one with a gate's first commitment is at once.
    clock : returns the present time, with zone.
    """

    def __init__(
        self,
        store: HeadStore,
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
        self._kept: int | None = None

    def run(self, *, publish: bool = False) -> SignedHead:
        """Do what is due now: sign what was recorded since the last time, publish it now and then; `publish`: in any case.

        Returns the newest checkpoint.
        """
        while True:
            now = self._clock()
            standing, last, signed = self._store.standing()
            before = None if last is None else msgspec.json.decode(last)
            grown = before is None or any(standing[name] != before[name] for name in standing)
            known = set() if before is None else {one["gate"] for one in before["gates"]}
            due = (
                publish
                or signed.published_at is None
                or abs(now - signed.published_at) >= self._every
                or any(one["gate"] not in known for one in standing["gates"])
            )
            if not grown:
                if due and signed.published < signed.size:
                    signed = self._store.publish(signed, self._message(signed.note), now=now)
                break
            leaf = {**standing, "index": signed.size, "at": _instant(now)}
            origin = origin_of(standing["record"])
            appended = self._store.append(
                canonical_json(leaf),
                before=signed,
                sign=lambda size, root, origin=origin: self._signer.checkpoint(origin, size, root),  # type: ignore[misc]
                message=self._message if due else None,
                now=now,
            )
            if appended is not None:
                signed = appended
                break
        if signed.published != self._kept:
            self.keep_up(signed)
        return signed

    def waiting(self, signed: int | None = None) -> float:
        """How long, in seconds, the oldest head has waited that no checkpoint covers; 0: all is covered.

        `signed` : of the log of heads, what is covered; None: by the newest checkpoint.
        """
        standing, last, newest = self._store.standing()
        if signed is not None:
            at = None if signed >= newest.size else self._store.data(signed)
            return 0.0 if at is None else self._since(at)
        if last is None or all(standing[name] == msgspec.json.decode(last)[name] for name in standing):
            return 0.0
        return self._since(last)

    def _since(self, leaf: bytes) -> float:
        at = datetime.fromisoformat(msgspec.json.decode(leaf)["at"])
        return max(0.0, (self._clock() - at).total_seconds())

    def keep_up(self, signed: SignedHead | None = None) -> str | None:
        """Append the newest checkpoint to the file if one was published since its last. A full disk is logged, and tried again.

        Returns what keeps it from the file; None: it is there, or there is no file.
        """
        newest = self._store.standing()[2] if signed is None else signed
        wrong: str | None = None
        if self._file is not None and newest.size:
            try:
                wrong = self._append(newest)
            except (OSError, BadMessage) as error:
                log.error("audit.checkpoint_file_failed", path=str(self._file.path), error=str(error))
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                return f"{self._file.path}: {why}"
        self._kept = newest.published
        return wrong

    def _append(self, newest: SignedHead) -> str | None:
        assert self._file is not None
        path, value = self._file.path, encode_checkpoint(newest.note, self._clock())
        while True:
            last = self._file.last()
            held = None if last is None else said(last)
            if held is not None:
                if held.origin != said(value).origin:
                    log.error("audit.checkpoint_file_of_another_record", path=str(path))
                    return f"{path} has checkpoints of another record; name another file"
                if held.size > newest.size or self._store.root(0, held.size) != held.root:
                    log.error("audit.checkpoints_lost", in_file=held.size, in_database=newest.size)
                    return f"{path} goes on to checkpoint {held.size} of another history: after a restore name another file"
                if held.size >= newest.published:
                    return None
            if self._file.append([value], after=last):
                return None

    def _message(self, note: bytes) -> OutboxMessage:
        return checkpoint_message(note, topic=self._topic, at=self._clock())


class Signing:
    """Signs round after round while it leads; of several processes one does.

    Parameters
    ----------
    checkpointer : its store writes under `leadership`.
    every_seconds : between two rounds.
    show : given how long what no checkpoint covers has waited, in seconds.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        leadership: Leadership,
        *,
        every_seconds: float,
        show: Callable[[float], None],
    ) -> None:
        self._checkpointer = checkpointer
        self._leadership = leadership
        self._every_seconds = every_seconds
        self._show = show
        self._leads = False
        self._covered = time.monotonic()
        self._failing = False

    def leads(self) -> bool:
        """Whether it signs at this moment."""
        return self._leads and not self._leadership.lapsed()

    def run(self, stop: threading.Event) -> None:
        """Repeat `round` until `stop` is set."""
        while not stop.is_set():
            self.round()
            stop.wait(self._every_seconds)

    def round(self) -> None:
        """Sign what is new, if this process leads. Raises nothing: what is not signed now is later."""
        try:
            leads = self._leadership.held()
            if leads != self._leads:
                log.info("audit.signs" if leads else "audit.stands_by")
            self._leads = leads
            if leads:
                self._checkpointer.run()
            waiting = 0.0 if leads else self._checkpointer.waiting()
        except Exception as error:
            self._leads = False
            waiting = time.monotonic() - self._covered
            if not self._failing and not isinstance(error, (Unavailable, LeaseLost)):
                log.exception("audit.signing_failed")
            self._failing = True
        else:
            self._failing = False
            self._covered = time.monotonic() - waiting
        self._show(waiting)


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
