"""How a service is asked to end and by when it has to, and its exit status, which says why it ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from streamer.errors import StreamerError

if TYPE_CHECKING:
    from streamer.stream.stop_deadline import StopDeadline


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
    """The worker stopped on its own.

    Parameters
    ----------
    status : the exit status for the process.
    """

    def __init__(self, status: WorkerExit, message: str) -> None:
        super().__init__(message)
        self.status = status


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a service ends.

    Attributes
    ----------
    deadline : begins when the service starts to stop, for whatever reason; it also ends the process of a zombie at once.
        The caller calls it off.
    asked : set it to end it as SIGTERM does.
    """

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
