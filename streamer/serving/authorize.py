"""Who may do what at which gate."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.requests import Request

from streamer.errors import Unavailable
from streamer.security.api_keys import ApiKey, KeyRing, May, RateLimits, allows
from streamer.serving.problems import Problem, unavailable
from streamer.web.guard import answers_to
from streamer_client.loopback import is_loopback

SEEING: Final[tuple[May, ...]] = ("decide", "read")
"""Who may see what became of a batch whose id they name: whoever may have it decided, or read."""


@dataclass(frozen=True, slots=True)
class Authorize:
    """Asks for a key that allows what is asked for: once for each request, before its body is read,
    or, where the body names the gate, before and after.

    `ring` are the keys on record, which somebody refreshes; `rates` counts the requests of each
    key. While the address that is served on, `listening`, is the loopback's and no key was ever
    made, anyone may do anything. `clock` gives the present moment, with zone; `monotonic` seconds,
    from any start.
    """

    ring: KeyRing
    rates: RateLimits
    listening: str
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]

    async def __call__(self, request: Request, gate: str, /, *may: May) -> None:
        """Raise `Problem` where the request is refused: its key needs to allow one of these."""
        key = self.enter(request)
        if key is None:
            return
        if not any(allows(key, gate, one) for one in may):
            raise Problem(403, "not_allowed", f"key {key.id} may not {' or '.join(may)} at gate {gate!r}")
        seconds = self.rates.wait(key, now=self.monotonic())
        if seconds > 0:
            raise Problem(
                429, "too_often", f"key {key.id} may ask {key.rate} times; hold, and ask again", retry=seconds
            )

    def may(self, request: Request, gate: str, /, *may: May) -> bool:
        """Whether a request that may enter may do one of these at this gate."""
        key = self.enter(request)
        return key is None or any(allows(key, gate, one) for one in may)

    def enter(self, request: Request, /) -> ApiKey | None:
        """The key that was sent; None where none is needed. Raises `Problem` for a request that is refused whatever it is for."""
        try:
            if is_loopback(self.listening) and self.ring.is_empty():
                # A page whose name points here is of our origin, and could ask without a key.
                hosts = request.headers.getlist("host")
                if len(hosts) == 1 and answers_to(hosts[0], self.listening):
                    return None
                raise Problem(403, "forbidden_host", "this service does not answer to that host name")
            token = _token(request)
            key = None if token is None else self.ring.find(token, now=self.clock())
        except Unavailable:
            raise unavailable("the API keys could not be read for a while; hold, and ask again") from None
        if key is None:
            raise Problem(401, "no_key", "send a key that is in force: Authorization: Bearer streamer_...")
        return key


def _token(request: Request) -> str | None:
    """Return the one bearer token that was sent; Anthropic's clients send it by itself."""
    sent = request.headers.getlist("authorization") or [
        f"Bearer {key}" for key in request.headers.getlist("x-api-key")
    ]
    scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None
