"""How long a request may take: what it asks for by `Prefer` or `wait_ms`, and at most `streamer serve --wait`."""

import asyncio
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from starlette.requests import Request

from streamer.serving.problems import Problem

GRACE_SECONDS: Final = 2.0
"""How long past a deadline its hold may take to be recorded, before the answer is that nothing could be."""


class Deadline(NamedTuple):
    """When whoever asks stops to wait: `ms` since 1970, for the record, and `at` on the event loop's clock."""

    seconds: float
    ms: int
    at: float


def deadline(wanted: float | None, longest: float, *, now: datetime) -> Deadline:
    """Return when a request that comes now, and may take `wanted` seconds, has to be answered."""
    seconds = longest if wanted is None else min(wanted, longest)
    return Deadline(
        seconds, math.floor((now.timestamp() + seconds) * 1000), asyncio.get_running_loop().time() + seconds
    )


def wanted_seconds(prefer: Iterable[str], wait_ms: str | None) -> float | None:
    """Return what the headers `Prefer` (RFC 7240) and the parameter `wait_ms` ask for, > 0; None: nothing.

    Other preferences are none of ours. Raises `Problem` for what is no such time.
    """
    asked = [("wait_ms", wait_ms, 1000.0)] if wait_ms is not None else []
    asked += [("Prefer: wait", value, 1.0) for value in _preferred(prefer, "wait")]
    seconds = [_seconds(*one) for one in asked]
    return min(seconds, default=None)


def desk_seconds(prefer: Iterable[str]) -> float | None:
    """Return how long the headers `Prefer` ask to wait for the desk (``desk=60``), > 0; None: not at all. Raises `Problem`."""
    return min((_seconds("Prefer: desk", value, 1.0) for value in _preferred(prefer, "desk")), default=None)


def _preferred(prefer: Iterable[str], wanted: str) -> Iterator[str]:
    for header in prefer:
        for preference in header.split(","):
            name, given, value = preference.partition(";")[0].partition("=")
            if given and name.strip().lower() == wanted:
                yield value.strip().strip('"')


def _seconds(name: str, text: str, scale: float) -> float:
    try:
        seconds = float(text) / scale
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise Problem(400, "bad_request", f"{name} must be a number above 0")
    return seconds


def applied(request: Request, deadline: Deadline) -> dict[str, str]:
    """Return the header that says which time was granted, where one was asked for."""
    return {"preference-applied": f"wait={deadline.seconds:g}"} if "prefer" in request.headers else {}
