"""The command `streamer`: one file a command group, each a thin layer over the packages that do the work."""

import os
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

DONE, FAILED, WRONG_USAGE, FOUND, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses: done, failed, usage error, a check found something, Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (None: of this process) and return its exit status.

    Errors are one line on standard error, what is wrong and what to do about it; with
    ``STREAMER_DEBUG=1`` the traceback is printed as well. Where a service logs JSON, whatever it
    says on standard error is JSON from its first line.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
    from streamer.collector import look_seldom
    from streamer.errors import BadData, StreamerError, UsageError
    from streamer.security.visible import redact_text

    if arguments is None:
        look_seldom()
    try:
        logged = _begin_log(words)
        from streamer.cli.app import app
        from streamer.cli.console import complain, log_lines
    except ModuleNotFoundError as error:
        if str(error.name).startswith("streamer"):
            raise
        # A dependency is missing, so the console that formats errors may be, too.
        sys.stderr.write(f"streamer: the package {error.name} is missing: pip install conformal-streamer\n")
        return WRONG_USAGE

    output = _file_of(sys.__stdout__)
    debug = not logged and os.environ.get("STREAMER_DEBUG", "") not in ("", "0")
    if debug:
        sys.excepthook = _visible_traceback
    log_lines(logged)
    try:
        # Outside standalone mode usage errors are raised to here instead of printed in a frame.
        status = app(args=words, prog_name="streamer", standalone_mode=not logged)
        return status if isinstance(status, int) else DONE
    except SystemExit as stop:
        # Typer and Rich exit with 1 at any broken pipe; it may also have been a connection's.
        if isinstance(stop.__context__, BrokenPipeError) and not logged and _is_closed(output):
            return DONE
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
        unfit = _unfit(words) if isinstance(error, BadData) else None
        complain(redact_text(unfit or str(error)))
        return FAILED if unfit is None else WRONG_USAGE
    except Exception as error:
        if debug:
            raise
        if callable(described := getattr(error, "format_message", None)):
            complain(described())
            return WRONG_USAGE
        if logged:
            sys.excepthook(type(error), error, error.__traceback__)
            return FAILED
        if isinstance(error, OSError) and (refused := _disk_refusal(error)) is not None:
            complain(redact_text(refused))
            return FAILED
        if isinstance(error, UnicodeEncodeError | OverflowError) and (unfit := _unfit(words)) is not None:
            complain(unfit)
            return WRONG_USAGE
        complain(
            f"unexpected {type(error).__name__}: {redact_text(str(error)).splitlines()[0] if str(error) else 'no text'}; "
            "run it again with STREAMER_DEBUG=1 to see where"
        )
        return FAILED
    finally:
        log_lines(False)
        # A caller's process continues with its own hooks; ours logs even what happens at its exit.
        if arguments is not None:
            sys.excepthook, threading.excepthook, sys.unraisablehook = hooks


def _unfit(words: Sequence[str]) -> str | None:
    """Name the argument that no database keeps: one that is no UTF-8, or a number of more than 64 bits; None where there is none."""
    for word in words:
        if word != word.encode("utf-8", "replace").decode():
            return f"the argument {word!r} is not UTF-8"
        number = word.rpartition("=")[2]
        if number.isdecimal() and len(number) < 1_000 and int(number) >= 2**63:
            return f"the argument {word} is larger than any number on record"
    return None


def _disk_refusal(error: OSError) -> str | None:
    """Say what a disk refuses and of which file, as far as the system names it; None where the error is another."""
    import errno

    full = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
    if error.errno not in (*full, errno.EIO, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
        return None
    deed = "write" if error.errno in full else "read or write"
    # Writing to an open file, standard output among them, names none.
    file = "a file or standard output" if error.filename is None else str(error.filename)
    return f"cannot {deed} {file}: {error.strerror}"


def _file_of(stream: TextIO | None) -> os.stat_result | None:
    """Return what a stream writes to; None where that is no file."""
    try:
        return None if stream is None else os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None


def _is_closed(output: os.stat_result | None) -> bool:
    """Report whether the reader of standard output has closed it (`streamer tail | head`), and discard the rest."""
    import select

    stdout = sys.__stdout__
    if stdout is None or output is None or not hasattr(select, "poll"):
        return False
    if not os.path.samestat(output, os.fstat(stdout.fileno())):
        return True  # Rich has put the null device in its place
    poll = select.poll()
    poll.register(stdout.fileno(), 0)
    if not poll.poll(0):  # errors and hang-ups are always reported
        return False
    # Without this the interpreter would complain at its exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
    return True


def _begin_log(words: Sequence[str]) -> bool:
    """Configure the log of a service before anything can be said, and report whether it is JSON.

    What format the settings want is known when they are read; until then the environment decides.
    """
    wanted = os.environ.get("STREAMER_LOGGING_FORMAT", "").strip().lower()
    command = next((word for word in words if not word.startswith("-")), None)
    # Services write it in JSON unless a terminal shows it; those that also talk to a person, if asked to.
    if command not in ("worker", "recalibrator") and not (command in ("dev", "review") and wanted == "json"):
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
