"""An HTTP server on loopback whose subclasses answer as a test wants it."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Loopback(ThreadingHTTPServer):
    """Serves on a free port, each connection in a thread, while it is a context.

    Attributes
    ----------
    stopping : set when it ends.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def address(self) -> str:
        """Its URL, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    def respond(self, asked: "Asked", body: bytes) -> None:
        """Answer a request, GET or POST, with this body."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up, as those do that are told to stop."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Asked(BaseHTTPRequestHandler):
    """A request to a `Loopback`, and the way to answer it."""

    protocol_version = "HTTP/1.1"
    server: Loopback

    def do_POST(self) -> None:
        self.server.respond(self, self.rfile.read(int(self.headers.get("content-length", 0))))

    do_GET = do_POST  # noqa: N815 - the base class names it so

    def begin(self, status: int, length: int | None = None, **headers: str) -> None:
        """Send the head of an answer with a body of this many bytes."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("content-length", str(length))
        self.end_headers()

    def answer(self, value: Any, status: int = 200, **headers: str) -> None:
        """Send a whole answer: bytes as they are, anything else as JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.begin(status, len(body), **{"content_type": "application/json"} | headers)
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing on standard error."""
