"""Faults at random moments and in any order, on everything at once; the same again for the same seed.

Processes that die, join, leave and freeze, the leading recalibrator among them; sessions that are cut; a database and a
broker that crash; commits that take over a second each; records that are huge once unpacked, or that no commit takes; a
dead-letter topic that is deleted; policies that change, and a gate that is closed while commits wait for a lock.

``STREAMER_TEST_CHAOS_SECONDS`` makes it longer, ``STREAMER_TEST_CHAOS_SEED`` chooses other moments.
"""

import random
import signal
import time
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy.engine import make_url

from streamer import wiring
from streamer.stream.ending import WorkerExit
from tests.faults.matrix import LONG, Matrix
from tests.faults.recalibrators import leaders
from tests.faults.site import GATE, Site, put_in_force, wait_until
from tests.faults.traffic import Traffic
from tests.faults.worker_process import WorkerProcess
from tests.machine import ASKED
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer

SECONDS = float(ASKED.get("STREAMER_TEST_CHAOS_SECONDS", "120" if LONG else "10"))
SEED = int(ASKED.get("STREAMER_TEST_CHAOS_SEED", "1"))

SLOW = """
CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(1.1); RETURN NULL; END $$
"""
# Enforced ships by a policy before the closing one, of transactions that a snapshot taken after the closing cannot see.
SHIPPED_LATE = """
SELECT batch, policy_version FROM streamer.decisions
WHERE NOT pg_visible_in_snapshot(xmin::text::xid8, %s::pg_snapshot) AND policy_version < %s
AND outcome IN ('ship', 'mixed') AND mode = 'enforce'
"""

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
            status = worker.terminate(240)
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


@pytest.mark.long  # a short run of `test_mixed_faults` has most of it, and more
@pytest.mark.timeout(SECONDS * 3 + 240)
@pytest.mark.expected_errors(r"^(aiokafka|kafka)")
def test_everything_at_random(
    own_site: Site, own_kafka_broker: KafkaBroker, own_postgres_server: PostgresServer, matrix: Matrix
) -> None:
    rng = random.Random(SEED)
    crew = Crew(own_site, rng)
    database = make_url(own_site.settings.database.url).database
    closings: list[tuple[int, str]] = []
    letters_deleted = False

    def superuser(name: str | None = database) -> psycopg.Connection:
        folder = str(own_postgres_server.folder)
        return psycopg.connect(host=folder, user="postgres", dbname=name, autocommit=True)

    def cut_sessions() -> None:
        with superuser("postgres") as connection:
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

    def slow_commits() -> None:
        """Whatever a group has in it, its commit takes over a second."""
        with superuser() as connection:
            connection.execute(SLOW)
            connection.execute(
                "CREATE TRIGGER slow BEFORE UPDATE ON streamer.progress EXECUTE FUNCTION public.slow()"
            )
            time.sleep(rng.uniform(2, 6))
            connection.execute("DROP TRIGGER slow ON streamer.progress")

    def huge_record() -> None:
        traffic.huge(60_000_000, rng.choice(("gzip", "zstd", "lz4")))

    def dead_letters_away() -> None:
        nonlocal letters_deleted
        letters_deleted = True
        own_kafka_broker.delete_topics([wiring.topics(own_site.settings).dead_letters])
        time.sleep(rng.uniform(1, 4))
        wiring.create_topics(own_site.settings)

    def close_behind_a_lock() -> None:
        """While commits wait for a lock that closing needs not."""
        with superuser() as connection, connection.transaction(force_rollback=True):
            connection.execute("LOCK TABLE streamer.outcomes IN SHARE ROW EXCLUSIVE MODE")
            time.sleep(rng.uniform(0.5, 3))
            closed = own_site.store.policies.close(GATE, by="test", reason="chaos")
            (seen,) = connection.execute("SELECT pg_current_snapshot()::text").fetchone() or ("",)
        closings.append((closed.version, seen))
        time.sleep(rng.uniform(0, 2))
        put_in_force(own_site.store, 0.6)

    def freeze_or_wake_the_leader() -> None:
        for one in recalibrators:
            if one in frozen:
                frozen.remove(one)
                one.process.send_signal(signal.SIGCONT)
                return
        (leader, *_) = [one for one in recalibrators if leaders(one)] or recalibrators
        frozen.append(leader)
        leader.process.send_signal(signal.SIGSTOP)

    recalibrators = [own_site.start_recalibrator() for _ in range(2)] if LONG else []
    frozen: list[WorkerProcess] = []
    faults: list[Callable[[], None]] = [
        *[crew.kill] * 4, *[crew.join] * 3, *[crew.leave] * 2, crew.freeze, cut_sessions,
        crash_database, kill_broker, *[new_policy] * 3, slow_commits, huge_record,
        dead_letters_away, close_behind_a_lock,
        *[freeze_or_wake_the_leader] * (2 if recalibrators else 0),
    ]  # fmt: skip
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
        wait_until(all_recorded, "every record has an outcome", 120, progress=own_site.recorded)
    finally:
        print(f"\n{done}\n{crew.ended}\n{traffic.accepted}, recorded {own_site.recorded()}")
    recovery = time.monotonic() - stopped
    found = own_site.check(letters_deleted=letters_deleted)
    for version, seen in closings:
        with superuser() as connection:
            late = connection.execute(SHIPPED_LATE, [seen, version]).fetchall()
        assert not late, f"shipped by an older policy after {version} had closed the gate: {late}"
    for one in recalibrators:
        one.process.send_signal(signal.SIGCONT)
        assert one.terminate(240) == 0, one.log_tail()
    print(f"recovery {recovery:.1f} s; {found}")
    matrix.add(f"1 to 6 {len(done)} faults at random in {SECONDS:g} s", found, seconds=recovery)
    assert set(own_site.store.reports.decided_batches(GATE)) == traffic.batches
