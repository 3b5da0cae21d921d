"""A gate's endpoint on loopback that does with each request what a test says, down to the bytes."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from streamer.events.actions import (
    ActionAuditV1,
    ActionPolicyV1,
    ActionScorerV1,
    ActionSourceV1,
    ActionsV1,
    ResponseActionV1,
    action_id,
)
from streamer.events.codec import encode
from streamer.events.responses import decode_responses


@dataclass(frozen=True)
class Request:
    """One request: names of headers in small letters, and when it had come (seconds of `time.monotonic`)."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def event(self) -> Any:
        return json.loads(self.body)


@dataclass
class GateServer:
    """Answers requests by `act`, which gets the connection and the request; it is closed afterwards.

    Attributes
    ----------
    act : writes what it likes; it returns True where another request may come by the same connection.
    requests : all of them, in order.
    stopped : set when the server goes, for behaviours that wait.
    """

    act: Callable[[GateServer, socket.socket, Request], bool | None]
    requests: list[Request] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> GateServer:
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    while (request := _read(self.request)) is not None:
                        outer.requests.append(request)
                        if not outer.act(outer, self.request, request):
                            return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()


def _read(connection: socket.socket) -> Request | None:
    """Read one request; None at the end of the connection, in the middle of a request too."""
    head = b""
    while b"\r\n\r\n" not in head:
        if not (got := connection.recv(65536)):
            return None
        head += got
    head, _, body = head.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        if not (got := connection.recv(65536)):
            return None
        body += got
    return Request(method, target, headers, body, time.monotonic())


def response(body: bytes, *, status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def problem(status: int, code: str, **headers: str) -> bytes:
    document = {
        "type": "about:blank", "title": code, "status": status, "detail": f"it is {code}",
        "code": code,
    }  # fmt: skip
    return response(json.dumps(document).encode(), status=status, kind="application/problem+json", **headers)


def action_event(body: bytes, *, best: int = 1, ship: bool = True, **changes: Any) -> bytes:
    """What a gate of unit `best` decides about a responses event: the answer at `best` ships, or nothing does."""
    asked = decode_responses(body)
    event = ActionsV1(
        schema="streamer.actions.v1",
        action_id=action_id(asked.key),
        gate=asked.gate,
        batch_id=asked.batch_id,
        attempt=asked.attempt,
        unit="best",
        action="ship" if ship else "escalate",
        enforced=True,
        selected=asked.responses[best].id if ship else None,
        reason="scored",
        responses=tuple(
            ResponseActionV1(
                id=one.id,
                score=0.9 if place == best else 0.25,
                action="ship" if ship and place == best else "escalate",
            )
            for place, one in enumerate(asked.responses)
        ),
        policy=ActionPolicyV1(version=7, state="cut", threshold=0.5, alpha=0.05, method="mean"),
        scorer=ActionScorerV1(name="gram", encoder="all-MiniLM-L6-v2@53aa5117"),
        audit=ActionAuditV1(sampled=False, probability=0.0),
        source=ActionSourceV1(topic="http", partition=0, offset=0),
        decided_at=datetime.now(UTC),
    )
    return json.dumps(json.loads(encode(event)) | changes).encode()
