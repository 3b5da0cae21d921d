"""What requests have in common: how long they may take, a bounded body, the key of a repeat, the trace."""

import asyncio
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from starlette.requests import Request

from streamer.events.receipts import HTTP_HEADER
from streamer.journal import Headers
from streamer.serving.problems import Problem, refused
from streamer.web.connections import BODY_SECONDS
from streamer.web.requests import bounded_body, media_type

LEAST_BODY_SECONDS: Final = 0.5
"""However short a deadline is: with the body on its way a hold can be recorded, and answered."""

_TRACE: Final = ("traceparent", "tracestate")


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


async def body(request: Request, most: int, until: Deadline) -> bytes:
    """Read a body of JSON. Raises `Problem` for one of another type, or beyond `most` bytes, or not there by the deadline."""
    if media_type(request) != "application/json":
        # Nor could a page of another origin send this without asking first.
        raise Problem(415, "bad_media_type", "send the header Content-Type: application/json")
    seconds = min(max(until.seconds, LEAST_BODY_SECONDS), BODY_SECONDS)
    try:
        async with asyncio.timeout_at(until.at - until.seconds + seconds):
            found = await bounded_body(request, most)
    except TimeoutError:
        raise Problem(408, "bad_request", f"the body did not come within {seconds:g} s") from None
    if found is None:
        raise refused("too_large", f"the body is larger than {most} bytes")
    return found


def idempotency_key(request: Request) -> str | None:
    """Return the header as it was meant: with quotes it is a string of RFC 8941."""
    key = request.headers.get("idempotency-key")
    return None if key is None else key.removeprefix('"').removesuffix('"')


def trace(request: Request) -> Headers:
    """Return the headers of a trace, for the record."""
    return tuple(
        (name, request.headers[name].encode("latin-1")) for name in _TRACE if name in request.headers
    )


def receipt(given: str | None) -> dict[str, str]:
    """Return the header with the receipt of a decision, where it is known."""
    return {} if given is None else {HTTP_HEADER: given}


def applied(request: Request, deadline: Deadline) -> dict[str, str]:
    """Return the header that says which time was granted, where one was asked for."""
    return {"preference-applied": f"wait={deadline.seconds:g}"} if "prefer" in request.headers else {}
