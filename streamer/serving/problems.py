"""What an answer says that is no decision: problem+json (RFC 9457), and that whoever asked must hold."""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

import msgspec
from starlette.responses import Response

from streamer.errors import Unavailable
from streamer.events import codes

T = TypeVar("T")

RETRY_SECONDS: Final = 2
"""When to ask again: the longest pause between two attempts to reach the database."""

READ_SECONDS: Final = 5.0
"""How long reading the database may take, before the answer is that it does not answer."""

_TITLES: Final = {
    "bad_request": "The request cannot be read",
    "bad_media_type": "Send application/json",
    "forbidden_host": "The service does not answer to this host name",
    "not_found": "There is nothing here",
    "method_not_allowed": "The path does not take this method",
    "unknown_batch": "The batch is not decided",
    "given_out": "Decided before, and no longer in the database",
    "not_at_desk": "The batch does not wait for a person",
    "overloaded": "Too many requests wait",
    "no_key": "A key is needed",
    "not_allowed": "The key does not allow this",
    "too_often": "The key asks too often",
    "unavailable": "No decision could be recorded in time",
    codes.UNKNOWN_GATE: "There is no such gate",
    codes.CONFLICTING_CONTENT: "Decided before, with other content",
    codes.INTERNAL_ERROR: "Deciding or storing it failed",
}
_STATUSES: Final = {
    codes.TOO_LARGE: 413,
    codes.EMPTY_VALUE: 400,
    codes.NOT_UTF8: 400,
    codes.NOT_JSON: 400,
    codes.UNKNOWN_GATE: 404,
    codes.CONFLICTING_CONTENT: 409,
    codes.INTERNAL_ERROR: 500,
}


class Problem(Exception):
    """An answer other than a decision: a status of HTTP, a code of the decoder's
    (`streamer.events.codes`) or of this module, and what is wrong, in a sentence. The same
    request may be answered after `retry` seconds; None: it will not be."""

    def __init__(self, status: int, code: str, detail: str, *, retry: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.retry = retry

    def response(self) -> Response:
        """Return it as it is sent."""
        body = {
            "type": f"urn:streamer:problem:{self.code}",
            "title": _TITLES.get(self.code, "The event was refused"),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "action": "abstain",
        }
        kind = "application/problem+json"
        return Response(msgspec.json.encode(body), self.status, self.headers(), media_type=kind)

    def headers(self) -> dict[str, str]:
        """Return what clients obey: when to ask again, and how."""
        found = {} if self.retry is None else {"retry-after": str(math.ceil(self.retry))}
        return found | ({"www-authenticate": "Bearer"} if self.status == 401 else {})


def refused(code: str, detail: str) -> Problem:
    """An event that the decoder, the decider or the store refused with one of `streamer.events.codes`."""
    return Problem(_STATUSES.get(code, 422), code, detail)


def overloaded(name: str) -> Problem:
    """Too many wait; `name` : what makes a repeat the same request."""
    detail = f"too many requests wait already; hold, and ask again with the same {name}"
    return Problem(429, "overloaded", detail, retry=RETRY_SECONDS)


async def reading(executor: Executor, read: Callable[[], T], away: str) -> T:
    """Return what reading the database, which blocks, returns. Raises `Problem` that says `away` where it does not answer."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await asyncio.get_running_loop().run_in_executor(executor, read)
    except (Unavailable, TimeoutError):
        raise unavailable(away) from None


def unavailable(detail: str) -> Problem:
    """Nothing could be recorded in time."""
    return Problem(503, "unavailable", detail, retry=RETRY_SECONDS)
