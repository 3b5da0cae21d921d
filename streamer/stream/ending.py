"""How a service is asked to end, the deadline by which it has to, and its exit status, which says why it ended."""

import asyncio
import contextlib
import faulthandler
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

import structlog

from streamer.errors import StreamerError

log = structlog.get_logger(__name__)

STOP_SECONDS = 25.0
"""How long a stop may last in all. Less than the half minute that supervisors give before they kill without a word."""


def exit_at_once(status: int) -> None:
    """End the process without another write: no cleanup, no flush of anything but the log."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class StopDeadline:
    """Ends the process if it is still running `seconds` after it began to stop.

    It waits on a daemon thread of its own, so that neither a busy event loop nor the interpreter's
    wait for other threads delays it. `terminate` ends the process at once with the status; it must
    not return outside tests.
    """

    def __init__(
        self, seconds: float = STOP_SECONDS, terminate: Callable[[int], None] = exit_at_once
    ) -> None:
        self._seconds = seconds
        self.terminate = terminate
        self._lock = threading.Lock()
        self._called_off = threading.Event()
        self._status: int | None = None

    def begin(self, status: int) -> None:
        """The process stops now, and ends with `status` if it has to be ended; only the first call starts the wait."""
        with self._lock:
            if self._status is not None:
                return
            self._status = status
        threading.Thread(
            target=self._wait, args=(status,), name="streamer-stop-deadline", daemon=True
        ).start()

    def call_off(self) -> None:
        """The stop is over, and the process continues for other reasons (as in a test)."""
        self._called_off.set()

    def _wait(self, status: int) -> None:
        if self._called_off.wait(self._seconds):
            return
        log.error(
            "stream.stop_overdue",
            seconds=self._seconds,
            status=status,
            detail="something did not let go; what was not recorded is decided by the next owner",
        )
        # Where every thread stands: code and lines, no values.
        if _has_descriptor(sys.stderr):
            faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        self.terminate(status)


def _has_descriptor(stream: object) -> bool:
    try:
        stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, io.UnsupportedOperation):
        return False
    return True


class WorkerExit(IntEnum):
    """Exit statuses of the worker (0 drained on request; the others are from ``sysexits.h`` where one fits)."""

    DRAINED = 0
    CRASHED = 1
    DEAD_LETTER_CAP = 65
    """Too many records in a row, or too large a share of them, were refused: look before going on."""
    FENCED = 70
    """Another worker holds the lease: this process was a zombie and must not write any more."""
    LEASE_TIMEOUT = 75
    """No lease from the database in time; start again."""
    LOG_RECREATED = 78
    """A topic is not the one that the stored progress is of: it was deleted and recreated."""
    STOP_OVERDUE = 124
    """Asked to stop, it did not end by itself in time; nothing is lost by that."""


class WorkerHalted(StreamerError):
    """The worker stopped on its own; `status` is the process's."""

    def __init__(self, status: WorkerExit, message: str) -> None:
        super().__init__(message)
        self.status = status


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a service ends: set `asked` to end it as SIGTERM does. `deadline` begins when it
    starts to stop, for whatever reason; it also ends the process of a zombie at once. The caller
    calls it off."""

    deadline: StopDeadline
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def unless_asked(self, work: Coroutine[object, object, T]) -> T | None:
        """The result of `work`; None, and `work` is cancelled, once a stop is asked for."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self.asked.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


@contextlib.contextmanager
def signals_set(stopping: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask for a drain; only where a signal can be handled, on the main thread."""
    signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, stopping.set)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
