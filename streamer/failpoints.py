"""Named places where a test makes a process die, fail or wait; nothing at all unless the environment arms them.

``STREAMER_FAILPOINTS="after_lease=kill,in_transaction=kill@3,while_scoring=sleep:2"`` arms them, for tests only. An
entry is ``point=action``, ``point=action@n`` (at the n-th passing, once; the first when left out) or
``point=action@*`` (at every one).
"""

import functools
import os
import re
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, cast

from streamer.errors import Unavailable, UsageError
from streamer.lazy import LazyLogger

log = LazyLogger(__name__)

VARIABLE: Final = "STREAMER_FAILPOINTS"

POINTS: Final = (
    "after_lease",
    "while_scoring",
    "after_score",
    "before_commit",
    "in_transaction",
    "after_transaction",
    "after_commit",
    "before_run",
    "before_record",
    "in_record",
    "after_record",
    "before_publish",
    "after_publish",
    "after_mark",
)
"""Every place, in the order in which a record passes them.

``in_transaction`` and ``after_transaction`` are passed by whatever writes to the database, commands included: all is
written and not yet committed, and committed and not yet published. The others are the worker's;
``before_publish``, ``after_publish`` and ``after_mark`` are passed by commands that publish as well.
``before_run``, ``before_record`` and ``after_record`` are the recalibrator's: before it reads, when it has decided and
written nothing, and when all is written and nothing published. ``in_record`` is passed by whatever records a calibration run,
between its writing and its commit.
"""

RUN_POINTS: Final = ("before_run", "before_record", "in_record", "after_record")
"""Those of them that belong to a calibration run: a worker passes none of them."""

Action = Literal["kill", "raise", "away", "sleep"]

_ENTRY = re.compile(
    r"(?P<point>\w+)=(?P<action>\w+)(?::(?P<seconds>\d+(?:\.\d+)?))?(?:@(?P<passing>\d+|\*))?"
)


class Failpoint(Protocol):
    """What code calls where a test may want to break it."""

    def __call__(self, point: str, /) -> None:
        """Pass the place of this name."""


class FailpointError(RuntimeError):
    """The error of the action ``raise``: one that no code expects."""


def disarmed(_point: str, /) -> None:
    """Do nothing: the failpoint of every process that is no test."""


@dataclass(slots=True)
class _Armed:
    action: Action
    seconds: float
    passing: int | None
    passed: int = 0


def parse(text: str) -> dict[str, _Armed]:
    """Read what `VARIABLE` holds.

    Actions: ``kill`` (SIGKILL to this process), ``raise`` (an error that nobody expects), ``away`` (`Unavailable`,
    as from a dependency that does not answer), ``sleep:SECONDS`` (the thread that passes waits).
    Raises `UsageError` for a point or an action that does not exist, and for what cannot be read.
    """
    armed: dict[str, _Armed] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise UsageError(
                f"{VARIABLE}: {entry!r} is not point=action, point=sleep:SECONDS or point=action@n"
            )
        point, action, seconds, passing = found.group("point", "action", "seconds", "passing")
        if point not in POINTS:
            raise UsageError(f"{VARIABLE}: there is no failpoint {point!r}; there are {', '.join(POINTS)}")
        if point in armed:
            raise UsageError(f"{VARIABLE}: {point} is given twice")
        if action not in ("kill", "raise", "away", "sleep"):
            raise UsageError(
                f"{VARIABLE}: there is no action {action!r}; there are kill, raise, away and sleep"
            )
        if (action == "sleep") != (seconds is not None):
            raise UsageError(
                f"{VARIABLE}: {entry!r}: sleep needs its seconds (sleep:2), and no other action has any"
            )
        if passing == "0":
            raise UsageError(f"{VARIABLE}: {entry!r}: passings are counted from 1")
        armed[point] = _Armed(
            cast("Action", action), float(seconds or 0), None if passing == "*" else int(passing or 1)
        )
    return armed


class Failpoints:
    """The armed points of one process. Callable from any thread.

    Parameters
    ----------
    armed : what `parse` read.
    """

    def __init__(self, armed: Mapping[str, _Armed]) -> None:
        self._armed = armed
        self._lock = threading.Lock()

    def __call__(self, point: str, /) -> None:
        """Pass a place, and do there what was asked for."""
        armed = self._armed.get(point)
        if armed is None:
            return
        with self._lock:
            armed.passed += 1
            due = armed.passing in (None, armed.passed)
        if not due:
            return
        log.warning("failpoint.reached", point=point, action=armed.action, passing=armed.passed)
        if armed.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif armed.action == "raise":
            raise FailpointError(f"failpoint {point}")
        elif armed.action == "away":
            raise Unavailable(f"failpoint {point}")
        else:
            time.sleep(armed.seconds)


def from_environment(environment: Mapping[str, str] = os.environ) -> Failpoint:
    """Return what this process's environment arms: `disarmed` when it says nothing, as it does outside tests.

    Raises `UsageError` for what cannot be read. The same text gives the same object, so that passings are counted once
    a process.
    """
    text = environment.get(VARIABLE, "").strip()
    return _of(text) if text else disarmed


@functools.cache
def _of(text: str) -> Failpoints:
    armed = parse(text)
    log.warning(
        "failpoint.armed", points=sorted(armed), detail="for tests only: this process will break on purpose"
    )
    return Failpoints(armed)
