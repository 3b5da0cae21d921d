"""Signing the record: a leaf of the log of heads when a log has grown, and a checkpoint of it, kept outside the database too."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
import structlog

from streamer.audit.signing import Signer
from streamer.errors import BadMessage, LeaseLost, Unavailable
from streamer.events.checkpoints import checkpoint_message, decode_checkpoint, encode_checkpoint
from streamer.journal import OutboxMessage
from streamer.recalibration.service import Leadership
from streamer.signing.canonical_json import canonical_json, moment_text
from streamer.signing.notes import Note, Restoration, SignedHead, read_note

_BLOCK = 65_536
"""Longer than any line."""


class CheckpointFile:
    """Several processes of one machine may append to it: they take turns.

    A process that dies while it writes leaves a line without an end; the next append removes it, and readers
    skip it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self) -> bytes | None:
        """The last whole line; None when there is none yet. Raises `OSError`."""
        with self._open() as file:
            return _last(file)[0]

    def append(self, line: bytes, *, after: bytes | None) -> bool:
        """Add a line and make it last. Raises `OSError`.

        Returns False, and writes nothing, when the last line is not `after` any more: another process was faster.
        """
        with self._open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            last, end = _last(file)
            if last != after:
                return False
            file.truncate(end)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file)
        return True

    def _open(self) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("a+b")


def _last(file: BinaryIO) -> tuple[bytes | None, int]:
    """The last whole line, and where it ends."""
    start = max(0, file.seek(0, os.SEEK_END) - 2 * _BLOCK)
    file.seek(start)
    whole, newline, _ = file.read().rpartition(b"\n")
    return (whole.rpartition(b"\n")[2], start + len(whole) + 1) if newline else (None, 0)


log = structlog.get_logger(__name__)


class HeadStore(Protocol):
    """The store as signing needs it. Calls block and may raise `Unavailable`."""

    def standing(self) -> tuple[dict[str, Any], bytes | None, SignedHead]:
        """Where the logs stand by what is committed; the newest leaf; the newest checkpoint."""

    def append(
        self,
        data: bytes,
        *,
        before: SignedHead,
        make: Callable[[str, int, bytes], tuple[bytes, OutboxMessage | None]],
        now: datetime,
    ) -> SignedHead | None:
        """Append a leaf and store the checkpoint of the log with it, unless another process appended one first."""

    def origin(self) -> str:
        """The origin of checkpoints now."""

    def restorations(self) -> Sequence[Restoration]:
        """Every backup that was restored, the oldest first."""

    def restore(self, make: Callable[[str, int], tuple[Restoration, str]], *, now: datetime) -> Restoration:
        """Record what was given up; `make` returns that and its signature, given the record's id and a number."""

    def root(self, first: int, end: int) -> bytes:
        """The root over a range of leaves."""

    def data(self, index: int) -> bytes | None:
        """What a leaf is the hash of."""

    def newest(self) -> SignedHead:
        """The newest checkpoint."""

    def cosigned(self) -> Sequence[Any]:
        """The newest checkpoint that each witness has cosigned: `witness`, `size`, `note` with its signature."""

    def keep_cosigned(self, witness: str, size: int, note: bytes) -> None:
        """Keep what a witness has cosigned, in place of what it cosigned before."""


def said(value: bytes) -> Note:
    """What the checkpoint of an event says. Raises `BadMessage`."""
    return read_note(decode_checkpoint(value).checkpoint)


