"""The primary turns read-only without ending a session, and its standby is promoted: whatever writes goes over to it."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from streamer.errors import Unavailable
from streamer.store import migrate
from streamer.store.db.engine import Database
from tests.faults.callers import Callers, agree, heard
from tests.faults.endpoint import Site, batch
from tests.faults.matrix import Matrix
from tests.faults.site import a_site, publish, wait_until
from tests.faults.test_endpoint import conclude
from tests.integration.store.conftest import World
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tests.services.service_forks import FORKS

pytestmark = pytest.mark.postgres


@pytest.fixture
def both_url(own_postgres_server: PostgresServer, standby: PostgresServer) -> str:
    """A migrated database by either server: the one that takes writes."""
    url = own_postgres_server.create_database()
    migrate(url)
    return f"{url}&host={standby.folder}"


def fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    """Lose nothing: fence the primary, let the standby catch up, promote it. Sessions of the primary live on."""
    primary.turn_read_only()
    wait_until(lambda: standby.caught_up_with(primary), "the standby has all")
    standby.promote()


def test_a_store_goes_over_in_the_call_that_is_refused(
    both_url: str, own_postgres_server: PostgresServer, standby: PostgresServer
) -> None:
    world = World(both_url)
    world.gate()
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0)))
    fail_over(own_postgres_server, standby)
    assert world.commit(world.slice(lease, world.decision(1), expected=1)) == [["decision"]]
    assert world.rows("SELECT pg_is_in_recovery(), count(*) FROM outcomes") == [(False, 2)]
    assert world.store.evidence.log_faults() == []
    world.close()


def test_readers_leave_a_server_that_turned_read_only(
    both_url: str, own_postgres_server: PostgresServer, standby: PostgresServer
) -> None:
    database = Database(both_url)

    def folder() -> str:
        with database.reading() as connection:
            return str(connection.exec_driver_sql("SHOW data_directory").scalar())

    assert folder() == str(own_postgres_server.folder)
    fail_over(own_postgres_server, standby)
    folder()  # the server says that it turned read-only beside the next answer
    assert folder() == str(standby.folder)
    database.close()


def test_one_that_finds_no_other_server_is_unavailable(own_postgres_server: PostgresServer) -> None:
    url = own_postgres_server.create_database()
    migrate(url)
    world = World(url)
    world.gate()
    own_postgres_server.turn_read_only()
    with pytest.raises(Unavailable, match="read-only"):
        world.lease()
    assert world.store.gates.list()  # what only reads goes on
    world.close()


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def http_site(url: str, folder: Path, sites: ExitStack) -> Site:
    site = Site(url, folder)
    sites.callback(site.close)
    site.engine = sa.create_engine(f"{url}&target_session_attrs=read-write", poolclass=sa.NullPool)
    site.gate()
    return site


def test_the_endpoint_goes_over(
    both_url: str,
    own_postgres_server: PostgresServer,
    standby: PostgresServer,
    tmp_path: Path,
    sites: ExitStack,
    matrix: Matrix,
) -> None:
    site = http_site(both_url, tmp_path, sites)
    endpoint = site.serve()
    with Callers([endpoint.base]) as callers:
        wait_until(lambda: callers.decided > 50, "it works")
        fail_over(own_postgres_server, standby)
        promoted = time.monotonic()
        before = callers.decided
        wait_until(lambda: callers.decided > before + 10, "decisions again")
        seconds = time.monotonic() - promoted
    assert not endpoint.unready()
    found, _ = conclude(site, callers, endpoint)
    matrix.add("30 by HTTP: primary read-only, standby promoted", found, seconds=seconds)


def test_an_endpoint_at_rest_refuses_no_request_for_it(
    both_url: str,
    own_postgres_server: PostgresServer,
    standby: PostgresServer,
    tmp_path: Path,
    sites: ExitStack,
) -> None:
    site = http_site(both_url, tmp_path, sites)
    endpoint = site.serve()
    told = [heard("b-1", endpoint.ask(batch("b-1")))]
    fail_over(own_postgres_server, standby)
    told += [heard(f"b-{number}", endpoint.ask(batch(f"b-{number}"))) for number in range(2, 12)]
    assert [one.status for one in told] == [200] * 11
    agree(site, told)


def test_a_worker_goes_over(
    both_url: str,
    own_postgres_server: PostgresServer,
    standby: PostgresServer,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    matrix: Matrix,
) -> None:
    with ExitStack() as stack, a_site(kafka_broker, both_url, topic_prefix, tmp_path, stack) as site:
        site.start_worker()
        publish(site, 0, 50)
        wait_until(lambda: site.decided() == 50, "it works")
        fail_over(own_postgres_server, standby)
        promoted = time.monotonic()
        publish(site, 50, 50)
        wait_until(lambda: site.decided() == 100, "it works again")
        seconds = time.monotonic() - promoted
        matrix.add("30 primary read-only, standby promoted", site.check(), seconds=seconds)


@pytest.mark.parametrize("service", ["serve", "worker", "recalibrator", "console"])
def test_a_service_waits_for_a_database_that_is_away_at_its_start(
    own_postgres_server: PostgresServer, tmp_path: Path, service: str
) -> None:
    url, log = own_postgres_server.create_database(), tmp_path / "log"
    migrate(url)
    own_postgres_server.stop()
    settings = {
        "STREAMER_DATABASE_URL": url,
        "STREAMER_ENCODER_NAME": "none",
        "STREAMER_LOGGING_FORMAT": "json",
        "STREAMER_HTTP_PORT": "0",
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    words = [service, "--json", *(["--port", "0"] if service in ("serve", "console") else [])]
    with log.open("ab") as stderr:
        process = FORKS.start(
            words, environment={**os.environ, **settings}, folder=tmp_path, stderr=stderr.fileno()
        )
    try:
        wait_until(lambda: "stream.part_away" in log.read_text(), "it says so")
        own_postgres_server.start()
        assert json.loads(process.stdout.readline()), log.read_text()  # it announces itself
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(240)
        process.stdout.close()
