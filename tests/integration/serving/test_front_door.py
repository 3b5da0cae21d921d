"""Callers that leave connections open, and a process without descriptors: the others are answered, and so is health."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.endpoint import GATE, Endpoint, Site, action, batch, held
from tests.faults.site import wait_until

LIMIT = 1024
IDLE = 2000
LIMITED = (
    "import resource, runpy, sys; sys.argv[0] = 'streamer'; "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); runpy.run_module('streamer', run_name='__main__')"
)
DECIDE = f"POST /v1/gates/{GATE}/decisions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
HALF = [b"", DECIDE.encode(), f"{DECIDE}content-length: 1000\r\n\r\n".encode()]
"""What an idle connection says: nothing, a part of a head, a head whose body never comes."""


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let the test itself have that many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * IDLE) if hard > 0 else 3 * IDLE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def limited(sqlite_site: Site) -> Endpoint:
    """An endpoint that may have 1,024 files open."""
    sqlite_site.program = ["-c", LIMITED]
    return sqlite_site.serve()


@contextmanager
def idle(url: str, *, addresses: int, says: list[bytes]) -> Iterator[None]:
    """Keep 2,000 connections open from so many addresses: one that is closed is opened again, twenty a second."""
    place = urlsplit(url)
    stopped = threading.Event()
    opened: list[socket.socket] = []

    def connect(number: int) -> socket.socket:
        # Of many addresses none is the callers' own: of one address the longest waiting makes room, and that may be a caller.
        source = f"127.0.{number % addresses // 200}.{min(addresses, 2) + number % addresses % 200}"
        one = socket.create_connection((place.hostname, place.port), 240, (source, 0))
        with suppress(OSError):
            one.sendall(says[number % len(says)])
        return one

    def keep() -> None:
        number = 0
        while not stopped.wait(0.05):
            opened[number % IDLE].close()
            with suppress(OSError):  # the service may be away
                opened[number % IDLE] = connect(number)
            number += 1

    opened.extend(connect(number) for number in range(IDLE))
    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        stopped.set()
        keeper.join()
        for one in opened:
            one.close()


@pytest.mark.parametrize("addresses", [1, 1000])
def test_new_callers_are_answered_beside_2000_idle_connections(limited: Endpoint, addresses: int) -> None:
    with idle(limited.base, addresses=addresses, says=HALF):
        for number in range(20):
            with httpx.Client(base_url=limited.base, timeout=240) as client:
                told = client.post(f"/v1/gates/{GATE}/decisions", json=batch(f"b-{number}"))
            assert action(told)["action"] == "ship"
        assert limited.open_files() < LIMIT
        assert not limited.unready()
        assert limited.metrics()
    log = limited.log_text()
    assert "Traceback" not in log
    assert "http.accept_failed" not in log, "no caller had to wait for a descriptor"
    assert 1 <= log.count("http.connections_full") <= 3 + 240 // 60, "said once a minute"


def test_health_is_answered_beside_2000_idle_connections_to_it(limited: Endpoint) -> None:
    with idle(limited.url, addresses=1, says=[b"", b"GET /readyz HTTP/1.1\r\n"]):
        for _ in range(5):
            assert not limited.unready()
        assert limited.metrics()
        assert action(limited.ask(batch("b-1")))["action"] == "ship"
    assert "Traceback" not in limited.log_text()


def test_health_is_answered_by_a_process_that_has_no_descriptor_left(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    open_now = endpoint.open_files()
    place = urlsplit(endpoint.base)
    limits = resource.prlimit(endpoint.process.pid, resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.prlimit(endpoint.process.pid, resource.RLIMIT_NOFILE, (open_now + 4, limits[1]))
        for _ in range(40):
            stack.enter_context(socket.create_connection((place.hostname, place.port), 240))
        endpoint.wait_for_log("http.accept_failed")
        for _ in range(20):
            assert not endpoint.unready()
        resource.prlimit(endpoint.process.pid, resource.RLIMIT_NOFILE, limits)
    wait_until(lambda: endpoint.ask(batch("b-1")).status_code == 200, "decisions again")
    assert "Traceback" not in endpoint.log_text()
    assert endpoint.log_text().count("http.accept_failed") == 1


def test_a_body_that_does_not_come_ends_at_the_requests_own_deadline(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    place = urlsplit(endpoint.base)
    with socket.create_connection((place.hostname, place.port), 240) as one:
        one.sendall(f"{DECIDE}prefer: wait=0.5\r\ncontent-length: 1000\r\n\r\n".encode() + b'{"prompt":')
        said = one.recv(65536)
        while b"}" not in said:
            said += one.recv(65536)
    status, _, body = said.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 408 ")
    problem = held(
        httpx.Response(408, content=body, headers={"content-type": "application/problem+json"}),
        408,
        "bad_request",
    )
    assert problem["detail"] == "the body did not come within 0.5 s"
