"""What every server here reads of a request, and the files that it answers with."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send


def media_type(request: Request) -> str:
    """Return what a request says that its body is, without parameters; empty where it does not."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def bounded_body(request: Request, most: int) -> bytes | None:
    """Read a body; None as soon as it has more than `most` bytes."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > most:
            return None
    return bytes(found)


def one_length(app: ASGIApp) -> ASGIApp:
    """Refuse a request with both `Content-Length` and `Transfer-Encoding`: a proxy in front may see another end of it (RFC 9112)."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and {b"content-length", b"transfer-encoding"} <= dict(scope["headers"]).keys()
        ):
            refusal = "send Content-Length or Transfer-Encoding, not both\n"
            await PlainTextResponse(refusal, 400, {"connection": "close"})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return run


def static_file(
    package: str, name: str, media_type: str, before: str = ""
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a file in a package's folder ``static``, with a text before it."""
    content = before.encode() + files(package).joinpath("static", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return answer
