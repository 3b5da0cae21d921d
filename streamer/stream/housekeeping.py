"""What a process does besides deciding, again and again."""

import threading
from collections.abc import Callable
from itertools import count

import structlog

from streamer.errors import Unavailable

log = structlog.get_logger(__name__)


class Housekeeping:
    """A thread that does `chores` in their order, at once and then every `every_seconds`, until
    `close`; what is `seldom` done comes last in one of `seldom_every` rounds. Also a context
    manager."""

    def __init__(
        self,
        *chores: Callable[[], None],
        seldom: Callable[[], None],
        every_seconds: float = 2.0,
        seldom_every: int = 5,
    ) -> None:
        self._chores = chores
        self._seldom = seldom
        self._every_seconds = every_seconds
        self._seldom_every = seldom_every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamer-housekeeping", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in count(1):
            self._round(number)
            if self._stopping.wait(self._every_seconds):
                return

    def _round(self, number: int) -> None:
        """Do each chore, whatever becomes of the others; where the database is unavailable, the rest comes with the next round."""
        for chore in (*self._chores, *([] if number % self._seldom_every else [self._seldom])):
            try:
                chore()
            except Unavailable:
                return  # the reader reports it already
            except Exception:
                log.exception("stream.housekeeping_failed")

    def close(self) -> None:
        """Stop; waits for the round in progress."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> "Housekeeping":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
