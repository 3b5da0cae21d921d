"""No more requests and tokens a minute than an endpoint grants, evenly spread."""

from collections.abc import Awaitable, Callable


class Pace:
    """Gives each request its turn. For one event loop.

    Requests begin at least 60 / `requests_per_minute` > 0 seconds apart; None: no bound. So it is
    with `tokens_per_minute`, of requests and replies together: what a request will use is not known
    when it begins, so that an estimate counts first, and the difference when its reply is there.
    `clock` has seconds, from any start; `sleep` waits that many.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._apart = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._next_request = self._next_tokens = self._held_until = float("-inf")

    async def turn(self, tokens: int) -> None:
        """Wait for the turn of a request that is estimated to use this many tokens."""
        now = self._clock()
        start = max(now, self._next_request, self._next_tokens, self._held_until)
        self._next_request = start + self._apart
        self._next_tokens = start + tokens * self._per_token
        if start > now:
            await self._sleep(start - now)

    def used(self, expected: int, tokens: int) -> None:
        """Replace a request's estimated tokens by the real ones."""
        self._next_tokens += (tokens - expected) * self._per_token

    def hold(self, seconds: float) -> None:
        """Let no request begin for this long: the endpoint asked for it."""
        self._held_until = max(self._held_until, self._clock() + seconds)
