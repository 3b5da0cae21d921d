"""Case 32: workers, two endpoints and a desk over one record, beside a hostile upstream and slow callers, and everything fails.

Workers, endpoints and people at the desk are killed; sessions are cut; database and broker crash; gates are closed and opened
again; half-way the primary turns read-only and its standby is promoted. All the while one upstream answers in every hostile
way, and 2,000 connections that say nothing, or half of something, stay open to each endpoint.

``STREAMER_TEST_CHAOS_SECONDS`` makes it longer, ``STREAMER_TEST_CHAOS_SEED`` chooses other moments.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from streamer.audit import signing
from streamer_verify.bundle import Bundle
from streamer_verify.command import verify_bundle
from tests.faults.callers import REFUSED, Callers, agree, ask_all_again
from tests.faults.endpoint import GATE as BOT
from tests.faults.endpoint import Endpoint
from tests.faults.endpoint import Site as Doors
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, a_site, put_in_force, wait_until
from tests.faults.test_chaos import SECONDS, SEED, SHIPPED_LATE, Crew
from tests.faults.test_desk_killed import somebody
from tests.faults.test_endpoint import WAITS, unsure_commits
from tests.faults.test_failover import fail_over
from tests.faults.test_hostile_upstream import WAYS, Hostile
from tests.faults.traffic import Traffic
from tests.integration.audit.alone import in_javascript, need_node
from tests.integration.serving.test_front_door import HALF, LIMITED, idle, many_files
from tests.services.kafka import KafkaBroker
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer

__all__ = ["many_files"]
pytestmark = pytest.mark.postgres

RELEASED_LATE = """
SELECT batch_id FROM streamer.desk_outcomes WHERE action = 'released' AND gate = %s
AND NOT pg_visible_in_snapshot(xmin::text::xid8, %s::pg_snapshot) AND pg_visible_in_snapshot(xmin::text::xid8, %s::pg_snapshot)
"""
SHIPPED_LATE_BY = f"{SHIPPED_LATE} AND batch IN (SELECT id FROM streamer.batches WHERE gate = %s)"


class Instances:
    """Two endpoints, each started again under its port when it is killed."""

    def __init__(self, site: Doors, upstream: str) -> None:
        self._site, self._upstream = site, upstream
        self._ports = [str(free_port()) for _ in range(2)]
        self.now = [self._start(number) for number in range(2)]
        self.bases = [one.base for one in self.now]

    def _start(self, number: int) -> Endpoint:
        words = ("--port", self._ports[number])
        return self._site.serve(*words, kafka=True, ready=False, STREAMER_UPSTREAMS=self._upstream)

    def kill(self, rng: random.Random) -> None:
        number = rng.randrange(2)
        self.now[number].kill()
        self.now[number] = self._start(number)


class HostileChats:
    """Asks the endpoints in turn for answers of an upstream that sends anything but answers; nothing of it ships."""

    def __init__(self, bases: list[str], server: object) -> None:
        self.told: Counter[str] = Counter()
        self._bases, self._server = itertools.cycle(bases), server
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            for way in itertools.takewhile(lambda _: not self._stopping.is_set(), itertools.cycle(WAYS)):
                self._server.way = way  # type: ignore[attr-defined]
                self._ask(way)
        except BaseException as error:
            self._errors.append(error)

    def _ask(self, way: str) -> None:
        body = {"model": "gate/chat", "messages": [{"role": "user", "content": "Who?"}]}
        try:
            answer = httpx.post(f"{next(self._bases)}/v1/chat/completions", json=body, timeout=60)
        except httpx.TransportError:
            time.sleep(0.1)
            return
        if answer.status_code in REFUSED:
            time.sleep(0.1)
            return
        assert answer.status_code == 200, answer.text
        assert answer.json()["streamer"]["action"] == "abstain", way
        self.told[way] += 1

    def __enter__(self) -> HostileChats:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(240)
        if self._errors:
            raise self._errors[0]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 3 + 400)
@pytest.mark.expected_errors(r"^(aiokafka|kafka)")
def test_everything_at_random_at_every_door(
    own_kafka_broker: KafkaBroker,
    own_postgres_server: PostgresServer,
    standby: PostgresServer,
    tmp_path: Path,
    matrix: Matrix,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_node()
    monkeypatch.setenv("STREAMER_KAFKA_TOPIC_PREFIX", "own.")  # for people at the desk
    rng = random.Random(SEED)
    own_postgres_server._execute(psycopg.sql.SQL("ALTER SYSTEM SET wal_keep_size = '1GB'"))
    own_postgres_server._execute(
        psycopg.sql.SQL("SELECT pg_reload_conf()")
    )  # a crash must not cut the standby off
    url = f"{own_postgres_server.create_migrated_database()}&host={standby.folder}"
    servers = [own_postgres_server, standby]
    closings: list[tuple[str, int, str, str]] = []
    done: list[str] = []
    seconds_to_close: list[float] = []
    cuts = 1  # the fail-over

    with ExitStack() as stack:
        site = stack.enter_context(a_site(own_kafka_broker, url, "own.", tmp_path, stack))
        key = tmp_path / "key.pem"
        site.command("audit", "keygen", "--out", str(key))
        site.environment["STREAMER_AUDIT_PRIVATE_KEY_FILE"] = str(key)
        site.store.gates.revise(
            GATE, {"hold_action": "escalate", "desk_deadline_seconds": 3600.0}, by="test", reason="desk"
        )
        put_in_force(site.store, 0.6)
        doors = Doors(url, tmp_path, settings=dict(site.environment), program=["-c", LIMITED])
        stack.callback(doors.close)
        doors.engine = sa.create_engine(f"{url}&target_session_attrs=read-write", poolclass=sa.NullPool)
        doors.gate()
        doors.gate("chat", scorer="choice", encoder="any@12345678", segment_by="upstream")
        hostile = stack.enter_context(Hostile())
        upstream = {"base_url": hostile.url, "model": "m", "answers": 4, "tries": 1}
        crew = Crew(site, rng)
        people = {name: somebody(url, name, SEED) for name in ("ana", "ben")}
        stack.callback(lambda: [(one.kill(), one.communicate()) for one in people.values()])

        def superuser() -> psycopg.Connection:
            database = make_url(url).database
            return psycopg.connect(
                host=str(servers[0].folder), user="postgres", dbname=database, autocommit=True
            )

        def cut_sessions() -> None:
            nonlocal cuts
            cuts += 1
            with superuser() as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'streamer' AND (state <> 'idle' OR random() < .5)"
                )

        def crash_database() -> None:
            nonlocal cuts
            cuts += 1
            servers[0].crash()
            time.sleep(rng.uniform(0, 3))
            servers[0].start()

        def kill_broker() -> None:
            own_kafka_broker.kill()
            time.sleep(rng.uniform(0, 3))
            own_kafka_broker.start()

        def kill_endpoint() -> None:
            instances.kill(rng)

        def kill_at_the_desk() -> None:
            name = rng.choice(list(people))
            people[name].kill()
            people[name].communicate()
            people[name] = somebody(url, name, rng.randrange(10**6))

        def close_and_open() -> None:
            """Close a gate, half the time while commits wait for a lock that closing needs not; nothing goes out until it opens."""
            name = rng.choice((GATE, BOT))
            with superuser() as connection:
                with connection.transaction(force_rollback=True):
                    if rng.random() < 0.5:
                        connection.execute("LOCK TABLE streamer.outcomes IN SHARE ROW EXCLUSIVE MODE")
                        time.sleep(rng.uniform(0, 1))
                    asked = time.monotonic()
                    version = site.store.policies.close(name, by="test", reason="chaos").version
                    seconds_to_close.append(time.monotonic() - asked)
                    closed = _snapshot(connection)
                time.sleep(rng.uniform(0, 2))
                closings.append((name, version, closed, _snapshot(connection)))
            site.store.policies.rollback(name, version - 1, by="test", reason="chaos")

        def promote_the_standby() -> None:
            fail_over(*servers)
            servers.reverse()

        instances = Instances(doors, json.dumps({"chat": upstream}))
        for one in instances.now:
            one.wait_until_ready()
        faults: list[Callable[[], None]] = [
            *[crew.kill] * 2, crew.join, crew.leave, crew.freeze, cut_sessions, crash_database,
            kill_broker, *[kill_endpoint] * 2, kill_at_the_desk, *[close_and_open] * 4,
        ]  # fmt: skip
        crew.keep(2)
        for base in instances.bases:
            stack.enter_context(idle(base, addresses=1000, says=HALF))
        with (
            Traffic(site, seed=SEED, rate=100) as traffic,
            Callers(
                instances.bases, seed=SEED, plain=4, ours=2, waits=WAITS, patience=30, pause=0.05
            ) as callers,
            HostileChats(instances.bases, hostile) as chats,
        ):
            began = time.monotonic()
            while (passed := time.monotonic() - began) < SECONDS or servers[0] is own_postgres_server:
                due = passed > SECONDS / 2 and servers[0] is own_postgres_server
                fault = promote_the_standby if due else rng.choice(faults) if done else close_and_open
                done.append(fault.__name__)
                fault()
                crew.keep(1)
                time.sleep(rng.uniform(0, 2))
            stopped, before = time.monotonic(), callers.decided
            wait_until(lambda: callers.decided > before + 10, "decisions again")
        crew.keep(1)

        def all_recorded() -> bool:
            crew.keep(1)
            ((count,),) = doors.rows("SELECT count(*) FROM outcomes WHERE log_id <> 'http'")
            return bool(count == traffic.total)

        try:
            wait_until(all_recorded, "every record has an outcome", 120, progress=site.recorded)
        finally:
            print(f"\n{done}\n{crew.ended}\n{traffic.accepted}, recorded {site.recorded()}")
        recovery = time.monotonic() - stopped
        for one in people.values():
            one.kill()
        told = agree(doors, callers.said, unsure=unsure_commits(doors, callers, 2 * cuts))
        ask_all_again(instances.now[0], callers, most=300)
        found = site.check()
        with superuser() as connection:
            for gate, version, closed, opened in closings:
                late = connection.execute(SHIPPED_LATE_BY, [closed, version, gate]).fetchall()
                late += connection.execute(RELEASED_LATE, [gate, closed, opened]).fetchall()
                assert not late, f"went out after {version} had closed {gate}: {late}"
            (released,) = connection.execute("SELECT count(*) FROM streamer.desk_outcomes").fetchone() or (0,)
        print(
            f"{told}\n{chats.told}\n{found}\nat the desk {released}, slowest closing {max(seconds_to_close, default=0):.1f} s"
        )
        print([(one.process.returncode, one.open_files()) for one in instances.now])
        assert set(site.store.reports.decided_batches(GATE)) == traffic.batches
        assert released
        assert chats.told
        site.command("audit", "checkpoint")
        site.command("audit", "export", "--salts", "--out", str(tmp_path / "bundle.zip"))
        public = key.with_suffix(".pem.pub").read_text()
        alone = verify_bundle(
            Bundle(tmp_path / "bundle.zip"), signing.read_public_keys(public, place="here"), None
        )
        assert alone.faults == []
        assert in_javascript(tmp_path / "bundle.zip", None, keys=public)["faults"] == []
        for one in instances.now:
            assert one.terminate() == 0, one.log_tail()
        matrix.add(
            f"32 {len(done)} faults at random in {SECONDS:g} s, two endpoints, a desk and a fail-over among them",
            found,
            seconds=recovery,
        )


def _snapshot(connection: psycopg.Connection) -> str:
    (seen,) = connection.execute("SELECT pg_current_snapshot()::text").fetchone() or ("",)
    return str(seen)
