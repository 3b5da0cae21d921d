"""A proxy before PostgreSQL that can stop passing bytes on: connections stay open on both sides, and nothing answers."""

import socket
import threading
from contextlib import suppress

from sqlalchemy.engine import make_url


class StallingProxy:
    """Listens on the loopback and passes everything to the server of a URL, both ways, until `stall`.

    Parameters
    ----------
    url : SQLAlchemy URL of a database, by a Unix socket or by TCP.
    user : who connects through here.
    """

    def __init__(self, url: str, *, user: str) -> None:
        parts = make_url(url)
        self._target: str | tuple[str, int]
        if "host" in parts.query:
            self._target = f"{parts.query['host']}/.s.PGSQL.5432"
        else:
            self._target = (str(parts.host), int(parts.port or 5432))
        self._sockets: list[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://{user}@127.0.0.1:{self._listener.getsockname()[1]}/{parts.database}"
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Pass nothing on from here; new connections are taken, and get no answer either."""
        self._flows.clear()

    def resume(self) -> None:
        """Pass on what has piled up, and everything after it."""
        self._flows.set()

    def close(self) -> None:
        """Cut every connection."""
        self._flows.set()
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if isinstance(self._target, str):
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(self._target)
                else:
                    server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._flows.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
