"""How a service is asked to end, and by when it has to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamer.stream.stop_deadline import StopDeadline


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
