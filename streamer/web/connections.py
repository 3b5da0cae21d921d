"""How long the connections of a server wait for their clients, and which of them make room where there are too many.

uvicorn bounds what an idle connection may last between two requests, and nothing else: neither how long a request may take to
come, nor how many connections there are. Every connection that a caller leaves open would cost a descriptor for good.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

log = structlog.get_logger(__name__)

Awaited: TypeAlias = Literal["next", "head", "body", "rest", "reading"]
"""The next request; the rest of its head; its body; what is left of one that is answered already; that a response is read."""

BODY_SECONDS: Final = 30.0
"""How long a body may take."""

ACCEPTED_AT_ONCE: Final = 32
"""Connections that are taken before one of those that are too many is closed: up to four times as many at a time."""

_RESERVED: Final = 256
"""Descriptors for all else: databases, brokers, upstreams, files, and what is taken before it is closed."""

_LOG_SECONDS: Final = 60.0
_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class Patience(NamedTuple):
    """Seconds for what a connection waits for of its client (`Awaited`)."""

    next: float
    head: float = 10.0
    body: float = BODY_SECONDS + 1.0  # whoever reads it answers first
    rest: float = 5.0
    reading: float = 30.0


def most_connections(asked: int) -> int:
    """Return how many connections a server may have, `asked` at most, for the process to keep descriptors for all else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return asked if limit == resource.RLIM_INFINITY else min(asked, max(limit // 2, limit - _RESERVED))


class Seldom:
    """Logs what may come a thousand times a second once a minute, with how often it came."""

    def __init__(self, event: str, **said: Any) -> None:
        self._write = partial(log.warning, event, **said)
        self._count, self._until = 0, float("-inf")

    def __call__(self) -> None:
        self._count += 1
        if (now := time.monotonic()) > self._until:
            self._write(times=self._count)
            self._count, self._until = 0, now + _LOG_SECONDS


class Connections:
    """The connections of one server, at most `most`, and `most_of_one` of one address.

    One too many takes the place of that which has waited longest for its client: of the same address where that has too
    many, else of the address with most of those that wait. If all of them have requests that are being answered, it gets 503.
    """

    def __init__(self, most: int, most_of_one: int, patience: Patience) -> None:
        self.patience = patience
        self._most, self._most_of_one = most, most_of_one
        self._of: Counter[str] = Counter()
        self._waiting: dict[str, dict[Connection, None]] = {}
        self._closed = Seldom("http.connections_full", most=most, most_of_one_address=most_of_one)

    def enter(self, one: Connection) -> None:
        """Take a connection that is new, and waits."""
        self._of[one.address] += 1
        if self._of[one.address] > self._most_of_one:
            crowd = self._waiting[one.address]
        elif self._of.total() > self._most:
            crowd = max(self._waiting.values(), key=len)
        else:
            return
        self._closed()
        longest = next(iter(crowd))
        longest.make_room(_FULL if longest is one else b"")

    def leave(self, one: Connection) -> None:
        """Forget a connection."""
        self.waits(one, False)
        self._of[one.address] -= 1
        if not self._of[one.address]:
            del self._of[one.address]

    def waits(self, one: Connection, now: bool) -> None:
        """Note whether one waits for its client, from now on."""
        crowd = self._waiting.setdefault(one.address, {})
        crowd.pop(one, None)
        if now:
            crowd[one] = None
        elif not crowd:
            del self._waiting[one.address]


class Connection(H11Protocol):
    """A connection that waits only so long for its client, and makes room for others."""

    def __init__(self, *args: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*args, **named)
        self.address = ""
        self._connections = connections
        self._awaits: Awaited | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._is_in = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._is_in = True
        self._await("head")
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in:
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def make_room(self, said: bytes = b"") -> None:
        """Close at once, with a last word for a client that is there to hear it."""
        self._leave()
        if said:
            self.transport.write(said)
            self.transport.close()
        else:
            self.transport.abort()

    def _look(self) -> None:
        """Note what is awaited now."""
        theirs = self.conn.their_state
        awaits: Awaited | None = None
        if self.flow.write_paused:
            awaits = "reading"
        elif theirs is h11.IDLE:
            awaits = "head" if self.conn.trailing_data[0] else "next"
        elif theirs is h11.SEND_BODY:
            awaits = "rest" if self.cycle.response_complete else "body"
        if awaits != self._awaits and self._is_in:
            self._await(awaits)

    def _await(self, awaits: Awaited | None) -> None:
        self._awaits = awaits
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if awaits is not None:
            seconds = getattr(self._connections.patience, awaits)
            self._alarm = self.loop.call_later(seconds, self._give_up)
        self._connections.waits(self, awaits is not None)

    def _give_up(self) -> None:
        late = self._awaits == "body" and not self.cycle.response_started
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever answers may stop
            self.cycle.message_event.set()
        self.make_room(_LATE if late else b"")

    def _leave(self) -> None:
        if self._is_in:
            self._await(None)
            self._is_in = False
            self._connections.leave(self)


def connections(most: int, most_of_one: int | None, patience: Patience) -> Callable[..., Connection]:
    """Return what makes the connections of a server; None: one address may have seven eighths of all."""
    allowed = most_connections(most)
    of_one = max(1, allowed * 7 // 8) if most_of_one is None else min(most_of_one, allowed)
    return partial(Connection, connections=Connections(allowed, of_one, patience))
