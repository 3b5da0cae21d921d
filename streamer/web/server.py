"""Listens on an address, and serves an application there."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import TYPE_CHECKING

import uvicorn
from uvicorn import Server

from streamer.errors import UsageError
from streamer.web.requests import well_formed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

__all__ = ["Server", "base_url", "listen", "server"]

_STOP_SECONDS = 3
_IDLE_SECONDS = 5


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


class _Obedient(Server):
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
) -> Server:
    """Return a server for an application. No request is logged, and none tells what it is served by.

    Parameters
    ----------
    signals : whether SIGINT and SIGTERM end it.
    stop_seconds : how long requests that are under way may take once it ends.
    idle_seconds : how long a connection may be idle before it is closed.
    """
    kind = Server if signals else _Obedient
    return kind(
        uvicorn.Config(
            well_formed(app),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=stop_seconds,
            timeout_keep_alive=idle_seconds,
        )
    )
