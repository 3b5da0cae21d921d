"""The command `streamer`: one file a command group, each a thin layer over the rooms that do the work."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, WRONG_USAGE, FOUND, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit statuses: it is done, it failed, it was asked wrongly, a check found something, Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Errors are one line on standard error, what is wrong and what to do about it; with ``STREAMER_DEBUG=1`` the
    traceback comes as well.

    Parameters
    ----------
    arguments : the words after ``streamer``; those of this process when None.
    """
    from streamer.cli.app import app
    from streamer.cli.console import complain
    from streamer.errors import StreamerError, UsageError
    from streamer.redaction import redact_text

    debug = os.environ.get("STREAMER_DEBUG", "") not in ("", "0")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="streamer")
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
        complain(
            f"unexpected {type(error).__name__}: {redact_text(str(error)).splitlines()[0] if str(error) else 'no text'}; "
            "run it again with STREAMER_DEBUG=1 to see where"
        )
        return FAILED
    return DONE
