"""The command `streamer`: one file a command group, each a thin layer over the rooms that do the work."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

DONE, FAILED, WRONG_USAGE, FOUND, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses: it is done, it failed, it was asked wrongly, a check found something, Ctrl-C."""

_SERVICES = ("worker", "recalibrator")
"""Commands that write a log, of JSON unless somebody watches."""
_SERVICES_FOR_PEOPLE = ("dev", "review")
"""Those that talk to a person beside their log, unless JSON is asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Errors are one line on standard error, what is wrong and what to do about it; with ``STREAMER_DEBUG=1`` the
    traceback comes as well. Where a service logs JSON, whatever it says on standard error is JSON from its first line.

    Parameters
    ----------
    arguments : the words after ``streamer``; those of this process when None.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
    from streamer.errors import StreamerError, UsageError
    from streamer.security.redaction import redact_text

    try:
        logged = _begin_log(words)
        from streamer.cli.app import app
        from streamer.cli.console import complain, log_lines
    except ModuleNotFoundError as error:
        if str(error.name).startswith("streamer"):
            raise
        # The library alone, without what it depends on: nothing is there yet to say it prettily with.
        sys.stderr.write(f"streamer: the package {error.name} is missing: pip install conformal-streamer\n")
        return WRONG_USAGE

    debug = not logged and os.environ.get("STREAMER_DEBUG", "") not in ("", "0")
    if debug:
        sys.excepthook = _visible_traceback
    log_lines(logged)
    try:
        # Outside standalone mode usage errors come here, and are not printed in a frame.
        status = app(args=words, prog_name="streamer", standalone_mode=not logged)
        return status if isinstance(status, int) else DONE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else DONE if stop.code is None else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        if debug:
            raise
        complain(redact_text(str(error)))
        return WRONG_USAGE
    except StreamerError as error:
        if debug:
            raise
        complain(redact_text(str(error)))
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has enough (`streamer tail | head`); the interpreter must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if debug:
            raise
        if callable(described := getattr(error, "format_message", None)):
            complain(described())
            return WRONG_USAGE
        if logged:
            sys.excepthook(type(error), error, error.__traceback__)
            return FAILED
        complain(
            f"unexpected {type(error).__name__}: {redact_text(str(error)).splitlines()[0] if str(error) else 'no text'}; "
            "run it again with STREAMER_DEBUG=1 to see where"
        )
        return FAILED
    finally:
        log_lines(False)
        # Whoever calls us goes on; of a process of ours the last word is to be logged, too.
        if arguments is not None:
            sys.excepthook, threading.excepthook, sys.unraisablehook = hooks


def _begin_log(words: Sequence[str]) -> bool:
    """Configure the log of a service before anything can be said, and report whether it is JSON.

    What format the settings want is known when they are read; until then the environment's word is taken.
    """
    wanted = os.environ.get("STREAMER_LOGGING_FORMAT", "").strip().lower()
    command = next((word for word in words if not word.startswith("-")), None)
    if command not in _SERVICES and not (command in _SERVICES_FOR_PEOPLE and wanted == "json"):
        return False
    from streamer.telemetry.logs import configure_logging, log_uncaught

    json = configure_logging("json" if wanted == "json" else "console" if wanted == "console" else "auto")
    if json:
        log_uncaught()
    return json


def _visible_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    import traceback

    from streamer.security.visible import visible

    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))
