"""Logs of the services: one structured line an event, JSON for machines or aligned text for people.

An event's name is ``package.what_happened``, for example ``stream.part_away``; numbers and names are fields of their own.
"""

import json
import logging
import sys
import threading
from types import TracebackType
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from streamer.security.visible import HIDDEN, is_secret, redact_text, visible

TALKATIVE = (
    "aiokafka", "alembic", "faust", "httpcore2", "httpx2", "kafka", "mode", "sentence_transformers", "transformers",
)  # fmt: skip
"""Libraries whose INFO is about themselves; theirs counts from WARNING on, unless everything is asked for."""


def configure_logging(
    format: Literal["auto", "json", "console"] = "auto",  # noqa: A002
    level: str = "INFO",
    *,
    stream: TextIO | None = None,
    process: int | None = None,
) -> bool:
    """Send structlog's and the standard library's records to `stream`, standard error when None, in
    one format; replaces what was configured. Returns whether lines are JSON.

    `json` is one object a line (`event`, `level`, `logger`, `timestamp` in UTC, and the event's own
    fields), `console` for people, `auto` console when `stream` is a terminal. `level` is the least
    severity that is written. `process` says which of several processes this is, a field of every
    event; None: it is the only one.
    """
    target = sys.stderr if stream is None else stream
    for_people = format == "console" or (format == "auto" and target.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        *([] if process is None else [lambda _, __, event: {"process": process, **event}]),
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
        last += [_visible_values, structlog.dev.ConsoleRenderer(colors=target.isatty())]
    else:
        last.append(structlog.processors.JSONRenderer(_visible_json, ensure_ascii=False))
    handler = _StandardError() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if getattr(old, "_streamer", False):
            root.removeHandler(old)
    handler._streamer = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(level)
    for library in TALKATIVE:
        floor = logging.NOTSET if level == "DEBUG" else max(logging.WARNING, root.level)
        logging.getLogger(library).setLevel(floor)
    logging.captureWarnings(True)
    return not for_people


def log_uncaught() -> None:
    """Send to the log what no code catches: exceptions that end the process or a thread, or that nobody can raise."""

    def uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        logging.getLogger("streamer.uncaught").critical(
            "uncaught exception", exc_info=(kind, error or kind(), trace)
        )

    sys.excepthook = uncaught
    threading.excepthook = lambda told: uncaught(told.exc_type, told.exc_value, told.exc_traceback)
    sys.unraisablehook = lambda told: uncaught(told.exc_type, told.exc_value, told.exc_traceback)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at each line."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _visible_json(value: object, **options: Any) -> str:
    return visible(json.dumps(value, **options))


def _visible_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if isinstance(value, str):
            # A line feed would begin a line that looks like another event; tracebacks have lines of their own.
            shown = value if name in ("exception", "stack") else value.replace("\n", "\\n")
            event[name] = visible(shown)
    return event


def _without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = HIDDEN if is_secret(name) else redact_text(value)
    return event
