"""Waiting longer after each failure, with jitter, and calling what blocks off the event loop."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import structlog

from streamer.errors import Unavailable

log = structlog.get_logger(__name__)
T = TypeVar("T")

FIRST_DELAY = 0.05
LAST_DELAY = 2.0
_LOG_EVERY = 10.0


class Backoff:
    """Exponential delays in seconds from `FIRST_DELAY` to `LAST_DELAY`, each drawn from its upper half.

    The jitter keeps workers that lost the same part from coming back in step.
    """

    def __init__(self, *, first: float = FIRST_DELAY, last: float = LAST_DELAY) -> None:
        self._first = first
        self._last = last
        self._delay = first

    def next_delay(self) -> float:
        """The delay to wait now, in seconds; the next one is twice as long, up to the last."""
        delay, self._delay = self._delay, min(self._delay * 2, self._last)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Begin again with the first delay."""
        self._delay = self._first


async def until_available(
    executor: Executor | None,
    call: Callable[[], T],
    *,
    part: str,
    wanted: Callable[[], bool] = lambda: True,
    report_status: Callable[[str, bool], None] = lambda _part, _up: None,
) -> T | None:
    """Run `call`, which is safe to repeat, in `executor` (None: the event loop's own) until it does
    not raise `Unavailable`; None once it is not `wanted` any more. Whatever else it raises is
    raised unchanged.

    `report_status` is called after each attempt with `part`, ``database`` or ``broker``, and
    whether it could be reached.
    """
    backoff = Backoff()
    loop = asyncio.get_running_loop()
    logged = float("-inf")
    while wanted():
        try:
            answer = await loop.run_in_executor(executor, call)
        except Unavailable as error:
            report_status(part, False)
            if loop.time() - logged > _LOG_EVERY:
                logged = loop.time()
                log.warning("stream.part_away", part=part, error=str(error)[:300])
            await asyncio.sleep(backoff.next_delay())
        else:
            report_status(part, True)
            return answer
    return None
