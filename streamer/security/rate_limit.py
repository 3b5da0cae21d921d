"""How often somebody may ask: one bucket of tokens for each. Pure; whoever asks passes the time."""

from __future__ import annotations

from typing import Protocol

from streamer.security.api_keys import Rate


class Limited(Protocol):
    """Whoever is limited: an API key, for example."""

    @property
    def id(self) -> str:
        """Names its bucket."""
        ...

    @property
    def rate(self) -> Rate | None:
        """How often; None: as often as it wants."""
        ...


class RateLimits:
    """The buckets of one process, which all its requests share; not for several threads at once.

    A bucket begins full, holds the rate's `requests` and is refilled evenly: within any time t no more than
    `requests` (1 + t / `seconds`) pass.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}  # by key: the level, and when it was so high

    def wait(self, key: Limited, *, now: float) -> float:
        """Return 0 and count a request that may pass; otherwise the seconds until one may, and count nothing.

        `now` : seconds, from any start; a clock that goes back refills nothing.
        """
        if key.rate is None:
            return 0.0
        most, a_second = float(key.rate.requests), key.rate.requests / key.rate.seconds
        level, then = self._buckets.get(key.id, (most, now))
        level = min(level + max(now - then, 0.0) * a_second, most)
        if level < 1:
            return (1 - level) / a_second
        self._buckets[key.id] = (level - 1, max(now, then))
        return 0.0

    def forget(self, identity: str) -> None:
        """Fill a bucket again."""
        self._buckets.pop(identity, None)
