"""What every server here reads of a request, and the files that it answers with."""

from collections.abc import Awaitable, Callable
from importlib.resources import files
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamer_client.loopback import is_loopback


def media_type(request: Request) -> str:
    """Return what a request says that its body is, without parameters; empty where it does not."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def caller(request: Request, *, proxies: int | None) -> str:
    """Return the address that a request comes from; empty where the connection has none.

    Each proxy adds the address that it was called from at the end of `X-Forwarded-For`, over all its lines; what stands before
    that anybody can have sent. So the caller's is the one so many places from the end, and where there are fewer, or it is no
    address, the connection's.

    Parameters
    ----------
    proxies : how many are in front; None: one, if the connection comes from this machine.
    """
    peer = "" if request.client is None else request.client.host
    if proxies is None:
        proxies = int(is_loopback(peer))
    said = [one.strip() for line in request.headers.getlist("x-forwarded-for") for one in line.split(",")]
    if not 0 < proxies <= len(said):
        return peer
    host = said[-proxies]
    if not host.startswith("["):
        host = host if host.count(":") > 1 else host.partition(":")[0]  # some proxies add the port
    try:
        return str(ip_address(host.strip("[").partition("]")[0]))
    except ValueError:
        return peer


async def bounded_body(request: Request, most: int) -> bytes | None:
    """Read a body; None as soon as it has more than `most` bytes."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > most:
            return None
    return bytes(found)


def well_formed(app: ASGIApp) -> ASGIApp:
    """Refuse a request whose end a proxy in front may see elsewhere (RFC 9112), or with NUL, which no text has, in its address."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http":
            if {b"content-length", b"transfer-encoding"} <= dict(scope["headers"]).keys():
                refusal = "send Content-Length or Transfer-Encoding, not both"
            elif "\0" in scope["path"] or b"%00" in scope["query_string"]:
                refusal = "the address has a NUL character"
        if refusal is None:
            await app(scope, receive, send)
        else:
            await PlainTextResponse(f"{refusal}\n", 400, {"connection": "close"})(scope, receive, send)

    return run


def static_file(
    package: str, name: str, media_type: str, before: str = ""
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a file in a package's folder ``static``, with a text before it."""
    content = before.encode() + files(package).joinpath("static", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return answer
