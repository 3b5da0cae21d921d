"""Serves the page until it is asked to stop."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

from streamer.errors import UsageError
from streamer.security.loopback import is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_STOP_SECONDS = 3


def listen(host: str, port: int, *, insecure: bool = False) -> socket.socket:
    """Listen on an address; port 0 takes a free one. The caller closes it.

    Raises `UsageError` when the address is another machine's way in and `insecure` does not permit it, and when it
    cannot be listened on.
    """
    if not insecure and not is_loopback(host):
        raise UsageError(
            f"on {host} people's texts, and the page's secrets, would cross the network unencrypted; serve on "
            "127.0.0.1 and let the others come through a tunnel (ssh -L 8470:127.0.0.1:8470 THIS-MACHINE), or, if that "
            "network is trusted, say `streamer --insecure review ...`"
        )
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        if listening is not None:
            listening.close()
        raise UsageError(
            f"cannot serve the page on {host}:{port}: {error.strerror or error}; is another one running? Choose another "
            "port with --port (0: any free one)"
        ) from None
    return listening


def base_url(host: str, listening: socket.socket) -> str:
    """Return the page's address without a token, for example ``http://127.0.0.1:8470/``."""
    shown = host.strip("[]")
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"


def page_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server for the page. No request is logged, and none tells what it is served by."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
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
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and finish what is under way."""
    page_server(app).run(sockets=[listening])
