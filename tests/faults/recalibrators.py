"""A record with one labelled gate, and recalibrators in processes of their own."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from streamer import wiring
from streamer.settings.settings import load_settings
from streamer.store.db.leases import GateBusy
from streamer.store.db.schema import leases
from tests.faults import oracle
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE, LabelledGate, bad_below
from tests.services.kafka import KafkaBroker

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
        self._database = world.store._database
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

    def expire_leases(self) -> None:
        """Let what a killed process held be free at once, in place of twelve seconds later."""
        with self._database.engine.begin() as connection:
            connection.execute(sa.update(leases).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))

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
        wait_until(lambda: not self.store.unpublished([], limit=1), "everything is published")
        policies = self.store.policies.list(GATE)
        assert [one.version for one in policies] == list(range(1, len(policies) + 1))
        applied = [row.id for row in self.runs() if row.outcome == "applied"]
        # A change of other settings carries the run over.
        assert applied == sorted({one.calibration_run for one in policies if one.calibration_run is not None})
        for run in applied:
            assert self.store.calibration.inputs(run)
        events = self.store.policies.events(GATE)
        wanted = [one.version for one in policies[:-1]]
        assert [one.version for one in events if one.event == "superseded"] == wanted
        assert self.store.evidence.log_faults() == []
        records = oracle.read_all(wiring.connection(self.settings), wiring.topics(self.settings).thresholds)
        said = [json.loads(record.value or b"") for record in records]
        assert {one["version"] for one in said} == {one.version for one in policies}
        newest = policies[-1]
        assert (said[-1]["version"], said[-1]["lambda"]) == (newest.version, newest.threshold)


def opened(place: Place) -> None:
    """A person has put a first threshold in force."""
    place.gate.now = datetime.now(UTC)
    place.gate.label(place.gate.decide(200), bad_below(0.2))
    place.gate.open()


def leaders(*processes: WorkerProcess) -> list[WorkerProcess]:
    return [one for one in processes if one.metrics()["streamer_recalibrator_leader"] == 1]


def runs_now(place: Place) -> bool:
    try:
        with place.store.leases.of_gate(GATE, wait_seconds=0):
            return False
    except GateBusy:
        return True
