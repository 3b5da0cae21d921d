"""Recalibrators that are killed at each step of a run, that are two at once, and whose database or broker goes away."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamer import wiring
from streamer.gates.policy import RECALIBRATOR
from streamer.settings.settings import load_settings
from streamer.store import migrate
from streamer.store.db.leases import GateBusy
from tests.faults import oracle
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below
from tests.services.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.kafka import KafkaBroker
    from tests.services.postgres import PostgresServer

STEPS = (
    "before_run",
    "before_record",
    "in_record",
    "before_publish",
    "after_publish",
    "after_mark",
    "after_record",
)
RECORDED = STEPS[STEPS.index("before_publish") :]
SHIFTED = str(Path(__file__).with_name("shifted_clock.py"))
BY_LABELS = {"recalibrate_every_seconds": None, "recalibrate_after_groups": 50}


class Place:
    """A record with one labelled gate, and recalibrators that end with the test."""

    def __init__(self, url: str, broker: KafkaBroker, prefix: str, directory: Path, stack: ExitStack) -> None:
        self.environment = {
            "STREAMER_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
            "STREAMER_KAFKA_TOPIC_PREFIX": prefix,
            "STREAMER_KAFKA_REPLICATION_FACTOR": "1",
            "STREAMER_DATABASE_URL": url,
            "STREAMER_LOGGING_FORMAT": "json",
        }
        self.settings = load_settings(
            kafka={"bootstrap_servers": broker.bootstrap, "topic_prefix": prefix, "replication_factor": 1},
            database={"url": url},
        )
        wiring.create_topics(self.settings)
        self.store = stack.enter_context(wiring.open_store(self.settings))
        world = World(url)
        stack.callback(world.close)
        # Older than any clock that is a day off.
        self.gate = LabelledGate(
            world, store=self.store, start=datetime.now(UTC) - timedelta(days=3), **BY_LABELS
        )
        self._directory = directory
        self._stack = stack
        self._count = 0

    def start(self, **environment: str) -> WorkerProcess:
        self._count += 1
        one = WorkerProcess(
            self.environment | environment,
            self._directory / f"recalibrator-{self._count}.log",
            service="recalibrator",
        )
        self._stack.callback(one.close)
        return one

    def label_more(self, cut: float) -> None:
        """So many new groups that a run is due; the higher the cut, the more they say should be held."""
        self.gate.label(self.gate.decide(60), bad_below(cut))

    @property
    def version(self) -> int:
        return self.gate.policy.version

    def runs(self) -> list[Any]:
        return self.gate.runs()

    def agree(self) -> None:
        """The record, what it says of itself, and the thresholds topic tell the same story."""
        wait_until(lambda: not self.store.unpublished([], limit=1), "everything is published", 60)
        policies = self.store.policies.list(GATE)
        assert [one.version for one in policies] == list(range(1, len(policies) + 1))
        applied = [row.id for row in self.runs() if row.outcome == "applied"]
        # A change of other settings carries the run over.
        assert applied == sorted({one.calibration_run for one in policies if one.calibration_run is not None})
        for run in applied:
            assert self.store.calibration.inputs(run)
        events = self.store.policies.events(GATE)
        assert [one.version for one in events if one.event == "superseded"] == [
            one.version for one in policies[:-1]
        ]
        assert self.store.verify_chain() == []
        records = oracle.read_all(wiring.connection(self.settings), wiring.topics(self.settings).thresholds)
        said = [json.loads(record.value or b"") for record in records]
        assert {one["version"] for one in said} == {one.version for one in policies}
        newest = policies[-1]
        assert (said[-1]["version"], said[-1]["lambda"]) == (newest.version, newest.threshold)


@pytest.fixture
def place(
    kafka_broker: KafkaBroker, migrated_database_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(migrated_database_url, kafka_broker, topic_prefix, tmp_path, stack)


def opened(place: Place) -> None:
    """A person has put a first threshold in force."""
    place.gate.now = datetime.now(UTC)
    place.gate.label(place.gate.decide(200), bad_below(0.2))
    place.gate.open()


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
        one.wait_until_killed(90)
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


def leaders(*processes: WorkerProcess) -> list[WorkerProcess]:
    return [one for one in processes if one.metrics()["streamer_recalibrator_leader"] == 1]


def runs_now(place: Place) -> bool:
    try:
        with place.store.leases.of_gate(GATE, wait_seconds=0):
            return False
    except GateBusy:
        return True


@pytest.mark.slow
def test_two_at_once_make_one_policy_a_decision_and_one_takes_over(place: Place) -> None:
    opened(place)
    # Whoever leads comes to its third run and no further.
    two = [place.start(STREAMER_FAILPOINTS="before_record=sleep:60@3") for _ in range(2)]
    for one in two:
        one.wait_until_ready()
    wait_until(lambda: len(leaders(*two)) == 1, "one leads", 30)
    (leader,) = leaders(*two)
    (other,) = [one for one in two if one is not leader]
    version, runs = place.version, len(place.runs())
    place.label_more(0.8)
    wait_until(lambda: place.version > version, "there is a new policy", 60)
    shown = f'streamer_calibration_new_groups{{gate="{GATE}"}}'
    wait_until(lambda: leader.metrics().get(shown) == 0, "the leader has read them", 30)
    assert (place.version, len(place.runs())) == (version + 1, runs + 1)
    assert not [name for name in other.metrics() if "gate=" in name], "who stands by shows no gate"
    assert other.unready() == ""
    place.label_more(0.8)
    wait_until(lambda: len(place.runs()) == runs + 2, "the leader goes on", 60)
    place.label_more(0.95)
    wait_until(lambda: runs_now(place), "it is in the middle of a run", 30)
    rounds = "streamer_recalibrator_round_timestamp_seconds"
    looked = leader.metrics()[rounds]
    wait_until(lambda: leader.metrics()[rounds] > looked, "it looks after all gates meanwhile", 30)
    assert leader.unready() == ""
    leader.kill()
    wait_until(lambda: leaders(other) == [other], "the other one takes over", 30)
    wait_until(lambda: len(place.runs()) == runs + 3, "and goes on where the record says", 60)
    wait_until(lambda: other.metrics().get(shown) == 0, "it shows the gate", 30)
    place.agree()
    assert other.terminate() == 0


@pytest.mark.slow
def test_a_run_by_hand_waits_for_the_one_under_way(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        place = Place(migrated_postgres_url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        version = place.version
        place.label_more(0.8)
        one = place.start(STREAMER_FAILPOINTS="before_record=sleep:3")
        wait_until(lambda: runs_now(place), "its run has the gate", 60)
        by_hand = wiring.recalibrate(place.settings, GATE, by="ana")
        assert by_hand.before.version == version + 1, "it came after the service's"
        assert by_hand.after is not None
        assert by_hand.after.version == version + 2
        one.wait_until_ready()
        place.agree()


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
        wait_until(lambda: len(place.runs()) > runs, "it runs", 60)
        one.wait_until_ready()
        rounds = "streamer_recalibrator_round_timestamp_seconds"
        first = one.metrics()[rounds]
        wait_until(lambda: one.metrics()[rounds] > first + 2.5, "it looks again, more than once", 60)
        assert len(place.runs()) == runs + 1
        place.label_more(0.9)
        wait_until(lambda: len(place.runs()) == runs + 2, "and runs when it is due again", 60)
        place.agree()


@pytest.mark.slow
def test_the_database_goes_away_and_comes_back(
    own_postgres_server: PostgresServer, kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        url = own_postgres_server.create_database()
        migrate(url)
        place = Place(url, kafka_broker, topic_prefix, tmp_path, stack)
        opened(place)
        one = place.start()
        one.wait_until_ready()
        own_postgres_server.stop()
        wait_until(lambda: "the database does not answer" in one.unready(), "it is not ready", 60)
        own_postgres_server.start()
        one.wait_until_ready()
        version = place.version
        place.label_more(0.8)
        wait_until(lambda: place.version == version + 1, "it goes on", 60)
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
        one = place.start(STREAMER_KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}")
        place.label_more(0.8)
        wait_until(lambda: place.version == first + 1, "it runs all the same", 60)
        place.label_more(0.9)
        wait_until(lambda: place.version == first + 2, "and again", 60)
        wait_until(lambda: "the broker does not answer" in one.unready(), "and says what is away", 30)
        one.kill()
        assert len(place.store.unpublished([], limit=10)) > 2
        place.start()
        place.agree()
