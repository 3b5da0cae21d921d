"""Connections that wait for their clients end in time, and make room where there are too many; those that work do not."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from streamer.web.connections import Patience
from streamer.web.server import listen, server

SHORT, LONG = 0.3, 240.0
NEVER = 100 * LONG  # a test that waits for it fails
PATIENT = Patience(*[NEVER] * 5)
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
HEAD = b"GET / HTTP/1.1\r\nhost"
BODY = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf"


class Served:
    """A server in a thread: it answers `/`, reads a body first where one is sent, and `/slow` once `go` is set."""

    def __init__(self, **options: Any) -> None:
        self.go, self.begun = threading.Event(), 0
        routes = [
            Route("/", self._answer, methods=["GET", "POST"]),
            Route("/slow", self._slow),
            Route("/large", self._large),
            Route("/unread", self._unread, methods=["POST"]),
        ]
        self._listening = listen("127.0.0.1", 0, what="test")
        self.port = self._listening.getsockname()[1]
        self._server = server(Starlette(routes=routes), signals=False, **{"patience": PATIENT} | options)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listening]})
        self._thread.start()

    async def _answer(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"had {len(await request.body())}")

    async def _slow(self, _request: Request) -> PlainTextResponse:
        self.begun += 1
        await asyncio.to_thread(self.go.wait, LONG)
        return PlainTextResponse("at last")

    async def _large(self, _request: Request) -> PlainTextResponse:
        return PlainTextResponse("x" * 50_000_000)

    async def _unread(self, _request: Request) -> PlainTextResponse:
        return PlainTextResponse("no, thanks", 413)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._server.server_state.connections)

    def close(self) -> None:
        self.go.set()
        self._server.should_exit = True
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def connect(self, said: bytes = b"", *, source: str = "127.0.0.1") -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self.port), LONG, (source, 0))
        one.sendall(said)
        return one


def heard(one: socket.socket) -> bytes:
    """All that comes until the server closes."""
    said = b""
    try:
        while piece := one.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def answer(one: socket.socket, said: bytes = GET) -> bytes:
    """The answer to one request, on a connection that stays."""
    one.sendall(said)
    head, body = b"", b""
    while b"\r\n\r\n" not in head:
        if not (piece := one.recv(65536)):
            return head
        head += piece
    head, _, body = head.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while len(body) < length:
        body += one.recv(65536)
    return head + body


@contextmanager
def served(**options: Any) -> Iterator[tuple[Served, ExitStack]]:
    with closing(Served(**options)) as one, ExitStack() as stack:
        yield one, stack


@pytest.mark.parametrize(
    ("awaited", "said", "told"),
    [
        ("head", b"", b""),
        ("head", HEAD, b""),
        ("head", GET + HEAD, b"HTTP/1.1 200"),
        ("next", GET, b"HTTP/1.1 200"),
        ("body", BODY, b"HTTP/1.1 408"),
        ("rest", BODY.replace(b"/", b"/unread", 1), b"HTTP/1.1 413"),
    ],
)
def test_a_client_that_does_not_go_on_is_left(awaited: str, said: bytes, told: bytes) -> None:
    with served(patience=PATIENT._replace(**{awaited: SHORT})) as (one, stack):
        began = time.monotonic()
        assert heard(stack.enter_context(one.connect(said))).startswith(told)
        assert time.monotonic() - began > SHORT * 0.9


def test_a_head_that_drips_is_left_as_well() -> None:
    with served(patience=PATIENT._replace(head=SHORT)) as (one, stack):
        dripping = stack.enter_context(one.connect())
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - one of these bytes is the first that is refused
            for byte in (HEAD + b": " + b"a" * 2000)[:1500]:
                dripping.sendall(bytes([byte]))
                time.sleep(0.01)


def test_a_client_that_does_not_read_is_left() -> None:
    with served(patience=PATIENT._replace(reading=SHORT)) as (one, stack):
        lazy = stack.enter_context(one.connect(GET.replace(b"/", b"/large", 1)))
        assert lazy.recv(10)
        deadline = time.monotonic() + LONG
        while one.connections:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(heard(lazy)) < 50_000_000


def test_what_takes_long_to_answer_is_waited_for() -> None:
    with served(patience=Patience(SHORT, NEVER, SHORT, SHORT, SHORT)) as (one, stack):
        slow = stack.enter_context(one.connect(GET.replace(b"/", b"/slow", 1)))
        time.sleep(SHORT * 3)
        one.go.set()
        assert b"at last" in heard(slow)


@pytest.mark.parametrize("said", [b"", HEAD, GET, BODY])
def test_one_too_many_takes_the_place_of_the_one_that_waited_longest(said: bytes) -> None:
    with served(most=8) as (one, stack):
        waiting = []
        for number in range(1, 9):
            waiting.append(stack.enter_context(one.connect(said, source=f"127.0.0.{number}")))
            if said == GET:
                answer(waiting[-1], b"")
        for place in range(3):
            one_more = stack.enter_context(one.connect(source=f"127.0.0.{20 + place}"))
            assert b"200 OK" in answer(one_more)
            assert heard(waiting[place]) == b""


def test_those_that_are_being_answered_are_not_closed() -> None:
    with served(most=4) as (one, stack):
        busy = [
            stack.enter_context(one.connect(GET.replace(b"/", b"/slow", 1), source=f"127.0.0.{n}"))
            for n in range(1, 5)
        ]
        while one.begun < 4:
            time.sleep(0.01)
        refused = heard(stack.enter_context(one.connect(source="127.0.0.9")))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in refused
        one.go.set()
        assert [b"at last" in answer(each, b"") for each in busy] == [True] * 4


def test_one_address_leaves_room_for_the_others() -> None:
    with served(most=20, most_of_one=4) as (one, stack):
        crowd = [stack.enter_context(one.connect(source="127.0.0.2")) for _ in range(10)]
        other = stack.enter_context(one.connect(source="127.0.0.3"))
        assert b"200 OK" in answer(other)
        assert [heard(each) for each in crowd[:6]] == [b""] * 6
        assert [b"200 OK" in answer(each) for each in crowd[6:]] == [True] * 4


def test_the_address_with_most_makes_room() -> None:
    with served(most=8, most_of_one=8) as (one, stack):
        other = stack.enter_context(one.connect(source="127.0.0.3"))
        crowd = [stack.enter_context(one.connect(source="127.0.0.2")) for _ in range(20)]
        assert b"200 OK" in answer(other)
        assert b"200 OK" in answer(crowd[-1])
