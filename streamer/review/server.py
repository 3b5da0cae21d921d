"""Where the page may be served."""

import socket

from starlette.types import ASGIApp

from streamer.errors import UsageError
from streamer.web import server
from streamer_client.loopback import is_loopback


def listen(host: str, port: int, *, insecure: bool = False, command: str = "review") -> socket.socket:
    """Listen on an address; port 0 takes a free one. The caller closes it.

    Raises `UsageError` when the address is another machine's way in and `insecure` does not permit it, and when it
    cannot be listened on.

    `command` : what serves it, for the message.
    """
    if not insecure and not is_loopback(host):
        raise UsageError(
            f"on {host} people's texts, and the page's secrets, would cross the network unencrypted; serve on "
            f"127.0.0.1 and let the others come through a tunnel (ssh -L {port}:127.0.0.1:{port} THIS-MACHINE), or, if that "
            f"network is trusted, say `streamer --insecure {command} ...`"
        )
    return server.listen(host, port, what="the page")


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, and finish what is under way."""
    server.server(app).run(sockets=[listening])
