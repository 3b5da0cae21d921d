"""Who may use the page: addresses with a token, and sessions that they are exchanged for."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from streamer.errors import UsageError
from streamer.gates import labeller_names

_TOKEN_BYTES: Final = 32
_MOST_SESSIONS: Final = 1_000


@dataclass(slots=True, eq=False)
class LabellingSession:
    """A person who came with a token.

    `key` : a second secret beside the cookie. The page keeps it, and a page of another port cannot
    read it; the cookie alone opens nothing, for browsers send cookies to every port of a host.
    `name` : None until the person says it. `named` : by the address; nobody can say another name
    then.
    """

    key: str
    name: str | None
    named: bool


class Access:
    """Tokens and sessions of one running page. They are kept in memory, and end with it."""

    def __init__(self) -> None:
        self._tokens: dict[str, str | None] = {}
        self._once: set[str] = set()
        self._sessions: dict[bytes, LabellingSession] = {}

    def invite(self, name: str | None = None, *, once: bool = False) -> str:
        """Make a token: for a person with this name, or (None) for one who then gives a name; `once`: for one use."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._tokens[token] = name
        if once:
            self._once.add(token)
            while len(self._once) > _MOST_SESSIONS:
                oldest = next(known for known in self._tokens if known in self._once)
                self._once.remove(oldest)
                del self._tokens[oldest]
        return token

    def enter(self, token: str, *, person: str | None = None) -> tuple[str, LabellingSession] | None:
        """Exchange a token for a cookie and its session; None when it is not one of ours, or of another than `person`."""
        found = None
        for known in self._tokens:
            # All of them, each in constant time, so that the duration reveals nothing.
            if hmac.compare_digest(known.encode(), token.encode()):
                found = known
        if found is None or (person is not None and self._tokens[found] != person):
            return None
        name = self._tokens[found]
        if found in self._once:
            self._once.remove(found)
            del self._tokens[found]
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        session = LabellingSession(secrets.token_urlsafe(_TOKEN_BYTES), name, named=name is not None)
        self._sessions[_digest(cookie)] = session
        return cookie, session

    def end(self, name: str) -> None:
        """End every session of a person, and the tokens for them that nobody used."""
        self._tokens = {token: who for token, who in list(self._tokens.items()) if who != name}
        self._once &= self._tokens.keys()
        self._sessions = {known: one for known, one in list(self._sessions.items()) if one.name != name}

    def session(self, cookie: str, key: str, *, person: str | None = None) -> LabellingSession | None:
        """Return the session of a cookie and its key; None when either is wrong, or it is of another than `person`."""
        session = self._sessions.get(_digest(cookie))
        if session is None or not hmac.compare_digest(session.key.encode(), key.encode()):
            return None
        return session if person in (None, session.name) else None


def _digest(cookie: str) -> bytes:
    # Looked up by its hash, so that the time of a look-up reveals nothing about the cookie.
    return hashlib.sha256(cookie.encode()).digest()


def labeller_name(text: str) -> str:
    """Return a name as it is recorded; raises `UsageError` for one that cannot be."""
    name = labeller_names.normalised(" ".join(text.split()))
    if (wrong := labeller_names.fault(name)) is not None:
        raise UsageError(f"the name {wrong}")
    return name
