"""What surrounds every answer of a page: the hosts a server answers to, and headers that a browser obeys."""

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamer_client.loopback import is_loopback

_PORTS: Final = {"http": 80, "https": 443}
_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - asked about, not listened on


class Served(NamedTuple):
    """Where an application is served.

    `listening` and `port` : what it listens on. `public` : the address by which a proxy in front is known, for example
    ``https://streamer.example``; None: there is none. `proxies` : how many are in front, as `streamer.web.requests.caller` counts
    them; None: one on this machine, if `public` is given.
    """

    listening: str
    port: int
    public: str | None = None
    proxies: int | None = None

    @property
    def secure(self) -> bool:
        """Whether browsers come by TLS alone, so that a cookie need not travel without."""
        return self.public is not None and self.public.startswith("https://")


def origin_of(address: str) -> str:
    """Return the origin that an address names, as a browser writes it: in lower case, without the port that its scheme has anyway.

    Raises ValueError for what names no origin, or more than one.
    """
    parts = urlsplit(address)
    host, port = parts.hostname, parts.port
    more = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in _PORTS or not host or more or any(map(str.isspace, host)):
        raise ValueError(f"{address!r} is no origin")
    bare = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bare}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def answers_to(header: str, listening: str) -> bool:
    """Report whether a request's Host may be answered by a server that listens on `listening`.

    A name that somebody else owns may be pointed at this machine at any moment (DNS rebinding), and a page under that
    name would then be of our origin: only the loopback, the address that was asked for, and numeric addresses where
    every address is listened on are answered. The port is left open: a tunnel has its own.
    """
    host = _without_port(header).lower()
    if is_loopback(listening):
        return is_loopback(host)
    if listening in _EVERY_ADDRESS:
        return is_loopback(host) or _is_address(host)
    return host == listening.strip("[]").lower()


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


HEADERS: Final = {
    # Nothing but our own files, no inline script or style, no frame, and text never as HTML.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # People's texts are in them.
    "cache-control": "no-store",
}


class Guard:
    """Wraps an application: refuses other hosts and other origins, and puts on whatever goes out
    what it does not say of `HEADERS` itself.

    `forms` : whether its pages send forms, to itself.
    """

    def __init__(self, app: ASGIApp, served: Served, *, forms: bool = False) -> None:
        self._app = app
        self._listening = served.listening
        self._public = None if served.public is None else origin_of(served.public)
        self._headers = {**HEADERS}
        if forms:
            policy = HEADERS["content-security-policy"].replace("form-action 'none'", "form-action 'self'")
            self._headers["content-security-policy"] = policy
            # Without a referrer browsers send forms with the origin `null`.
            self._headers["referrer-policy"] = "same-origin"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                found.update({name: value for name, value in self._headers.items() if name not in found})
            await send(message)

        refused = self._refusal(Headers(scope=scope), scope["method"])
        answer = self._app if refused is None else PlainTextResponse(refused + "\n", 403)
        await answer(scope, receive, send_guarded)

    def _refusal(self, headers: Headers, method: str) -> str | None:
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        known = self._public is not None and _same(f"{self._public.partition(':')[0]}://{host}", self._public)
        if not host or not (known or answers_to(host, self._listening)):
            return "this page does not answer to that host name"
        if method in ("GET", "HEAD"):
            return None
        # Browsers send where a write comes from; other clients have neither these headers nor the cookie.
        here = f"http://{host}"
        origin = headers.get("origin", here)
        if not (_same(origin, here) or (known and _same(origin, self._public))):
            return "writes come from the page itself"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "writes come from the page itself"
        return None


def _same(one: str, other: str | None) -> bool:
    """Whether two addresses have one origin; what is no address has none."""
    try:
        return other is not None and origin_of(one) == origin_of(other)
    except ValueError:
        return False
