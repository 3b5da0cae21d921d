"""What surrounds every answer of the page: the host it is for, and headers that a browser obeys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from streamer.web.hosts import answers_to

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    # Nothing but our own three files, no inline script or style, no frame, no form, and text never as HTML.
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
    """Wraps an application: refuses other hosts and other origins, and puts `HEADERS` on whatever goes out."""

    def __init__(self, app: ASGIApp, *, listening: str) -> None:
        self._app = app
        self._listening = listening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(Headers(scope=scope), scope["method"])
        answer = self._app if refused is None else PlainTextResponse(refused + "\n", 403)
        await answer(scope, receive, send_guarded)

    def _refusal(self, headers: Headers, method: str) -> str | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not answers_to(hosts[0], self._listening):
            return "this page does not answer to that host name"
        if method in ("GET", "HEAD"):
            return None
        # Browsers send where a write comes from; other clients have neither these headers nor the cookie.
        if headers.get("origin", f"http://{hosts[0]}") != f"http://{hosts[0]}":
            return "writes come from the page itself"
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "writes come from the page itself"
        return None
