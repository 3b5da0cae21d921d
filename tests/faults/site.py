"""A place of work for fault tests: topics, a database, a gate that ships, and workers that end with the test."""

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from streamer import wiring
from streamer.calibration import Threshold
from streamer.gates.rule import INDICATOR, Rule
from streamer.gates.settings import GateSettings
from streamer.recalibration.age_cut import choose
from streamer.recalibration.candidates import Candidate
from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.recalibration.run import CalibrationRun, NothingToCalibrate
from streamer.settings.settings import Settings, load_settings
from streamer.store import Store
from streamer.store.db.schema import outcomes
from tests.faults import oracle
from tests.faults.worker_process import WorkerProcess
from tests.made import a_batch
from tests.migrated import migrated
from tests.services.kafka import KafkaBroker
from tests.services.service_forks import FORKS, ServiceForks

GATE = "crash-test"


@dataclass
class Site:
    """Settings, a store, and workers that end with the test."""

    settings: Settings
    environment: dict[str, str]
    store: Store
    directory: Path
    stack: ExitStack
    workers: list[WorkerProcess] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def start_worker(
        self, *, program: Sequence[str] = (), forks: ServiceForks = FORKS, **settings: str
    ) -> WorkerProcess:
        """A new worker process; its settings are the site's, and those given."""
        log = self.directory / f"worker-{next(self._numbers)}.log"
        worker = WorkerProcess(self.environment | settings, log, program=program, forks=forks)
        self.workers.append(worker)
        self.stack.callback(worker.close)
        return worker

    def start_recalibrator(self) -> WorkerProcess:
        """A new recalibrator process with the site's settings."""
        log = self.directory / f"recalibrator-{next(self._numbers)}.log"
        one = WorkerProcess(self.environment, log, service="recalibrator")
        self.stack.callback(one.close)
        return one

    def command(
        self,
        *arguments: str,
        status: int = 0,
        seconds: float = 240,
        forks: ServiceForks = FORKS,
        **settings: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run `streamer ...` with the site's settings, and those given, forked as services are; it must succeed."""
        done = forks.run(
            arguments, environment=self.whole_environment() | settings, folder=self.directory, seconds=seconds
        )
        assert done.returncode == status, done.stderr + done.stdout[-3000:]
        return done

    def whole_environment(self) -> dict[str, str]:
        """The environment of a process with the site's settings."""
        return os.environ | self.environment

    def decided(self) -> int:
        """How many batches have a decision."""
        return self.store.reports.decided_and_shipped(GATE)[0]

    def recorded(self) -> int:
        """How many offsets have an outcome, of whatever kind."""
        with self.store._database.engine.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(outcomes)).scalar_one()

    def check(self, **expected: Any) -> oracle.Findings:
        """What the oracle finds once nothing waits any more."""
        pending = self.store.reports.outbox_pending
        if pending() and self.workers and all(one.ended for one in self.workers):
            self.start_worker()  # a stop waits two seconds for the outbox; the next owner publishes the rest
        wait_until(lambda: pending() == 0, "the outbox is empty", progress=pending)
        return oracle.check(
            self.store, wiring.connection(self.settings), wiring.topics(self.settings), **expected
        )


@contextmanager
def empty_site(
    broker: KafkaBroker, database_url: str, prefix: str, directory: Path, stack: ExitStack
) -> Iterator[Site]:
    """Make the topics and the schema."""
    environment = {
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "STREAMER_KAFKA_TOPIC_PREFIX": prefix,
        "STREAMER_KAFKA_GROUP_ID": f"{prefix}workers",
        "STREAMER_KAFKA_REPLICATION_FACTOR": "1",
        "STREAMER_DATABASE_URL": database_url,
        # A worker that was killed is missed soon. Heartbeats come every second.
        "STREAMER_KAFKA_PROPERTIES_SESSION_TIMEOUT_MS": "3000",
        "STREAMER_ENCODER_NAME": "none",
        "STREAMER_LOGGING_FORMAT": "json",
    }
    settings = load_settings(
        kafka={
            "bootstrap_servers": broker.bootstrap,
            "topic_prefix": prefix,
            "replication_factor": 1,
            # The broker that a test asks is there, however long it takes to answer on a busy machine.
            "properties": {"bootstrap_timeout_ms": "120000"},
        },
        database={"url": database_url},
    )
    migrated(settings)
    wiring.create_topics(settings)
    with wiring.open_store(settings) as store:
        try:
            yield Site(settings, environment, store, directory, stack)
        finally:
            stack.close()  # workers end before the store does


