"""Logs of the services: one structured line an event, JSON for machines or aligned text for people."""

from __future__ import annotations

import logging
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Literal, TextIO

import structlog

from streamer.redaction import HIDDEN, is_secret, redact_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, Processor, WrappedLogger

NOISY_LOGGERS = ("aiokafka", "faust", "mode", "kafka")
"""Libraries that repeat one line thousands of times while a broker is away."""


class RateLimit(logging.Filter):
    """Lets through at most `burst` records of one logger and text template in each period; then says how many it held.

    Parameters
    ----------
    burst : records let through per period, per (logger, level, message template).
    period_seconds : length of a period.
    clock : returns seconds on a monotonic scale.
    """

    _MOST_TEMPLATES = 1000

    def __init__(
        self, *, burst: int = 5, period_seconds: float = 60.0, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__()
        self._burst = burst
        self._period = period_seconds
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether `record` goes out; the first of a new period carries ``(N like this were held back)``."""
        now = self._clock()
        # Messages that were formatted before they came here would all be different: the first words tell them apart.
        key = (record.name, record.levelno, str(record.msg)[:60])
        with self._lock:
            start, count = self._seen.get(key, (now, 0))
            held = 0
            if now - start >= self._period:
                held, start, count = max(0, count - self._burst), now, 0
            if len(self._seen) >= self._MOST_TEMPLATES and key not in self._seen:
                self._seen.clear()
            self._seen[key] = (start, count + 1)
        if held:
            record.msg = f"{record.getMessage()} ({held} like this were held back)"
            record.args = ()
        return count < self._burst


def configure_logging(  # noqa: D417
    format: Literal["auto", "json", "console"] = "auto",  # noqa: A002
    level: str = "INFO",
    *,
    stream: TextIO | None = None,
) -> None:
    """Send structlog's and the standard library's records to `stream`, in one format; replaces what was configured.

    Parameters
    ----------
    format : `json`: one object a line (`event`, `level`, `logger`, `timestamp` in UTC, and the event's own
        fields); `console`: for people; `auto`: console when `stream` is a terminal.
    level : the least severity that is written.
    stream : standard error when None.
    """
    target = sys.stderr if stream is None else stream
    for_people = format == "console" or (format == "auto" and target.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,  # as text: a rendering with local variables would show prompts
        _without_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if for_people:
        last.append(structlog.dev.ConsoleRenderer(colors=target.isatty()))
    else:
        last.append(structlog.processors.JSONRenderer(ensure_ascii=False))
    handler = logging.StreamHandler(target)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    limit = RateLimit()
    handler.addFilter(lambda record: not record.name.startswith(NOISY_LOGGERS) or limit.filter(record))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if getattr(old, "_streamer", False):
            root.removeHandler(old)
    handler._streamer = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)


def _without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = HIDDEN if is_secret(name) else redact_text(value)
    return event
