"""Recalibrators that are killed at each step of a run, whose clock is wrong, and whose database or broker goes away."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from streamer import wiring
from streamer.gates.policy import RECALIBRATOR
from tests.faults.recalibrators import Place, leaders, opened
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess
from tests.integration.store.labelled_gate import GATE
from tests.services.collector import Collector
from tests.services.kafka import KafkaBroker
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer

STEPS = (
    "before_run", "before_record", "in_record", "before_publish", "after_publish", "after_mark",
    "after_record",
)  # fmt: skip
RECORDED = STEPS[STEPS.index("before_publish") :]
SHIFTED = str(Path(__file__).with_name("shifted_clock.py"))


@pytest.mark.slow
def test_killed_at_each_step(place: Place) -> None:
    opened(place)
    # Publishing is the same with either database.
    steps = STEPS if place.settings.database.url.startswith("sqlite") else ("in_record", "after_record")
    for number, step in enumerate(steps):
        # Each says that more should be held, so that the rule acts at once.
        place.label_more(0.4 + number / 20)
        before, runs = place.version, len(place.runs())
        # What the one before left: published beside the run, it would be killed by this before the run is over.
        wiring.publish_pending(place.settings)
        one = place.start(STREAMER_FAILPOINTS=f"{step}=kill")
        one.wait_until_killed()
        place.expire_leases()
        written = step in RECORDED
        assert (place.version - before, len(place.runs()) - runs) == (written, written), step
        if written:
            newest = place.gate.policy
            assert newest.calibration_run == place.runs()[-1].id
            assert newest.created_by == RECALIBRATOR
    last = place.start()
    last.wait_until_ready()
    place.agree()
    assert last.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize("days", [1, -1])
def test_a_clock_that_is_a_day_off_runs_once(
    kafka_broker: KafkaBroker, migrated_sqlite_url: str, topic_prefix: str, tmp_path: Path, days: int
) -> None:
    with ExitStack() as stack:
        place = Place(migrated_sqlite_url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        place.store.gates.revise(
            GATE, {"recalibrate_every_seconds": 3 * 86_400.0}, by="ana", reason="by time as well"
        )
        runs = len(place.runs())
        place.label_more(0.8)
        one = WorkerProcess(
            place.environment,
            tmp_path / "shifted.log",
            program=(SHIFTED, str(days * 86_400)),
            service="recalibrator",
        )
        stack.callback(one.close)
        wait_until(lambda: len(place.runs()) > runs, "it runs")
        one.wait_until_ready()
        rounds = "streamer_recalibrator_round_timestamp_seconds"
        first = one.metrics()[rounds]
        wait_until(lambda: one.metrics()[rounds] > first + 2.5, "it looks again, more than once")
        assert len(place.runs()) == runs + 1
        place.label_more(0.9)
        wait_until(lambda: len(place.runs()) == runs + 2, "and runs when it is due again")
        place.agree()


@pytest.mark.slow
def test_the_database_goes_away_and_comes_back(
    own_postgres_server: PostgresServer, kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        url = own_postgres_server.create_migrated_database()
        place = Place(url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        one = place.start()
        one.wait_until_ready()
        own_postgres_server.stop()
        wait_until(lambda: "the database does not answer" in one.unready(), "it is not ready")
        own_postgres_server.start()
        one.wait_until_ready()
        version = place.version
        place.label_more(0.8)
        wait_until(lambda: place.version == version + 1, "it goes on")
        assert leaders(one) == [one]
        assert one.terminate() == 0


@pytest.mark.slow
def test_a_broker_that_is_away_stops_no_run_and_nothing_is_lost(
    kafka_broker: KafkaBroker, migrated_sqlite_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        place = Place(migrated_sqlite_url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        first = place.version
        collector = stack.enter_context(Collector())
        away = {"STREAMER_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
        one = place.start(**collector.environment, **away)
        place.label_more(0.8)
        wait_until(lambda: place.version == first + 1, "it runs all the same")
        wait_until(lambda: bool(collector.spans), "its trace comes")
        wanted = ("recalibrate", "streamer-recalibrator")
        assert (collector.spans[0].name, collector.spans[0].service) == wanted
        assert collector.spans[0].attributes == {"streamer.gate": GATE, "streamer.outcome": "applied"}
        place.label_more(0.9)
        wait_until(lambda: place.version == first + 2, "and again")
        wait_until(lambda: "the broker does not answer" in one.unready(), "and says what is away")
        one.kill()
        assert len(place.store.unpublished([], limit=10)) > 2
        place.start()
        place.agree()
