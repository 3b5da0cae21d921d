"""Addresses that nobody can listen on, each named in one line by the server that was to listen there."""

import pytest

from streamer.errors import UsageError
from streamer.telemetry.http import TelemetryServer
from streamer.web.server import listen

OTHERS = ["a..b", "a" * 64, "\udcff", "http://localhost", "127.0.0.1:80", "192.0.2.1"]


@pytest.mark.parametrize("host", [*OTHERS, ""])
def test_requests_are_served_on_an_address_of_this_machine(host: str) -> None:
    with pytest.raises(UsageError, match=r"^cannot serve requests on .*; name an address of this machine"):
        listen(host, 0, what="requests")


@pytest.mark.parametrize("host", OTHERS)
def test_so_are_metrics(host: str) -> None:
    with pytest.raises(UsageError, match=r"^cannot serve metrics on .*; choose another address"):
        TelemetryServer(lambda: b"", alive=dict, ready=dict, host=host)


def test_a_port_that_is_taken() -> None:
    with listen("127.0.0.1", 0, what="requests") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf":{port}: .*Choose another port with --port"):
            listen("127.0.0.1", port, what="requests")
