"""What a service, or whatever is in between, may do instead of answering; each is held, for the reason beside it."""

import gzip
import json
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.services.gate_server import GateServer, Request, action_event, problem, response

STALLED_SECONDS = 240.0
"""How long whatever stalls takes before it answers: a client that waited for it would have the answer."""


class Misbehaviour(NamedTuple):
    """What the server does, and why the client then holds.

    `tried_again`: the client asks until its deadline, so that it may also be `timed_out` in the end. None: some clients do.
    """

    act: Callable[[GateServer, socket.socket, Request], bool | None]
    reason: str
    tried_again: bool | None = False


def _silent(server: GateServer, connection: socket.socket, request: Request) -> None:
    if not server.stopped.wait(STALLED_SECONDS):
        connection.sendall(_ship(request.body))


def _drips(whole: Callable[[bytes], bytes], *, at_once: bytes = b"") -> Callable[..., None]:
    def act(server: GateServer, connection: socket.socket, request: Request) -> None:
        sent = whole(request.body)
        start = sent.index(at_once) + len(at_once)
        connection.sendall(sent[:start])
        for place in range(start, len(sent)):
            connection.sendall(sent[place : place + 1])
            if server.stopped.wait(STALLED_SECONDS / len(sent)):
                return

    return act


def _continues(server: GateServer, connection: socket.socket, request: Request) -> None:
    for _ in range(round(STALLED_SECONDS / 0.05)):
        if server.stopped.wait(0.05):
            return
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    connection.sendall(_ship(request.body))


def _sends(data: bytes | Callable[[bytes], bytes]) -> Callable[..., None]:
    def act(_server: GateServer, connection: socket.socket, request: Request) -> None:
        connection.sendall(data if isinstance(data, bytes) else data(request.body))

    return act


def _resets(_server: GateServer, connection: socket.socket, _request: Request) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _endless(server: GateServer, connection: socket.socket, _request: Request) -> None:
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    while not server.stopped.is_set():
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def _event(**changes: Any) -> Callable[..., None]:
    return _sends(lambda body: response(action_event(body, **changes)))


def _ship(body: bytes) -> bytes:
    return response(action_event(body))


def _others(body: bytes) -> bytes:
    event = json.loads(action_event(body))
    event["responses"][0]["id"] = "somebody-else's"
    return response(json.dumps(event).encode())


def _two_ship(body: bytes) -> bytes:
    event = json.loads(action_event(body))
    for one in event["responses"]:
        one["action"] = "ship"
    return response(json.dumps(event).encode())


def _selected_held(body: bytes) -> bytes:
    event = json.loads(action_event(body))
    event["selected"] = event["responses"][0]["id"]
    return response(json.dumps(event).encode())


