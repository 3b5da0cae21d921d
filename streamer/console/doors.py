"""Who is in: people who signed in with a password, or, before there are accounts, who came by the printed link."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamer.errors import StreamerError
from streamer.gates import labeller_names
from streamer.gates.policy import SIGNED_IN
from streamer.security.accounts import MOST_CHARACTERS, Account, Deed, Role, fits, may
from streamer.security.api_keys import Rate, RateLimits
from streamer.store.people.accounts import Accounts
from streamer.wording.numbers import counted

IDLE_SECONDS: Final = 8 * 3600.0
"""A session that nobody uses ends after so long."""

LONGEST_SECONDS: Final = 24 * 3600.0
"""No session lasts longer."""

OF_ONE_NAME: Final = Rate(5, 3600)
"""How many wrong passwords a name may get from one address: five at once, and then one every twelve minutes."""

OF_ANY_ADDRESS: Final = Rate(100, 3600)
"""How many a name may get from all addresses together: one address alone cannot use them up."""

OF_ONE_ADDRESS: Final = Rate(15, 60)
"""How many passwords of one address are looked at: each costs 32 MiB and a moment."""

OF_ALL: Final = Rate(60, 60)
"""How many are looked at together."""

_MOST_SESSIONS: Final = 1_000
_TOKEN_BYTES: Final = 32
_BUCKETS: Final = 65_536


class TooMany(StreamerError):
    """Passwords were tried too often; `seconds` until the next may be."""

    def __init__(self, seconds: float) -> None:
        minutes = math.ceil(round(seconds) / 60) or 1
        super().__init__(f"too many attempts; try again in {counted(minutes, 'minute', 'minutes')}")
        self.seconds = seconds


class IssuerAway(StreamerError):
    """The issuer does not answer, or not as one does. Nobody can sign in there at the moment."""


class NotIdentified(StreamerError):
    """What came back from the issuer lets nobody in."""


@dataclass(slots=True, eq=False)
class Session:
    """Somebody who is in, with what they may do; of whoever came by a link, everything.

    `account` : the revision of their account; None: they came by a link, and their name is what
    they say. `key` : a secret that every form has, beside the cookie that browsers send by
    themselves. `notice` : what the next page tells them. `id_token` : of the issuer where they
    signed in; empty: they signed in here.
    """

    name: str
    roles: tuple[Role, ...]
    account: int | None
    began: float
    used: float
    key: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES))
    notice: str = ""
    id_token: str = field(default="", repr=False)

    @property
    def actor(self) -> str:
        """The name as what they do is recorded."""
        return self.name if self.account is None else SIGNED_IN + self.name

    def may(self, deed: Deed) -> bool:
        """Whether they may do something."""
        return may(self.roles, deed)


class _Bucket(NamedTuple):
    id: str
    rate: Rate


class Doors:
    """The sessions of one running console, kept in memory. Calls block; from any thread.
    `monotonic` : seconds that only grow.
    """

    def __init__(self, accounts: Accounts, *, monotonic: Callable[[], float]) -> None:
        self._accounts = accounts
        self.monotonic = monotonic
        self._links: dict[str, str] = {}
        self._sessions: dict[bytes, Session] = {}
        self._limits = RateLimits()
        self._lock = threading.Lock()
        self._one_password = threading.Lock()

    def invite(self, name: str) -> str:
        """Make the token of a link for a person. It lets in for as long as there is no account."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._links[token] = name
        return token

    def enter(self, token: str) -> str | None:
        """Exchange a token for a cookie; None when it is not ours, or there are accounts."""
        name = None
        for known, who in self._links.items():
            # All of them, each in constant time, so that the duration reveals nothing.
            if hmac.compare_digest(known.encode(), token.encode()):
                name = who
        if name is None or self._accounts.any():
            return None
        return self._begin(name, ("administrator",), None)

    def sign_in(self, name: str, password: str, address: str = "") -> str | None:
        """Return a cookie for a name and its password; None where they do not fit. Raises `TooMany`.

        `address` : where it comes from. Guesses of one address keep only that address from signing in.
        """
        name = labeller_names.normalised(name)
        if len(password) > MOST_CHARACTERS or labeller_names.fault(name) is not None:
            return None
        now = self.monotonic()
        network = _network(address)
        guesses = (
            _Bucket(_bucket("name", name, network), OF_ONE_NAME),
            _Bucket(_bucket("name", name), OF_ANY_ADDRESS),
        )
        bounds = (_Bucket(_bucket("address", network), OF_ONE_ADDRESS), *guesses, _Bucket("all", OF_ALL))
        with self._lock:
            if (seconds := self._limits.wait(*bounds, now=now)) > 0:
                raise TooMany(seconds)
        account = self._accounts.get(name)
        known = account is not None and not account.closed
        with self._one_password:
            good = fits(password, account.password if account is not None and known else None)
        if account is None or not good:
            return None
        with self._lock:
            for one in guesses:
                self._limits.forget(one.id)
        return self._begin(account.name, account.roles, account.revision)

    def admit(self, account: Account, id_token: str) -> str:
        """Return a cookie for somebody whom an issuer has identified, and whose account lets them in."""
        return self._begin(account.name, account.roles, account.revision, id_token)

    def sign_in_again(self, session: Session, password: str) -> bool:
        """Whether this is the person's password. Raises `TooMany`."""
        # By themselves: whoever guesses at the door has no part in it.
        cookie = self.sign_in(session.name, password, session.key)
        if cookie is not None:
            self.leave(cookie)
        return cookie is not None

    def session(self, cookie: str, *, by_itself: bool = False) -> Session | None:
        """The session of a cookie; None where there is none, it has ended, or its person's account was changed.

        `by_itself` : a page asks that nobody may be looking at: that is no use of the session.
        """
        now = self.monotonic()
        with self._lock:
            found = self._sessions.get(_digest(cookie))
        if found is None:
            return None
        if now - found.used > IDLE_SECONDS or now - found.began > LONGEST_SECONDS or not self._stands(found):
            self.leave(cookie)
            return None
        if not by_itself:
            found.used = now
        return found

    def leave(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def _stands(self, session: Session) -> bool:
        if session.account is None:
            return not self._accounts.any()
        account: Account | None = self._accounts.get(session.name)
        return account is not None and account.revision == session.account

    def _begin(self, name: str, roles: tuple[Role, ...], account: int | None, id_token: str = "") -> str:
        cookie, now = secrets.token_urlsafe(_TOKEN_BYTES), self.monotonic()
        with self._lock:
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[_digest(cookie)] = Session(
                name, roles, account, began=now, used=now, id_token=id_token
            )
        return cookie


def _bucket(*what: str) -> str:
    # By a number of few digits: whoever tries many names, or has many addresses, must not fill the memory.
    number = (
        int.from_bytes(hashlib.sha256("\0".join(what).encode("utf-8", "replace")).digest()[:4]) % _BUCKETS
    )
    return f"{what[0]} {len(what)} {number}"


def _network(address: str) -> str:
    """The address itself, or, of IPv6, the network of 64 bits that one customer has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.IPv6Network((found, 64), strict=False))


def _digest(cookie: str) -> bytes:
    # Looked up by its hash, so that the time of a look-up reveals nothing about the cookie.
    return hashlib.sha256(cookie.encode()).digest()
