"""Loopback ports for services that must come back on the same port after a restart."""

import random
import socket

# Below the range from which Linux takes the ports of outgoing connections, so that no client of anybody's
# sits on the port while the service is down.
_LOWEST, _HIGHEST = 20_000, 32_000

_given: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody listens on and that this process was not given before.

    Raises
    ------
    RuntimeError
        When a hundred draws found none.
    """
    draw = random.SystemRandom()
    for _ in range(100):
        port = draw.randrange(_LOWEST, _HIGHEST)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError(f"no free port between {_LOWEST} and {_HIGHEST}")
