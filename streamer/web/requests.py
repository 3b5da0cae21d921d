"""What every server here reads of a request, and the files that it answers with."""

from collections.abc import Awaitable, Callable
from email import message_from_bytes
from email.message import Message
from email.policy import HTTP
from importlib.resources import files
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamer_client.loopback import is_loopback

_MOST_PARTS = 20


def media_type(request: Request) -> str:
    """Return what a request says that its body is, without parameters; empty where it does not."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def caller(request: Request, *, proxies: int | None) -> str:
    """Return the address that a request comes from; empty where the connection has none.

    Each proxy adds the address that it was called from at the end of `X-Forwarded-For`, over all
    its lines; what stands before that anybody can have sent. So the caller's is the one as many
    places from the end as there are `proxies` in front (None: one, if the connection comes from
    this machine), and where there are fewer, or it is no address, the connection's.
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


def form_parts(request: Request, body: bytes) -> dict[str, tuple[str, bytes]] | None:
    """Read a form that has a file (RFC 7578): by name what a part holds, with its file's name; None where it is none."""
    head = Message()
    head["content-type"] = request.headers.get("content-type", "")
    boundary = head.get_boundary()
    if head.get_content_type() != "multipart/form-data" or not boundary:
        return None
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), _MOST_PARTS)
    if not parts or not parts[-1].startswith(b"--"):
        return None
    found = {}
    for part in parts[:-1]:
        lines, _, content = part.partition(b"\r\n\r\n")
        about = message_from_bytes(lines.lstrip(b"\r\n"), policy=HTTP)
        found[str(about.get_param("name", "", "content-disposition"))] = (about.get_filename(""), content)
    return found


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
