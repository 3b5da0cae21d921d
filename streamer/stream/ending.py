"""How a service is asked to end, and by when it has to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from streamer.stream.stop_deadline import StopDeadline

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
