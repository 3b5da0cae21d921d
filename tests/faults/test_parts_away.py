"""Cases 4 and 5: the broker and the database away, for a moment and for a minute, and a database without space."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from streamer.stream.ending import WorkerExit
from tests.faults.matrix import Matrix
from tests.faults.site import Site, publish, wait_until
from tests.faults.traffic import Traffic
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tests.services.requirements import missing

# The short form of these is in the chaos of every run.
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
RESTARTED = {None, WorkerExit.LEASE_TIMEOUT}


def _settle(site: Site, traffic: Traffic, since: float) -> float:
    """Seconds from `since` until every record has an outcome and every action is published."""

    def done() -> bool:
        worker = site.workers[-1]
        if worker.ended:  # a supervisor would start it anew
            assert worker.process.returncode in RESTARTED, worker.log_tail()
            site.start_worker()
        return site.recorded() == traffic.total and not site.store.reports.outbox_pending()

    wait_until(done, "every record has an outcome", 180, progress=site.recorded)
    return time.monotonic() - since


@pytest.mark.parametrize(
    ("how", "seconds"),
    [("killed and away", 1), ("killed and away", 12), ("killed and away", 60), ("frozen", 12)],
)
def test_the_broker_away(
    own_site: Site, own_kafka_broker: KafkaBroker, matrix: Matrix, how: str, seconds: int
) -> None:
    frozen = how == "frozen"
    own_site.start_worker()
    with Traffic(own_site, seed=seconds, rate=120) as traffic:
        wait_until(lambda: own_site.recorded() > 50, "it works")
        (own_kafka_broker.pause if frozen else own_kafka_broker.kill)()
        time.sleep(seconds)
        (own_kafka_broker.resume if frozen else own_kafka_broker.start)()
        back = time.monotonic()
        before = own_site.recorded()
        wait_until(lambda: own_site.recorded() > before + 50, "it works again", 120)
        working = time.monotonic() - back
    _settle(own_site, traffic, back)
    matrix.add(f"4 broker {how} for {seconds} s", own_site.check(), seconds=working)


@pytest.mark.parametrize("away", [0, 12, 40])
def test_postgresql_crashed(
    own_site: Site, own_postgres_server: PostgresServer, matrix: Matrix, away: int
) -> None:
    worker = own_site.start_worker()
    with Traffic(own_site, seed=5, rate=120) as traffic:
        wait_until(lambda: own_site.recorded() > 50, "it works")
        before = own_site.recorded()
        own_postgres_server.crash()
        if away:
            wait_until(lambda: "the database does not answer" in worker.unready(), "it says so")
        time.sleep(away)
        own_postgres_server.start()
        back = time.monotonic()
        wait_until(lambda: own_site.recorded() > before + 50, "it works again")
        working = time.monotonic() - back
    _settle(own_site, traffic, back)
    matrix.add(f"5 PostgreSQL crashed and away for {away} s", own_site.check(), seconds=working)


def test_sessions_cut_in_their_transactions(
    own_site: Site, own_postgres_server: PostgresServer, matrix: Matrix
) -> None:
    database = make_url(own_site.settings.database.url).database
    own_site.start_worker()
    cut = 0
    with (
        Traffic(own_site, seed=5, rate=250) as traffic,
        psycopg.connect(
            host=str(own_postgres_server.folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection,
    ):
        wait_until(lambda: own_site.recorded() > 50, "it works")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            cut += len(
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND"
                    " application_name = 'streamer' AND state <> 'idle'",
                    [database],
                ).fetchall()
            )
            time.sleep(0.005)
    stopped = time.monotonic()
    assert cut > 20
    seconds = _settle(own_site, traffic, stopped)
    matrix.add(f"5 {cut} sessions ended in the middle", own_site.check(), seconds=seconds)


@pytest.fixture
def small_disk(tmp_path: Path, own_postgres_server: PostgresServer) -> Iterator[Path]:
    """A file system of 24 MiB that PostgreSQL may write to."""
    place = own_postgres_server.folder.with_name(own_postgres_server.folder.name + "-disk")
    place.mkdir()
    owner = own_postgres_server.folder.stat()
    mode = f"size=24m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    options = ["-t", "tmpfs", "-o", mode, "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        place.rmdir()
        missing("no small disk", "run as root where file systems may be mounted")
    try:
        yield place
    finally:
        own_postgres_server.stop("immediate")
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


def test_postgresql_without_space(
    small_disk: Path, own_site: Site, own_postgres_server: PostgresServer, matrix: Matrix
) -> None:
    url = make_url(own_site.settings.database.url)
    own_site.store.close()  # moving a database wants nobody in it
    with psycopg.connect(
        host=str(own_postgres_server.folder), user="postgres", dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        connection.execute(f'ALTER DATABASE "{url.database}" SET TABLESPACE small')
    worker = own_site.start_worker()
    publish(own_site, 0, 100)
    wait_until(lambda: own_site.decided() == 100, "the first batches are decided")
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk)
    ballast.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - 400_000))
    publish(own_site, 100, 1500)
    wait_until(lambda: "the database does not answer" in worker.unready(), "the worker says so")
    assert own_site.decided() < 1600
    assert not worker.ended
    ballast.unlink()
    began = time.monotonic()
    wait_until(lambda: own_site.decided() == 1600, "what waited is decided", 120)
    seconds = time.monotonic() - began
    worker.wait_until_ready()
    matrix.add("5 PostgreSQL's disk full, then not", own_site.check(), seconds=seconds)
    assert worker.terminate() == 0