@dataclass(slots=True)
class Checkpointer:
    """Signs where the logs stand. Several may run: the database gives each leaf its place once.

    Checkpoints are published on `topic` by the outbox, `every` so often, and at once with a gate's first commitment; `file` is
    where those that are published are appended, None: nowhere. `clock` returns the present time, with zone.
    """

    store: HeadStore
    _: KW_ONLY
    signer: Signer
    topic: str
    file: CheckpointFile | None
    every: timedelta
    clock: Callable[[], datetime]
    _kept: int | None = field(default=None, init=False)

    def run(self, *, publish: bool = False) -> SignedHead:
        """Sign what was recorded since the last time, and publish it if that is due; `publish`: in any case.

        Returns the newest checkpoint.
        """
        appended: SignedHead | None = None
        while appended is None:
            now = self.clock()
            standing, last, signed = self.store.standing()
            known = {} if last is None else msgspec.json.decode(last)
            due = (
                publish
                or signed.published_at is None
                or abs(now - signed.published_at) >= self.every
                or len(standing["gates"]) > len(known.get("gates", ()))
            )
            if not any(standing[name] != known.get(name) for name in standing) and not (
                due and signed.published < signed.size
            ):
                appended = signed
                break
            make = partial(self._make, now if due else None)
            leaf = canonical_json({**standing, "index": signed.size, "at": moment_text(now)})
            appended = self.store.append(leaf, before=signed, make=make, now=now)
        if appended.published != self._kept:
            self.keep_up(appended)
        return appended

    def _make(
        self, published_at: datetime | None, origin: str, size: int, root: bytes
    ) -> tuple[bytes, OutboxMessage | None]:
        note = self.signer.checkpoint(origin, size, root)
        if published_at is None:
            return note, None
        return note, checkpoint_message(note, topic=self.topic, at=published_at)

    def lacking(self, size: int) -> float:
        """How long ago, in seconds, the first head came that whoever knows so many does not; 0: there is none."""
        leaf = self.store.data(size)
        if leaf is None:
            return 0.0
        came = datetime.fromisoformat(msgspec.json.decode(leaf)["at"])
        return max(0.0, (self.clock() - came).total_seconds())

    def keep_up(self, newest: SignedHead) -> str | None:
        """Append the newest checkpoint to the file if one was published since its last. A full disk is logged, and tried again.

        Returns what keeps it from the file; None: it is there, or there is no file.
        """
        if self.file is not None and newest.size:
            try:
                other = self._append(self.file, newest)
            except (OSError, BadMessage) as error:
                log.error("audit.checkpoint_file_failed", path=str(self.file.path), error=str(error))
                return f"{self.file.path}: {getattr(error, 'strerror', None) or error}"
            if other is not None:
                log.error("audit.checkpoint_file_of_another_record", path=str(self.file.path))
                return (
                    f"{self.file.path} has checkpoint {other.size} of another record, or of another history of this one;"
                    " after a restore run `streamer audit restored`, else name another file"
                )
        self._kept = newest.published
        return None

    def _append(self, file: CheckpointFile, newest: SignedHead) -> Note | None:
        """Append it; returns what the file has of another history."""
        value = encode_checkpoint(newest.note, self.clock())
        while True:
            last = file.last()
            held = None if last is None else said(last)
            ours = held is not None and self.covers(held, newest)
            if held is not None and not ours and not self.given_up(held):
                return held
            if (ours and held is not None and held.size >= newest.published) or file.append(
                value, after=last
            ):
                return None

    def covers(self, note: Note, newest: SignedHead) -> bool:
        """Whether the log of heads is the one that a checkpoint is of."""
        return note.size <= newest.size and self.store.root(0, note.size) == note.root

    def given_up(self, note: Note) -> bool:
        """Whether a checkpoint is of heads that were given up where a backup was restored."""
        return any(one.gives_up(note.origin, note.size) for one in self.store.restorations())


@dataclass(slots=True)
class Signing:
    """Signs a round every so many seconds while it leads; of several processes one does.

    The checkpointer's store writes under `leadership`.
    """

    checkpointer: Checkpointer
    leadership: Leadership
    every_seconds: float
    _leads: bool | None = field(default=False, init=False)  # None: the last round failed
    _covered: float = field(default_factory=time.monotonic, init=False)

    def leads(self) -> bool:
        """Whether it signs at this moment."""
        return bool(self._leads) and not self.leadership.lapsed()

    def run(self, stop: threading.Event) -> None:
        """Repeat `round` until `stop` is set."""
        while not stop.is_set():
            self.round()
            stop.wait(self.every_seconds)

    def round(self) -> None:
        """Sign what is new, if this process leads. Raises nothing: what is not signed now is later."""
        try:
            leads = self.leadership.held()
            if leads:
                self.checkpointer.run()
        except Exception as error:
            if self._leads is not None and not isinstance(error, (Unavailable, LeaseLost)):
                log.exception("audit.signing_failed")
            self._leads = None
        else:
            self._leads, self._covered = leads, time.monotonic()

    def waiting(self) -> float:
        """How long, in seconds, rounds have not come to an end as they should, in this process or the one that leads."""
        return max(0.0, time.monotonic() - self._covered - self.every_seconds)
