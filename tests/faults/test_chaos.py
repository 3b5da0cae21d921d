"""Faults at random moments and in any order, on everything at once; the same again for the same seed.

``STREAMER_TEST_CHAOS_SECONDS`` makes it longer, ``STREAMER_TEST_CHAOS_SEED`` chooses other moments.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy.engine import make_url

from streamer.stream.exits import WorkerExit
from tests.faults.matrix import LONG
from tests.faults.site import GATE, put_in_force, wait_until
from tests.faults.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.matrix import Matrix
    from tests.faults.site import Site
    from tests.faults.worker_process import WorkerProcess
    from tests.services.kafka import KafkaBroker
    from tests.services.postgres import PostgresServer

SECONDS = float(os.environ.get("STREAMER_TEST_CHAOS_SECONDS", "120" if LONG else "10"))
SEED = int(os.environ.get("STREAMER_TEST_CHAOS_SEED", "1"))

# A supervisor would start these anew: killed, fenced, no lease in time.
RESTARTED = {-signal.SIGKILL, WorkerExit.FENCED, WorkerExit.LEASE_TIMEOUT}


class Crew:
    """Workers that come, go, freeze and die; those that end by themselves are replaced, as a supervisor does."""

    def __init__(self, site: Site, rng: random.Random) -> None:
        self._site = site
        self._rng = rng
        self._running: list[WorkerProcess] = []
        self._frozen: list[WorkerProcess] = []
        self.ended: list[int] = []

    def _replace_ended(self) -> None:
        for worker in [*self._running]:
            status = worker.process.poll()
            if status is not None:
                self._running.remove(worker)
                self.ended.append(status)
                assert status in RESTARTED, f"{status}: {worker.log_tail()}"

    def keep(self, count: int) -> None:
        """Have at least so many workers."""
        self._replace_ended()
        while len(self._running) < count:
            self._running.append(self._site.start_worker())

    def kill(self) -> None:
        self.keep(1)
        worker = self._running.pop(self._rng.randrange(len(self._running)))
        if worker.process.poll() is None:
            worker.kill()
        self.ended.append(worker.process.returncode)

    def join(self) -> None:
        self.keep(min(3, len(self._running) + 1))

    def leave(self) -> None:
        self._replace_ended()
        if len(self._running) > 1:
            worker = self._running.pop(0)
            status = worker.terminate(40)
            self.ended.append(status)
            assert status in {*RESTARTED, WorkerExit.DRAINED}, worker.log_tail()

    def freeze(self) -> None:
        """Past the session timeout, so that the others take over; then let it go on as a zombie."""
        self.keep(2)
        worker = self._running.pop(0)
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        worker.process.send_signal(signal.SIGCONT)
        self._running.append(worker)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 3 + 240)
@pytest.mark.expected_errors(r"^(aiokafka|kafka)")
def test_everything_at_random(
    own_site: Site, own_kafka_broker: KafkaBroker, own_postgres_server: PostgresServer, matrix: Matrix
) -> None:
    rng = random.Random(SEED)
    crew = Crew(own_site, rng)
    database = make_url(own_site.settings.database.url).database

    def cut_sessions() -> None:
        with psycopg.connect(
            host=str(own_postgres_server.folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            for _ in range(20):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                    " AND application_name = 'streamer' AND (state <> 'idle' OR random() < .2)",
                    [database],
                )
                time.sleep(rng.uniform(0.02, 0.2))

    def crash_database() -> None:
        own_postgres_server.crash()
        time.sleep(rng.uniform(0, 3))
        own_postgres_server.start()

    def kill_broker() -> None:
        own_kafka_broker.kill()
        time.sleep(rng.uniform(0, 4))
        own_kafka_broker.start()

    def new_policy() -> None:
        if rng.random() < 0.5:
            put_in_force(own_site.store, round(rng.uniform(0.4, 0.8), 3))
        else:
            mode = rng.choice(("shadow", "enforce"))
            now = own_site.store.gates.get(GATE).settings.mode
            if mode != now:
                own_site.store.gates.revise(GATE, {"mode": mode}, by="test", reason="chaos")

    faults: list[Callable[[], None]] = [
        *[crew.kill] * 4,
        *[crew.join] * 3,
        *[crew.leave] * 2,
        crew.freeze,
        cut_sessions,
        crash_database,
        kill_broker,
        *[new_policy] * 3,
    ]
    done: list[str] = []
    crew.keep(2)
    with Traffic(own_site, seed=SEED) as traffic:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            fault = rng.choice(faults)
            done.append(fault.__name__)
            fault()
            crew.keep(1)
            time.sleep(rng.uniform(0, 2))
    stopped = time.monotonic()
    crew.keep(1)

    def all_recorded() -> bool:
        crew.keep(1)
        return own_site.recorded() == traffic.total

    try:
        wait_until(all_recorded, "every record has an outcome", 120)
    finally:
        print(f"\n{done}\n{crew.ended}\n{traffic.accepted}, recorded {own_site.recorded()}")
    recovery = time.monotonic() - stopped
    found = own_site.check()
    print(f"recovery {recovery:.1f} s; {found}")
    matrix.add(f"1 to 6 {len(done)} faults at random in {SECONDS:g} s", found, seconds=recovery)
    assert set(own_site.store.reports.decided_batches(GATE)) == traffic.batches
