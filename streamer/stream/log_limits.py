"""A bound on what libraries log of Kafka and of a collector: an outage of seconds makes thousands of equal lines."""

import logging
import threading
import time
from collections.abc import Callable

from kafka.errors import Cancelled

CLIENT_LOGGERS = ("aiokafka", "faust", "mode", "kafka", "opentelemetry")


class LogRateLimit(logging.Filter):
    """Let `burst` records of one origin (logger, level, template) pass per `period` seconds.

    The first record after a pause says how many were left out.
    """

    def __init__(
        self, *, burst: int = 3, period: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._burst = burst
        self._period = period
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record passes."""
        origin = (record.name, record.levelno, str(record.msg)[:200])
        now = self._clock()
        with self._lock:
            began, seen = self._windows.get(origin, (now, 0))
            left_out = 0
            if now - began >= self._period:
                left_out = max(0, seen - self._burst)
                began, seen = now, 0
            if len(self._windows) > 1000:
                self._windows.clear()
            self._windows[origin] = (began, seen + 1)
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} more like this were left out)"
            record.args = ()
        return seen < self._burst


def limit_client_logs() -> None:
    """Put one `LogRateLimit` on every logger that the client libraries have made by now. Safe to repeat."""
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        if name.split(".", 1)[0] in CLIENT_LOGGERS and not any(
            isinstance(one, LogRateLimit) for one in logger.filters
        ):
            logger.addFilter(LogRateLimit())


class _Farewell(logging.Filter):
    """Drops what kafka-python logs as an error when a client is closed while it asks for metadata."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        return not any(isinstance(one, Cancelled) for one in arguments)


class _ClosedSocket(logging.Filter):
    """Drops what kafka-python logs as an error when a task waits for a socket, or reads from it, that was closed a
    moment before.
    """

    SIGNS = ("Invalid file descriptor: -1", "'NoneType' object has no attribute 'recv'")

    def filter(self, record: logging.LogRecord) -> bool:
        error = str(record.exc_info[1]) if record.exc_info else ""
        return not any(sign in error for sign in self.SIGNS)


def drop_farewells() -> None:
    """Keep the closing of a kafka-python client out of the log. Safe to repeat."""
    for name, farewell in (
        ("kafka.cluster", _Farewell),
        ("kafka.net.selector", _ClosedSocket),
        ("kafka.net.transport", _ClosedSocket),
    ):
        logger = logging.getLogger(name)
        if not any(isinstance(one, farewell) for one in logger.filters):
            logger.addFilter(farewell())