@contextmanager
def a_site(
    broker: KafkaBroker, database_url: str, prefix: str, directory: Path, stack: ExitStack
) -> Iterator[Site]:
    """Make the topics and the schema, and a gate with a cut in force."""
    with empty_site(broker, database_url, prefix, directory, stack) as one:
        one.store.gates.create(
            GATE,
            GateSettings(
                encoder="external:made-up", embeddings="accept", dimension=16, mode="enforce",
                audit_probability=0.5, audit_draws=2, unit="response",
            ),
            by="test",
            reason="test",
        )  # fmt: skip
        put_in_force(one.store, 0.6)
        yield one


def put_in_force(store: Store, cut: float, name: str = GATE) -> None:
    """Give a gate a cut that no labels found, so that batches ship from the first one on."""
    settings = store.gates.get(name).settings
    threshold = Threshold(
        state="cut", value=cut, alpha=settings.alpha, method=settings.method, groups=0, guarantee=""
    )
    record_threshold(store, name, threshold)


def record_threshold(
    store: Store, name: str, threshold: Threshold, rule: Rule = INDICATOR, *, expected: int | None = None
) -> None:
    """Record a run that found this threshold, from no labels; `expected`: the policy that must still be in force."""
    gate, now = store.gates.get(name), wiring.now()
    nothing = choose(
        [0.0], [False], pending=gate.settings.pending, earlier=[], label_deadline=0.0, deadline=1.0
    )
    try:
        honest = calibrated_now(store, name)
    except NothingToCalibrate:
        honest = CalibrationRun(
            gate=gate, groups=(), labelled_groups=(), candidates=(),
            effective_alpha=gate.settings.alpha, seed=gate.seed, older_than=now, started_at=now,
            heads=store.calibration.heads(), age_cut=replace(nothing, draws=0),
        )  # fmt: skip
    threshold = replace(threshold, groups=len(honest.labelled_groups))
    candidate = Candidate(name=gate.settings.method, decides=True, threshold=threshold, rule=rule)
    run = replace(honest, candidates=(candidate,), suffix=None)
    store.calibration.record_run(run, by="test", reason="test", now=now, expected=expected)


def calibrated_now(store: Store, name: str = GATE) -> CalibrationRun:
    """What a calibration of the gate would find and read at this moment."""
    return recalibrate_by_hand(
        store.calibration, store.policies, store.gates.get(name), clock=wiring.now, by="test",
        reason="test", dry_run=True,
    ).run  # fmt: skip


def wait_until(
    reached: Callable[[], bool], what: str, seconds: float = 240, *, progress: Callable[[], int] | None = None
) -> None:
    """Ask until it is so, for so many seconds; with `progress`, for so many after what it counts last moved."""
    began, seen = time.monotonic(), None
    deadline = began + seconds
    while not reached():
        if progress is not None and (now := progress()) != seen:
            deadline, seen = time.monotonic() + seconds, now
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what} (stands at {seen})"
        # Asking costs a query: the longer it has waited, the less often.
        time.sleep(0.25 if progress is not None else min(0.25, 0.05 + (time.monotonic() - began) / 20))


def event(number: int, **changes: Any) -> bytes:
    """A batch of four responses with embeddings of their own, so that no encoder is needed."""
    rng = np.random.default_rng(number)
    centre = rng.normal(size=16)
    answers = [
        {"id": f"r{i}", "text": f"answer {i}", "embedding": (centre + rng.normal(size=16)).round(4).tolist()}
        for i in range(4)
    ]
    return a_batch(GATE, number, (), **{"embedding_encoder": "made-up", "responses": answers} | changes)


def events(first: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of batches."""
    for number in range(first, first + count):
        yield str(number).encode(), event(number)


def publish(site: Site, first: int, count: int) -> None:
    """Publish batches and wait until the broker has them."""
    topic = wiring.topics(site.settings).responses
    with wiring.publisher(site.settings) as publisher:
        for key, value in events(first, count):
            publisher.send(topic, value, key=key)
