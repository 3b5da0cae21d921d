"""What is bounded stays bounded: memory under a long lag, the queue before a slow database."""

import time

import pytest
from confluent_kafka import Producer

from streamer import wiring
from tests.faults.matrix import Matrix
from tests.faults.site import Site, publish, wait_until
from tests.faults.worker_process import WorkerProcess

LAG = 1_000_000
MOST = 256 * 2**20
"""Bytes that a worker without an encoder may have in memory, however long the log is; its buffer is 64 MiB of that."""


def _most_resident(worker: WorkerProcess, seconds: float) -> int:
    most = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert not worker.ended, worker.log_tail()
        most = max(most, worker.resident_bytes())
        time.sleep(0.2)
    return most


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_lag_of_a_million_does_not_fill_the_memory(site: Site) -> None:
    producer = Producer(
        {"bootstrap.servers": site.settings.bootstrap_servers, "log_level": 0, "linger.ms": 50}
    )
    topic = wiring.topics(site.settings).responses
    for number in range(LAG):
        while True:
            try:
                producer.produce(topic, b'{"n":%d}' % number, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    worker = site.start_worker(
        STREAMER_WORKER_DEAD_LETTER_MAX_RUN="10000000", STREAMER_WORKER_DEAD_LETTER_MAX_RATIO="1"
    )
    wait_until(lambda: site.recorded() > 1000, "it works")
    began, before = time.monotonic(), site.recorded()
    most = _most_resident(worker, 60)
    done = site.recorded() - before
    assert site.recorded() < LAG, "the lag was gone before its end"
    print(
        f"\n{LAG} small records waiting: at most {most / 2**20:.0f} MiB resident, "
        f"{done / (time.monotonic() - began):.0f} records/s"
    )
    assert most < MOST


@pytest.mark.long
def test_a_slow_database_slows_reading_and_grows_no_queue(site: Site) -> None:
    # Each transaction takes three tenths of a second more; groups of at most 20 then make some 60 records a second.
    worker = site.start_worker(
        STREAMER_FAILPOINTS="in_transaction=sleep:0.3@*",
        STREAMER_WORKER_COMMIT_MAX_RECORDS="20",
        STREAMER_WORKER_BUFFER_MAX_RECORDS="100",
    )
    worker.wait_until_ready()
    publish(site, 0, 1000)
    wait_until(lambda: site.decided() > 0, "it works")
    before = worker.resident_bytes()
    most = _most_resident(worker, 2)
    assert site.decided() < 500
    assert most - before < 32 * 2**20
    waiting = sum(
        value for name, value in worker.metrics().items() if name.startswith("streamer_consumer_lag_records")
    )
    assert waiting > 300, "what waits, waits in Kafka, and the lag tells of it"
    assert worker.terminate(240) == 0
    site.start_worker()
    wait_until(lambda: site.decided() == 1000, "without the delay all is decided")
    assert site.check().decisions == 1000


@pytest.mark.timeout(600)
def test_a_slow_commit_makes_no_small_groups(site: Site, matrix: Matrix) -> None:
    # Every transaction takes 1.1 seconds more, whatever is in it.
    publish(site, 0, 3000)
    worker = site.start_worker(STREAMER_FAILPOINTS="in_transaction=sleep:1.1@*")
    wait_until(lambda: site.decided() > 0, "it works")
    began = time.monotonic()
    wait_until(lambda: site.decided() == 3000, "everything is decided", 150)
    seconds = time.monotonic() - began
    groups = worker.metrics()['streamer_stage_duration_seconds_count{stage="commit"}']
    print(
        f"\n3000 records at 1.1 s a commit: {groups:.0f} groups, {3000 / seconds:.0f} records/s after the first"
    )
    # 16, 32 or 8, then four times the largest one each time: 3 of 1000 are the fewest. On a busy machine some are of what has
    # been read by then. Were they to stay as small as they begin, there would be 94 or more.
    assert groups <= 30
    assert worker.terminate(240) == 0
    matrix.add(
        "19 a database that takes 1.1 s a commit, 3,000 records waiting", site.check(), seconds=seconds
    )
