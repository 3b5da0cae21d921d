"""The three addresses over a real socket."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

import pytest

from streamer.errors import UsageError
from streamer.telemetry.http import TelemetryServer


def get(server: TelemetryServer, path: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(server.url + path, timeout=240) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def serving(
    ready: Callable[[], Sequence[str]] = list, metrics: Callable[[], bytes] = lambda: b"x 1\n"
) -> TelemetryServer:
    return TelemetryServer(metrics, alive=list, ready=ready)


def test_metrics_and_health_are_served_on_loopback():
    with serving() as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert get(server, "/metrics?x=1") == (200, "text/plain; version=0.0.4; charset=utf-8", b"x 1\n")
        assert json.loads(get(server, "/healthz")[2]) == {"status": "ok"}
        assert get(server, "/readyz")[0] == 200
        assert get(server, "/")[0] == 404


def test_open_metrics_are_for_those_who_take_them():
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
    for accept, body in ((prometheus, b"open"), ("text/plain", b"plain"), ("*/*", b"plain")):
        with TelemetryServer(
            lambda: b"plain", alive=list, ready=list, open_metrics=lambda: b"open"
        ) as server:
            request = urllib.request.Request(f"{server.url}/metrics", headers={"Accept": accept})
            with urllib.request.urlopen(request, timeout=240) as answer:
                assert answer.read() == body
                kind = answer.headers["Content-Type"].partition(";")[0]
                assert kind == ("application/openmetrics-text" if body == b"open" else "text/plain")


def test_what_is_not_ready_is_said():
    reasons: list[str] = ["the database does not answer"]
    with serving(ready=lambda: reasons) as server:
        status, kind, body = get(server, "/readyz")
        assert (status, kind) == (503, "application/json")
        assert json.loads(body) == {"status": "unavailable", "reasons": reasons}
        assert get(server, "/healthz")[0] == 200
        reasons.clear()
        assert get(server, "/readyz")[0] == 200


def test_a_ready_service_says_what_is_stuck():
    stuck = ["messages wait for topic t"]
    with TelemetryServer(lambda: b"", alive=list, ready=list, stuck=lambda: stuck) as server:
        status, _, body = get(server, "/readyz")
        assert (status, json.loads(body)) == (200, {"status": "ok", "stuck": stuck})


def test_a_failing_check_is_an_answer():
    def broken() -> list[str]:
        raise RuntimeError("a secret")

    def broken_metrics() -> bytes:
        raise RuntimeError("a secret")

    with serving(ready=broken, metrics=broken_metrics) as server:
        for path, status in (("/readyz", 503), ("/metrics", 500)):
            answer = get(server, path)
            assert answer[0] == status
            assert b"secret" not in answer[2]
            assert b"RuntimeError" in answer[2]


def test_head_and_other_methods():
    with serving() as server:
        with urllib.request.urlopen(
            urllib.request.Request(server.url + "/metrics", method="HEAD"), timeout=240
        ) as answer:
            assert (answer.status, answer.read()) == (200, b"")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(
                urllib.request.Request(server.url + "/metrics", method="POST"), timeout=240
            )
        with caught.value:
            assert caught.value.code == 501


def test_it_stops_cleanly_and_its_port_is_free():
    server = serving()
    server.close()
    server.close()
    with TelemetryServer(lambda: b"", alive=list, ready=list, port=server.port):
        pass


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}.*STREAMER_HTTP_PORT"):
            TelemetryServer(lambda: b"", alive=list, ready=list, port=port)
        with TelemetryServer(lambda: b"", alive=list, ready=list, port=port, any_port=True) as moved:
            assert moved.port != port
    with TelemetryServer(lambda: b"", alive=list, ready=list, port=port, any_port=True) as server:
        assert server.port == port, "it stays where nobody else is"
