"""Listens on an address, and serves an application there."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Server

from streamer.errors import UsageError
from streamer.web.connections import ACCEPTED_AT_ONCE, Patience, Seldom, connections
from streamer.web.requests import well_formed

__all__ = ["Server", "base_url", "listen", "server"]

_STOP_SECONDS = 3
_IDLE_SECONDS = 5
_MOST = 1000
_QUEUE = 1024


def listen(host: str, port: int, *, what: str) -> socket.socket:
    """Listen on an address; port 0 takes a free one. The caller closes it.

    Raises `UsageError`, which says `what` cannot be served there, when the address cannot be listened on.
    """
    place, todo = f"{what} on {host}:{port}", "name an address of this machine with --host"
    listening = None
    try:
        if not host:
            raise UsageError(f"cannot serve {place}: the address is empty; {todo}")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except UnicodeError:
        raise UsageError(f"cannot serve {place}: no host has such a name; {todo}") from None
    except OSError as error:
        if listening is not None:
            listening.close()
            if error.errno != errno.EADDRNOTAVAIL:
                todo = "is another one running? Choose another port with --port (0: any free one)"
        raise UsageError(f"cannot serve {place}: {error.strerror or error}; {todo}") from None
    return listening


def base_url(host: str, listening: socket.socket) -> str:
    """Return the address that is listened on, for example ``http://127.0.0.1:8470/``."""
    shown = host.strip("[]")
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"


class _Server(Server):
    """Takes few connections at a time, while many may queue, and says in one line that it can take none."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop, failed = asyncio.get_running_loop(), Seldom("http.accept_failed")

        def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if context["message"] == "socket.accept() out of system resource":
                failed()
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(note)
        await super().startup(sockets=sockets)
        for one in sockets or ():
            one.listen(_QUEUE)


class _Obedient(_Server):
    """Leaves the signals to whoever runs it, and ends when `should_exit` is set."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(
    app: ASGIApp,
    *,
    signals: bool = True,
    stop_seconds: int = _STOP_SECONDS,
    idle_seconds: int = _IDLE_SECONDS,
    most: int = _MOST,
    most_of_one: int | None = None,
    patience: Patience | None = None,
) -> Server:
    """Return a server for an application. No request is logged, and none tells what it is served
    by.

    `signals` : whether SIGINT and SIGTERM end it. Requests under way may then take `stop_seconds`;
    a connection may be idle for `idle_seconds`. `most`, `most_of_one` : connections at once, in all
    and of one address; fewer where the process may not open as many files. `patience` : how long a
    connection waits for its client; None: as `Patience` says.
    """
    kind = _Server if signals else _Obedient

    formed = well_formed(app)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):  # nobody is there to be told
            await formed(scope, receive, send)

    return kind(
        uvicorn.Config(
            answer,
            backlog=ACCEPTED_AT_ONCE,
            loop="asyncio",
            http=connections(most, most_of_one, patience or Patience(next=idle_seconds)),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=stop_seconds,
            timeout_keep_alive=idle_seconds,
        )
    )
