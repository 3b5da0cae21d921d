"""Case 22: the leading recalibrator frozen, or cut off from the database: another one leads, and it writes nothing when it wakes."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from tests.faults.matrix import LONG, Matrix
from tests.faults.oracle import Findings
from tests.faults.recalibrators import Place, leaders, opened
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tests.services.stalling_proxy import StallingProxy

# Every row that anybody writes, with the database user and the moment; who took the lead notes the moment after it had it.
NOTES = """
CREATE TABLE public.notes (who text, what text, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION public.note() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.notes (who, what) VALUES (session_user, TG_TABLE_NAME);
    RETURN NULL;
END $$;
CREATE FUNCTION public.note_lead() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.name = 'recalibrator' THEN
        INSERT INTO public.notes (who, what) VALUES (session_user, 'lead');
    END IF;
    RETURN NULL;
END $$;
"""


class Recalibrators:
    """Two of them, each with a database user and a network of its own, and a note of all that they write."""

    def __init__(self, place: Place, server: PostgresServer, stack: ExitStack) -> None:
        self.place = place
        url = place.settings.database.url
        self._direct = server.direct_url_of(str(make_url(url).database)).replace("+psycopg", "")
        users = [f"r{n}_{make_url(url).database}" for n in (1, 2)]
        with psycopg.connect(self._direct, autocommit=True) as connection:
            connection.execute(NOTES)
            tables = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'streamer'::regnamespace"
                " AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'leases'"
            ).fetchall()
            for (table,) in tables:
                connection.execute(
                    f"CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON streamer.{table}"
                    " FOR EACH ROW EXECUTE FUNCTION public.note()"
                )
            connection.execute(
                "CREATE TRIGGER noted AFTER INSERT OR UPDATE OF epoch ON streamer.leases"
                " FOR EACH ROW EXECUTE FUNCTION public.note_lead()"
            )
            for user in users:
                connection.execute(f"CREATE ROLE {user} SUPERUSER LOGIN")
        stack.callback(self._drop_users, users)
        self.proxies = [StallingProxy(url, user=user) for user in users]
        for one in self.proxies:
            stack.callback(one.close)
        self.processes = [place.start(STREAMER_DATABASE_URL=one.url) for one in self.proxies]
        for process in self.processes:
            process.wait_until_ready()

    def leader(self) -> int:
        """Which of them leads."""
        wait_until(lambda: len(leaders(*self.processes)) == 1, "one leads")
        return self.processes.index(leaders(*self.processes)[0])

    def taken_over(self, other: WorkerProcess, wake: Callable[[], None]) -> float:
        """See the other one lead and do the leader's work while the first is away, then wake that; returns seconds."""
        began = time.monotonic()
        wait_until(lambda: leaders(other) == [other], "another one leads")
        seconds = time.monotonic() - began
        read, runs = self.read_through(), len(self.place.runs())
        self.place.label_more(0.8)
        wait_until(lambda: self.read_through() > read, "it watches the risk")
        wait_until(lambda: len(self.place.runs()) > runs, "it calibrates")
        wake()
        time.sleep(3)  # what the first one was about to do, it does now
        assert other.unready() == ""
        return seconds

    def read_through(self) -> int:
        """How many decisions the watch has read."""
        (found,) = self.place.gate.world.rows(
            "SELECT coalesce(max(seen_batch), 0) AS seen FROM monitor_gates"
        )
        return int(found.seen)

    def check(self) -> int:
        """Whoever wrote did so between taking the lead and the next one's taking it; returns how often it was taken."""
        with psycopg.connect(self._direct) as connection:
            rows: list[Any] = connection.execute("SELECT who, what FROM notes ORDER BY at").fetchall()
        led: list[str] = []
        for who, what in rows:
            if what == "lead":
                led.append(who)
            elif who.startswith("r"):
                assert led, f"{who} wrote {what} before anybody led"
                assert who == led[-1], f"{who} wrote {what} while {led[-1]} led"
        return len(led)

    def _drop_users(self, users: list[str]) -> None:
        with psycopg.connect(self._direct, autocommit=True) as connection:
            for user in users:
                connection.execute(f"DROP ROLE {user}")


def test_a_leader_that_is_frozen_or_cut_off_is_replaced_and_writes_nothing_when_it_wakes(
    kafka_broker: KafkaBroker,
    postgres_server: PostgresServer,
    migrated_postgres_url: str,
    topic_prefix: str,
    tmp_path: Path,
    matrix: Matrix,
) -> None:
    draw = random.Random(22)
    slowest = 0.0
    with ExitStack() as stack:
        place = Place(migrated_postgres_url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        # Every run takes a while, so that some are under way when their process stops.
        place.environment["STREAMER_FAILPOINTS"] = "before_record=sleep:1.5"
        two = Recalibrators(place, postgres_server, stack)
        faults = ("frozen", "cut off") * (4 if LONG else 1)
        for fault in faults:
            which = two.leader()
            leader, other = two.processes[which], two.processes[1 - which]
            place.label_more(0.8)
            leader.wait_for_log("recalibrator.run")
            time.sleep(draw.uniform(0, 3))
            if fault == "frozen":
                os.kill(leader.process.pid, signal.SIGSTOP)
                slowest = max(
                    slowest, two.taken_over(other, lambda one=leader: one.process.send_signal(signal.SIGCONT))
                )
                wait_until(lambda one=leader: one.unready() == "", "the frozen one stands by")
            else:
                proxy = two.proxies[which]
                proxy.stall()
                # Its lease lapses, or before that the database is found to be away.
                wait_until(lambda one=leader: leaders(one) == [], "it knows by itself")
                wait_until(lambda one=leader: one.unready() != "", "it says so")
                slowest = max(slowest, two.taken_over(other, proxy.resume))
                wait_until(lambda one=leader: one.unready() == "", "it stands by")
            two.leader()
        assert two.check() == 1 + len(faults)
        place.agree()
        assert [one.terminate() for one in two.processes] == [0, 0]
        decided = place.gate.count
    found = Findings(
        events=decided, lost=0, conflicting=0, decisions=decided, dead_letters=0, duplicates=0, labels=decided,
        actions_published=0, republished=0,
    )  # fmt: skip
    matrix.add(
        f"22 the leader frozen or cut off, {len(faults)} times; slowest takeover", found, seconds=slowest
    )
