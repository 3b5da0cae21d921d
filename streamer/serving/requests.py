"""What requests have in common: a bounded body, the key of a repeat, the trace."""

import asyncio
from typing import Final

from starlette.requests import Request

from streamer.events.receipts import HTTP_HEADER
from streamer.journal import Headers
from streamer.serving.deadline import Deadline
from streamer.serving.problems import Problem, refused
from streamer.web.connections import BODY_SECONDS
from streamer.web.requests import bounded_body, media_type

LEAST_BODY_SECONDS: Final = 0.5
"""However short a deadline is: with the body on its way a hold can be recorded, and answered."""

_TRACE: Final = ("traceparent", "tracestate")


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
