"""Whether a broker listens at all: told in two seconds, where client libraries keep trying for half a minute."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from streamer.errors import Unavailable

if TYPE_CHECKING:
    from streamer.settings import Settings

_CONNECT_SECONDS = 2.0


def require_broker(settings: Settings) -> None:
    """Return when one of the bootstrap servers accepts a connection.

    Raises
    ------
    Unavailable : none does.
    UsageError : none is configured, or the way to reach it is not acceptable.
    """
    from streamer import wiring

    servers = wiring.connection(settings).servers
    for server in servers:
        host, _, port = server.rpartition(":")
        with (
            suppress(OSError, ValueError),
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS),
        ):
            return
    raise Unavailable(
        f"no broker answers at {', '.join(servers)}; start it, or correct kafka.bootstrap_servers"
    )
