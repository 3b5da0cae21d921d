"""The main job on real Kafka and real PostgreSQL, with the worker killed in the middle."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamer import wiring
from streamer.calibration import Threshold
from streamer.policy import GateSettings
from streamer.recalibration.run import CalibrationRun, Candidate
from streamer.settings import Settings, load_settings
from tests.faults import oracle
from tests.faults.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamer.store import Store
    from tests.services.kafka import KafkaBroker

GATE = "crash-test"


@dataclass
class Site:
    """Settings, a store, and workers that end with the test."""

    settings: Settings
    environment: dict[str, str]
    store: Store
    directory: Path
    stack: ExitStack
    started: int = field(default=0)

    def start_worker(self) -> WorkerProcess:
        self.started += 1
        worker = WorkerProcess(self.environment, self.directory / f"worker-{self.started}.log")
        self.stack.callback(worker.close)
        return worker

    def decided(self) -> int:
        return self.store.reports.decided_and_shipped(GATE)[0]

    def check(self) -> oracle.Findings:
        wait_until(lambda: self.store.reports.outbox_pending() == 0, "the outbox is empty")
        return oracle.check(self.store, wiring.connection(self.settings), wiring.topics(self.settings))


def put_in_force(store: Store, cut: float) -> None:
    """Give the gate a threshold that no labels found, so that batches ship from the first one on."""
    gate, now = store.gates.get(GATE), wiring.now()
    threshold = Threshold(
        state="cut", value=cut, alpha=gate.settings.alpha, method=gate.settings.method, groups=0, guarantee=""
    )
    run = CalibrationRun(
        gate=gate,
        groups=(),
        labelled_groups=(),
        candidates=(Candidate(method=gate.settings.method, threshold=threshold),),
        effective_alpha=gate.settings.alpha,
        seed=gate.seed,
        older_than=now,
        started_at=now,
    )
    store.calibration.record_run(run, guarantee="", by="test", reason="test", now=now)


def wait_until(reached: Callable[[], bool], what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def site(
    kafka_broker: KafkaBroker, postgres_database_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Site]:
    environment = {
        "STREAMER_KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap,
        "STREAMER_KAFKA_TOPIC_PREFIX": topic_prefix,
        "STREAMER_KAFKA_GROUP_ID": f"{topic_prefix}workers",
        "STREAMER_DATABASE_URL": postgres_database_url,
        "STREAMER_ENCODER_NAME": "none",
        "STREAMER_LOGGING_FORMAT": "json",
    }
    settings = load_settings(
        kafka={
            "bootstrap_servers": kafka_broker.bootstrap,
            "topic_prefix": topic_prefix,
            "replication_factor": 1,
        },
        database={"url": postgres_database_url},
    )
    wiring.migrate(settings)
    wiring.create_topics(settings)
    with ExitStack() as stack:
        store = stack.enter_context(wiring.open_store(settings))
        store.gates.create(
            GATE,
            GateSettings(
                encoder="event", mode="enforce", audit_probability=0.5, audit_draws=2, unit="response"
            ),
            by="test",
            reason="test",
        )
        put_in_force(store, 0.6)
        yield Site(settings, environment, store, tmp_path, stack)


def events(first: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of batches of four responses with embeddings of their own, so that no encoder is needed."""
    for number in range(first, first + count):
        rng = np.random.default_rng(number)
        centre = rng.normal(size=16)
        event: dict[str, Any] = {
            "schema": "streamer.responses.v1",
            "gate": GATE,
            "batch_id": f"batch-{number}",
            "prompt": f"question {number}",
            "responses": [
                {
                    "id": f"r{i}",
                    "text": f"answer {i}",
                    "embedding": (centre + rng.normal(size=16)).round(4).tolist(),
                }
                for i in range(4)
            ],
        }
        yield str(number).encode(), json.dumps(event).encode()


def publish(site: Site, first: int, count: int) -> None:
    topic = wiring.topics(site.settings).responses
    with wiring.publisher(site.settings) as publisher:
        for key, value in events(first, count):
            publisher.send(topic, value, key=key)


def test_two_thousand_batches_with_a_kill_in_the_middle(site: Site) -> None:
    publish(site, 0, 1000)
    first = site.start_worker()
    wait_until(lambda: site.decided() >= 300, "300 batches are decided")
    publish(site, 1000, 1000)
    first.kill()
    assert site.decided() < 2000, "the kill came too late to be one in the middle"
    second = site.start_worker()
    wait_until(lambda: site.decided() == 2000, "all batches are decided")
    found = site.check()
    assert found.decisions == 2000
    assert found.dead_letters == found.duplicates == 0
    second.wait_until_ready()
    assert second.metrics()[f'streamer_policy_version{{gate="{GATE}"}}'] == 2
    assert second.terminate() == 0


def test_an_aborted_and_a_committed_transaction_in_between(site: Site, kafka_broker: KafkaBroker) -> None:
    from confluent_kafka import Producer

    topic = wiring.topics(site.settings).responses
    publish(site, 0, 900)
    worker = site.start_worker()
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": f"{topic}.test", "log_level": 0}
    )
    producer.init_transactions(30)
    for first, commit in ((5000, False), (900, True), (6000, False)):
        producer.begin_transaction()
        for key, value in events(first, 100):
            producer.produce(topic, value, key=key)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    wait_until(lambda: site.decided() >= 300, "300 batches are decided")
    worker.kill()
    publish(site, 1000, 1000)
    site.start_worker()
    wait_until(lambda: site.decided() >= 2000, "all committed batches are decided")
    found = site.check()
    assert found.decisions == 2000, "an aborted batch was decided, or a committed one was not"
    assert set(site.store.reports.decided_batches(GATE)) == {f"batch-{i}" for i in range(2000)}


def test_repeated_and_conflicting_batches_and_bad_bytes_among_good_ones(site: Site) -> None:
    topic = wiring.topics(site.settings).responses
    good = list(events(0, 200))
    other = [(key, value.replace(b"question", b"riddle")) for key, value in good[:20]]
    with wiring.publisher(site.settings) as publisher:
        for key, value in good:
            publisher.send(topic, value, key=key)
        for key, value in good[:50]:
            publisher.send(topic, value, key=key)
        for key, value in other:
            publisher.send(topic, value, key=key)
        for value in (None, b"", b"\xff\xfe", b"not json", b"\x00\x00\x00\x00\x01{}", b"[" * 200_000):
            publisher.send(topic, value, key=b"bad")
    site.start_worker()
    wait_until(lambda: site.decided() == 200, "the good batches are decided")
    dead = wiring.topics(site.settings).dead_letters
    wait_until(lambda: len(site.store.dead_letters.list()) == 26, "26 messages are refused")
    found = site.check()
    assert (found.decisions, found.duplicates, found.dead_letters) == (200, 50, 26)
    assert found.republished == 50
    letters = oracle.read_all(wiring.connection(site.settings), dead)
    assert sorted(r.value or b"" for r in letters) == sorted(
        [
            *(v for _, v in other),
            b"",
            b"",
            b"\xff\xfe",
            b"not json",
            b"\x00\x00\x00\x00\x01{}",
            b"[" * 200_000,
        ]
    )


def test_sigterm_drains_and_a_new_worker_goes_on(site: Site) -> None:
    publish(site, 0, 600)
    worker = site.start_worker()
    wait_until(lambda: site.decided() >= 100, "100 batches are decided")
    assert worker.terminate() == 0
    done = site.decided()
    publish(site, 600, 200)
    site.start_worker()
    wait_until(lambda: site.decided() == 800, "all batches are decided")
    found = site.check()
    assert found.decisions == 800
    assert done <= 800
