"""What requests have in common: how long they may take, a bounded body, the key of a repeat, the trace."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.identifiers import check_identifier
from streamer.events.limits import Limits
from streamer.events.receipts import HTTP_HEADER
from streamer.journal import Headers
from streamer.serving.authorize import Authorize
from streamer.serving.deadline import Deadline, deadline, wanted_seconds
from streamer.serving.problems import Problem, refused
from streamer.serving.releases import Releases
from streamer.serving.request_log import RequestLog
from streamer.web.connections import BODY_SECONDS
from streamer.web.requests import bounded_body, media_type

LEAST_BODY_SECONDS: Final = 0.5
"""However short a deadline is: with the body on its way a hold can be recorded, and answered."""

_TRACE: Final = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What requests are answered with. One may take `longest` seconds, > 0, and takes as long where it asks for nothing;
    `clock` gives the present moment, with zone. `authorize` is asked about each request of a gate.
    """

    request_log: RequestLog
    limits: Limits
    longest: float
    clock: Callable[[], datetime]
    authorize: Authorize
    releases: Releases

    def deadline(self, request: Request) -> tuple[Deadline, datetime]:
        """That of a request that comes now, and now. Raises `Problem`."""
        now = self.clock()
        return deadline(wanted(request), self.longest, now=now), now

    async def body(self, request: Request, until: Deadline) -> bytes:
        """Read a body of JSON. Raises `Problem` for one of another type, or too large, or not there by the deadline."""
        if media_type(request) != "application/json":
            # Nor could a page of another origin send this without asking first.
            raise Problem(415, "bad_media_type", "send the header Content-Type: application/json")
        seconds, most = min(max(until.seconds, LEAST_BODY_SECONDS), BODY_SECONDS), self.limits.max_value_bytes
        try:
            async with asyncio.timeout_at(until.at - until.seconds + seconds):
                found = await bounded_body(request, most)
        except TimeoutError:
            raise Problem(408, "bad_request", f"the body did not come within {seconds:g} s") from None
        if found is None:
            raise refused("too_large", f"the body is larger than {most} bytes")
        return found

    def idempotency_key(self, request: Request) -> str | None:
        """Return the header as it was meant: UTF-8, and with quotes a string of RFC 8941. Raises `BadMessage`."""
        given, name = request.headers.get("idempotency-key"), "the header Idempotency-Key"
        if given is None:
            return None
        try:
            key = given.encode("latin-1").decode().removeprefix('"').removesuffix('"')
        except UnicodeDecodeError:
            raise BadMessage(codes.BAD_IDENTIFIER, f"{name} is not UTF-8") from None
        check_identifier(name, key, self.limits.max_identifier)
        return key


def wanted(request: Request) -> float | None:
    """Return how many seconds a request asks for; None: it does not say. Raises `Problem`."""
    return wanted_seconds(request.headers.getlist("prefer"), request.query_params.get("wait_ms"))


def milliseconds(moment: datetime) -> int:
    """Return a moment as records have it, since 1970."""
    return int(moment.timestamp() * 1000)


def as_json(content: bytes, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of JSON."""
    return Response(content, headers=headers, media_type="application/json")


def trace(request: Request) -> Headers:
    """Return the headers of a trace, for the record."""
    return tuple(
        (name, request.headers[name].encode("latin-1")) for name in _TRACE if name in request.headers
    )


def receipt(given: str | None) -> dict[str, str]:
    """Return the header with the receipt of a decision, where it is known."""
    return {} if given is None else {HTTP_HEADER: given}
