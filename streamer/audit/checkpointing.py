"""Signing the record: a leaf of the log of heads when a log has grown, and a checkpoint of it, kept outside the database too."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog

from streamer.audit.standalone.verify_bundle import read_note
from streamer.errors import BadMessage, LeaseLost, Unavailable
from streamer.events.checkpoints import checkpoint_message, decode_checkpoint, encode_checkpoint
from streamer.signing.canonical_json import canonical_json

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from datetime import timedelta

    from streamer.audit.checkpoint_file import CheckpointFile
    from streamer.audit.signing import Signer
    from streamer.audit.standalone.verify_bundle import Note
    from streamer.journal import OutboxMessage
    from streamer.recalibration.service import Leadership
    from streamer.signing.notes import Cosigned, SignedHead

log = structlog.get_logger(__name__)


class HeadStore(Protocol):
    """The store as signing needs it. Calls block and may raise `Unavailable`."""

    def standing(self) -> tuple[dict[str, Any], bytes | None, SignedHead]:
        """Where the logs stand by what is committed; the newest leaf; the newest checkpoint."""
        ...

    def append(
        self,
        data: bytes,
        *,
        before: SignedHead,
        sign: Callable[[int, bytes], bytes],
        message: Callable[[bytes], OutboxMessage] | None,
        now: datetime,
    ) -> SignedHead | None:
        """Append a leaf and store the checkpoint of the log with it, unless another process appended one first."""
        ...

    def root(self, first: int, end: int) -> bytes:
        """The root over a range of leaves."""
        ...

    def data(self, index: int) -> bytes | None:
        """What a leaf is the hash of."""
        ...

    def newest(self) -> SignedHead:
        """The newest checkpoint."""
        ...

    def cosigned(self) -> list[Cosigned]:
        """The newest checkpoint that each witness has cosigned."""
        ...

    def keep_cosigned(self, witness: str, size: int, note: bytes) -> None:
        """Keep what a witness has cosigned, in place of what it cosigned before."""
        ...


def origin_of(record_id: str) -> str:
    """The origin of a record's checkpoints: the name of its log of heads, under which its key signs."""
    return f"streamer/{record_id}"


def said(value: bytes) -> Note:
    """What the checkpoint of an event says. Raises `BadMessage`."""
    return read_note(decode_checkpoint(value).checkpoint)


class Checkpointer:
    """Signs where the logs stand. Several may run: the database gives each leaf its place once.

    Parameters
    ----------
    store : where the logs and the checkpoints are.
    signer : signs them.
    topic : where they are published, by the outbox.
    file : where those that are published are appended; None: nowhere.
    every : between two that are published; one with a gate's first commitment is at once.
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
        """Sign what was recorded since the last time, and publish it if that is due; `publish`: in any case.

        Returns the newest checkpoint.
        """
        appended: SignedHead | None = None
        while appended is None:
            now = self._clock()
            standing, last, signed = self._store.standing()
            known = {} if last is None else msgspec.json.decode(last)
            due = (
                publish
                or signed.published_at is None
                or abs(now - signed.published_at) >= self._every
                or len(standing["gates"]) > len(known.get("gates", ()))
            )
            if not _grown(standing, known) and not (due and signed.published < signed.size):
                appended = signed
                break
            at = now.astimezone(UTC).isoformat(timespec="microseconds")
            origin = origin_of(standing["record"])
            appended = self._store.append(
                canonical_json({**standing, "index": signed.size, "at": at}),
                before=signed,
                sign=lambda size, root, origin=origin: self._signer.checkpoint(origin, size, root),  # type: ignore[misc]
                message=(lambda note, now=now: checkpoint_message(note, topic=self._topic, at=now))  # type: ignore[misc]
                if due
                else None,
                now=now,
            )
        if appended.published != self._kept:
            self.keep_up(appended)
        return appended

    def waiting(self, signed: int | None = None) -> float:
        """How long, in seconds, the oldest head has waited that is not signed; 0: everything is.

        `signed` : heads that are, by a witness; None: those under the newest checkpoint, and no head is newer than it.
        """
        standing, last, newest = self._store.standing()
        if signed is not None:
            last = None if signed >= newest.size else self._store.data(signed)
        known = {} if last is None else msgspec.json.decode(last)
        if last is None or (signed is None and not _grown(standing, known)):
            return 0.0
        return max(0.0, (self._clock() - datetime.fromisoformat(known["at"])).total_seconds())

    def keep_up(self, newest: SignedHead) -> str | None:
        """Append the newest checkpoint to the file if one was published since its last. A full disk is logged, and tried again.

        Returns what keeps it from the file; None: it is there, or there is no file.
        """
        wrong = None
        if self._file is not None and newest.size:
            try:
                wrong = self._append(self._file, newest)
            except (OSError, BadMessage) as error:
                log.error("audit.checkpoint_file_failed", path=str(self._file.path), error=str(error))
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                return f"{self._file.path}: {why}"
        self._kept = newest.published
        return wrong

    def _append(self, file: CheckpointFile, newest: SignedHead) -> str | None:
        value = encode_checkpoint(newest.note, self._clock())
        while True:
            last = file.last()
            held = None if last is None else said(last)
            if held is not None and held.origin != said(value).origin:
                log.error("audit.checkpoint_file_of_another_record", path=str(file.path))
                return f"{file.path} has checkpoints of another record; name another file"
            if held is not None and (held.size > newest.size or self._store.root(0, held.size) != held.root):
                log.error("audit.checkpoints_lost", in_file=held.size, in_database=newest.size)
                return f"{file.path} goes on to checkpoint {held.size} of another history: after a restore name another file"
            if (held is not None and held.size >= newest.published) or file.append(value, after=last):
                return None


def _grown(standing: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether the logs stand elsewhere than in a head."""
    return any(standing[name] != known.get(name) for name in standing)


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
        self._leads: bool | None = False  # None: the last round failed
        self._covered = time.monotonic()

    def leads(self) -> bool:
        """Whether it signs at this moment."""
        return bool(self._leads) and not self._leadership.lapsed()

    def run(self, stop: threading.Event) -> None:
        """Repeat `round` until `stop` is set."""
        while not stop.is_set():
            self.round()
            stop.wait(self._every_seconds)

    def round(self) -> None:
        """Sign what is new, if this process leads. Raises nothing: what is not signed now is later."""
        try:
            leads = self._leadership.held()
            if leads:
                self._checkpointer.run()
            waiting = 0.0 if leads else self._checkpointer.waiting()
        except Exception as error:
            if self._leads is not None and not isinstance(error, (Unavailable, LeaseLost)):
                log.exception("audit.signing_failed")
            self._leads, waiting = None, time.monotonic() - self._covered
        else:
            self._leads, self._covered = leads, time.monotonic() - waiting
        self._show(waiting)
