"""A deadline for stopping, for libraries that ignore a cancellation and threads that hang in a call."""

import contextlib
import faulthandler
import io
import os
import sys
import threading
from collections.abc import Callable

import structlog

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
    """Ends the process if it is still running some time after it began to stop.

    It waits on a daemon thread of its own, so that neither a busy event loop nor the interpreter's wait for other
    threads delays it.

    Parameters
    ----------
    seconds : how long a stop may take in all.
    terminate : ends the process at once with the status; must not return outside tests.
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