MISBEHAVIOURS = {
    "says nothing": Misbehaviour(_silent, "timed_out"),
    "drips its headers": Misbehaviour(_drips(_ship), "timed_out"),
    "drips its body": Misbehaviour(_drips(_ship, at_once=b"\r\n\r\n"), "timed_out"),
    "continues for ever": Misbehaviour(_continues, "connection_failed", tried_again=None),
    "drips an error": Misbehaviour(
        _drips(lambda _: problem(503, "database_unavailable"), at_once=b"\r\n\r\n"), "timed_out"
    ),
    "closes the connection": Misbehaviour(_sends(b""), "connection_failed", tried_again=True),
    "resets the connection": Misbehaviour(_resets, "connection_failed", tried_again=True),
    "half a status line": Misbehaviour(_sends(b"HTTP/1.1 20"), "connection_failed", tried_again=True),
    "half a body": Misbehaviour(_sends(lambda body: _ship(body)[:-9]), "connection_failed", tried_again=True),
    "half a chunk": Misbehaviour(
        _sends(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"),
        "connection_failed",
        tried_again=True,
    ),
    "no HTTP": Misbehaviour(_sends(b"\x16\x03\x01\x00 hello\r\n\r\n"), "connection_failed", tried_again=True),
    "headers without end": Misbehaviour(
        _sends(b"HTTP/1.1 200 OK\r\n" + b"X-More: yes\r\n" * 40_000), "connection_failed", tried_again=True
    ),
    "garbage": Misbehaviour(_sends(response(b"\x00\xff{\xfe")), "unreadable"),
    "nothing at all": Misbehaviour(_sends(response(b"")), "unreadable"),
    "no content": Misbehaviour(_sends(b"HTTP/1.1 204 No Content\r\n\r\n"), "unreadable"),
    "half of the JSON": Misbehaviour(_sends(lambda body: response(action_event(body)[:-9])), "unreadable"),
    "a list": Misbehaviour(_sends(response(b"[1, 2]")), "unreadable"),
    "deep JSON": Misbehaviour(_sends(response(b"[" * 200_000)), "unreadable"),
    "another object": Misbehaviour(_sends(response(b'{"action": "ship"}')), "unreadable"),
    "another type": Misbehaviour(
        _sends(lambda body: response(action_event(body), kind="text/html")), "unreadable"
    ),
    "no type": Misbehaviour(
        _sends(lambda body: response(action_event(body)).replace(b"Content-Type: application/json\r\n", b"")),
        "unreadable",
    ),
    "compressed": Misbehaviour(
        _sends(lambda body: response(gzip.compress(action_event(body)), Content_Encoding="gzip")), "unreadable"
    ),
    "another schema": Misbehaviour(_event(schema="streamer.actions.v2"), "unreadable"),
    "an unknown action": Misbehaviour(_event(action="publish"), "unreadable"),
    "an unknown unit": Misbehaviour(_event(unit="paragraph"), "unreadable"),
    "enforced as a text": Misbehaviour(_event(enforced="true"), "unreadable"),
    "a ship that selects nothing": Misbehaviour(_event(selected=None), "unreadable"),
    "a ship that selects what is not there": Misbehaviour(_event(selected="z"), "unreadable"),
    "a ship that selects what is held": Misbehaviour(_sends(_selected_held), "unreadable"),
    "two that ship": Misbehaviour(_sends(_two_ship), "unreadable"),
    "a ship of a closed gate": Misbehaviour(_event(reason="closed"), "unreadable"),
    "a hold that selects": Misbehaviour(_event(action="escalate"), "unreadable"),
    "another gate": Misbehaviour(_event(gate="other-bot"), "mismatched"),
    "another batch": Misbehaviour(_event(batch_id="other"), "mismatched"),
    "another attempt": Misbehaviour(_event(attempt=2), "mismatched"),
    "other answers": Misbehaviour(_sends(_others), "mismatched"),
    "an endless body": Misbehaviour(_endless, "too_large"),
    "a huge body": Misbehaviour(
        _sends(lambda body: response(action_event(body) + b" " * 5 * 2**20)), "too_large"
    ),
    "a redirect": Misbehaviour(_sends(problem(307, "elsewhere", Location="/v1/elsewhere")), "refused"),
    "a redirect without a place": Misbehaviour(_sends(problem(302, "elsewhere")), "refused"),
    "400": Misbehaviour(_sends(problem(400, "invalid_field")), "refused"),
    "401": Misbehaviour(_sends(problem(401, "no_key")), "refused"),
    "403": Misbehaviour(_sends(problem(403, "not_allowed")), "refused"),
    "404": Misbehaviour(_sends(problem(404, "unknown_gate")), "refused"),
    "409": Misbehaviour(_sends(problem(409, "conflict")), "refused"),
    "413": Misbehaviour(_sends(problem(413, "too_large")), "refused"),
    "an error in another form": Misbehaviour(_sends(response(b"<h1>No", status=403, kind="text/html")), "refused"),
    "429": Misbehaviour(_sends(problem(429, "queue_full")), "overloaded", tried_again=True),
    "429, much later": Misbehaviour(_sends(problem(429, "rate_limited", Retry_After="3600")), "overloaded"),
    "500": Misbehaviour(_sends(response(b"oops", status=500, kind="text/plain")), "unavailable"),
    "502": Misbehaviour(_sends(response(b"", status=502)), "unavailable", tried_again=True),
    "503": Misbehaviour(_sends(problem(503, "database_unavailable")), "unavailable", tried_again=True),
    "503, much later": Misbehaviour(
        _sends(problem(503, "database_unavailable", Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")), "unavailable"
    ),
    "503, when it likes": Misbehaviour(
        _sends(problem(503, "database_unavailable", Retry_After="soon")), "unavailable", tried_again=True
    ),
    "504": Misbehaviour(_sends(response(b"", status=504)), "unavailable", tried_again=True),
}  # fmt: skip
