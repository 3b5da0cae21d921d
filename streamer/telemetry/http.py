"""A service's three addresses: `/metrics`, `/healthz` (is it alive) and `/readyz` (may it get work)."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog

from streamer.errors import UsageError

Health = Callable[[], Mapping[str, str] | Sequence[str]]

log = structlog.get_logger(__name__)

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"

_MOST = 64
_SPARE = 8
_PAUSE_SECONDS = 0.1


class TelemetryServer:
    """Serves until `close`; each request has its own thread. Also a context manager.

    `metrics` renders them in Prometheus' text format, `open_metrics` as OpenMetrics 1.0, for those
    who take it; None: that is not served. `alive` and `ready` return what prevents that, one reason
    a text, or reasons by part; empty when all is well. `stuck` returns what does not work although
    the service is ready, a text each, which `/readyz` names. All are asked at each request and must
    not block for long. Port 0 takes a free one, and so does `any_port` where the port is in use.
    Raises `UsageError` where the address cannot be listened on.
    """

    def __init__(
        self,
        metrics: Callable[[], bytes],
        *,
        alive: Health,
        ready: Health,
        stuck: Callable[[], Sequence[str]] = tuple,
        open_metrics: Callable[[], bytes] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        any_port: bool = False,
    ) -> None:
        try:
            self._server = _listening(host, port, any_port=any_port)
        except (OSError, UnicodeError, TypeError) as error:  # the latter two of a name that no host has
            reason = (error.strerror or error) if isinstance(error, OSError) else "no host has such a name"
            raise UsageError(
                f"cannot serve metrics on {host}:{port}: {reason}; "
                "choose another address with STREAMER_HTTP_HOST and STREAMER_HTTP_PORT (0: any free port)"
            ) from error
        self._server.metrics, self._server.alive, self._server.ready = metrics, alive, ready
        self._server.stuck = stuck
        self._server.open_metrics = open_metrics
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="telemetry-http",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Root of the addresses, for example ``http://127.0.0.1:9464``."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Stop listening and wait for the listener's thread. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> TelemetryServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listening(host: str, port: int, *, any_port: bool) -> _Server:
    try:
        return _Server((host, port), _Request)
    except OSError as error:
        if not any_port or error.errno != errno.EADDRINUSE:
            raise
        return _Server((host, 0), _Request)


class _Server(ThreadingHTTPServer):
    """Answers however many connections others leave open, and where the process has no descriptor left for one more.

    Of its connections the oldest makes room for the newest, and some descriptors are kept for them alone.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    metrics: Callable[[], bytes]
    alive: Health
    ready: Health
    stuck: Callable[[], Sequence[str]]
    open_metrics: Callable[[], bytes] | None

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._open_lock = threading.Lock()
        self._spare: list[int] = []
        super().__init__(address, handler)
        self._spare += [os.dup(self.fileno()) for _ in range(_SPARE)]

    def get_request(self) -> tuple[socket.socket, Any]:
        with self._open_lock:
            while len(self._open) >= _MOST:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        try:
            one, address = super().get_request()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._spare:
                time.sleep(_PAUSE_SECONDS)  # it would be tried again at once, and again
                raise
            os.close(self._spare.pop())
            one, address = super().get_request()
        with self._open_lock:
            self._open[one] = None
        return one, address

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.pop(request, None)
            super().shutdown_request(request)
            with suppress(OSError):
                while len(self._spare) < _SPARE:
                    self._spare.append(os.dup(self.fileno()))

    def server_close(self) -> None:
        super().server_close()
        while self._spare:
            os.close(self._spare.pop())

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """A client that closed the connection is not logged."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    server_version = "streamer"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            taken = self.headers.get("Accept", "").lower()
            if self.server.open_metrics is not None and OPEN_METRICS in taken:
                self._answer_with(self.server.open_metrics, f"{OPEN_METRICS}; version=1.0.0; charset=utf-8")
            else:
                self._answer_with(self.server.metrics, METRICS_CONTENT_TYPE)
        elif path == "/healthz":
            self._state(self.server.alive)
        elif path == "/readyz":
            self._state(self.server.ready, self.server.stuck)
        else:
            self._answer(
                HTTPStatus.NOT_FOUND, b"try /metrics, /healthz or /readyz\n", "text/plain; charset=utf-8"
            )

    do_HEAD = do_GET  # noqa: N815 - the base class looks methods up by this name

    def _answer_with(self, render: Callable[[], bytes], content_type: str) -> None:
        try:
            body = render()
        except Exception as error:
            log.warning("telemetry.metrics_failed", exc_info=True)
            self._json(HTTPStatus.INTERNAL_SERVER_ERROR, {"status": "error", "error": type(error).__name__})
        else:
            self._answer(HTTPStatus.OK, body, content_type)

    def _state(self, state: Health, stuck: Callable[[], Sequence[str]] = tuple) -> None:
        also: dict[str, object] = {}
        try:
            reasons = state()
            if named := stuck():
                also = {"stuck": list(named)}
        except Exception as error:
            log.warning("telemetry.check_failed", path=self.path, exc_info=True)
            reasons = [f"the check itself failed: {type(error).__name__}"]
        if reasons:
            self._json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "reasons": reasons} | also)
        else:
            self._json(HTTPStatus.OK, {"status": "ok"} | also)

    def _json(self, status: HTTPStatus, value: Mapping[str, object]) -> None:
        self._answer(status, json.dumps(value, ensure_ascii=False).encode() + b"\n", "application/json")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class has this name
        """Probes come every few seconds and are not logged."""
