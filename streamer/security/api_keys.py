"""API keys: what one is, what it allows, and the keys in force as a service holds them. Pure but for drawing a token.

A token is 256 random bits, so SHA-256 alone hides it: there is nothing to guess, and a slow hash would only slow requests.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, get_args

from streamer.errors import Unavailable, UsageError

May = Literal["decide", "label", "read"]
MAY: tuple[May, ...] = get_args(May)
"""`decide`: ask for decisions, and what became of a batch by its id. `label`: send severities. `read`: look at the gate and at
recorded decisions, with who decided at the desk."""

TOKEN = re.compile(r"streamer_([0-9a-f]{12})_[0-9a-f]{64}")
"""A token: the prefix and the form are there for scanners of secrets; the first part is the key's id."""

MOST_SECONDS_OLD = 10.0
"""A service trusts what it read of the keys for so long: so late a revocation takes effect at most."""

_PER = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `requests` at once, refilled evenly within `seconds`; both are positive."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests}/{next(name for name, one in _PER.items() if one == self.seconds)}"


def read_rate(text: str) -> Rate:
    """Read ``50/s``, ``100/m`` or ``1000/h``. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"([1-9]\d{0,6})/([smh])", text.strip())
    if match is None:
        raise UsageError(f"a rate is a number of requests a second, minute or hour, like 50/s, not {text!r}")
    return Rate(int(match[1]), _PER[match[2]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key on record. `id` is public, 12 hexadecimal digits; `digest` the token's SHA-256. It
    is for these `gates`, None: for every gate, later ones too; `rate` None: no bound; good
    before `expires_at`, None: until it is revoked. When, by whom and why is None while it is
    not."""

    id: str
    digest: bytes = field(repr=False)
    gates: tuple[str, ...] | None
    may: tuple[May, ...]
    rate: Rate | None
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revoked_reason: str | None = None

    def in_force(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def allows(key: ApiKey, gate: str, may: May) -> bool:
    """Whether a key in force may do this with this gate."""
    return may in key.may and (key.gates is None or gate in key.gates)


def new_token() -> tuple[str, str]:
    """Draw a key's id and its token."""
    name = secrets.token_hex(6)
    return name, f"streamer_{name}_{secrets.token_hex(32)}"


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


class KeyRing:
    """The keys, in memory: looking one up reads no database, whoever asks however often. `load`
    reads the keys on record, those that are no longer in force too; `monotonic` gives seconds,
    from any start."""

    def __init__(self, load: Callable[[], Iterable[ApiKey]], *, monotonic: Callable[[], float]) -> None:
        self._load = load
        self._monotonic = monotonic
        self._held: tuple[float, dict[bytes, ApiKey]] | None = None

    def refresh(self) -> None:
        """Read the keys again; it blocks, and may be called from any thread. Raises what `load` raises, and keeps the old."""
        began = self._monotonic()
        self._held = began, {key.digest: key for key in self._load()}

    def is_empty(self) -> bool:
        """Whether there is no key at all. Raises as `find` does."""
        return not self._read()

    def _read(self) -> dict[bytes, ApiKey]:
        if self._held is None or self._monotonic() - self._held[0] > MOST_SECONDS_OLD:
            raise Unavailable(f"the API keys could not be read within the last {MOST_SECONDS_OLD:g} s")
        return self._held[1]

    def find(self, token: str, *, now: datetime) -> ApiKey | None:
        """Return the key of a token, None for one that is unknown, revoked or expired.

        Keys are found by their digest: how long that takes says nothing about a token. Raises
        `Unavailable` where the keys were never read, or last more than `MOST_SECONDS_OLD` ago.
        """
        held = self._read()
        if TOKEN.fullmatch(token) is None:
            return None
        key = held.get(digest_of(token))
        return key if key is not None and key.in_force(now) else None


class Limited(Protocol):
    """Whoever is limited: an API key, for example."""

    @property
    def id(self) -> str:
        """Names its bucket."""

    @property
    def rate(self) -> Rate | None:
        """How often; None: as often as it wants."""


class RateLimits:
    """The buckets of one process, which all its requests share; not for several threads at once.

    A bucket begins full, holds the rate's `requests` and is refilled evenly: within any time t no more than
    `requests` (1 + t / `seconds`) pass.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}  # by key: the level, and when it was so high

    def wait(self, *keys: Limited, now: float) -> float:
        """Return 0 and count a request that may pass all of these; otherwise the seconds until it may, and count nothing.

        `now` : seconds, from any start; a clock that goes back refills nothing.
        """
        longest, counted = 0.0, {}
        for key in keys:
            if key.rate is None:
                continue
            most, a_second = float(key.rate.requests), key.rate.requests / key.rate.seconds
            level, then = self._buckets.get(key.id, (most, now))
            level = min(level + max(now - then, 0.0) * a_second, most)
            longest = max(longest, (1 - level) / a_second)
            counted[key.id] = (level - 1, max(now, then))
        if longest == 0:
            self._buckets |= counted
        return longest

    def forget(self, identity: str) -> None:
        """Fill a bucket again."""
        self._buckets.pop(identity, None)
