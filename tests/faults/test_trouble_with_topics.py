"""Topics that lose records or are made anew, a broker that is away at the start, and refusals without end."""

import threading
import time

import pytest

from streamer import wiring
from streamer.stream.ending import WorkerExit
from streamer.stream.topics import log_bounds
from tests.faults.matrix import Matrix
from tests.faults.site import Site, publish, wait_until
from tests.recorded import ledgers_of
from tests.services.kafka import KafkaBroker


@pytest.mark.long
def test_what_retention_removed_is_a_recorded_gap(
    site: Site, kafka_broker: KafkaBroker, matrix: Matrix
) -> None:
    from kafka import TopicPartition

    topic = wiring.topics(site.settings).responses
    publish(site, 0, 400)
    worker = site.start_worker()
    wait_until(lambda: site.decided() == 400, "the first batches are decided")
    worker.kill()
    publish(site, 400, 400)
    bounds = log_bounds(wiring.connection(site.settings), [topic])
    stored = {one.partition.number: one.next_offset for one in ledgers_of(site.store) if one.next_offset}
    cut = {number: (stored[number] + end) // 2 for (_, number), (_, end) in bounds.items()}
    admin = kafka_broker.admin()
    try:
        admin.delete_records({TopicPartition(topic, number): offset for number, offset in cut.items()})
    finally:
        admin.close()
    lost = sum(cut[number] - stored[number] for number in cut)
    assert lost > 100
    second = site.start_worker()
    wait_until(lambda: site.decided() == 800 - lost, "what is left is decided")
    publish(site, 800, 100)
    wait_until(lambda: site.decided() == 900 - lost, "it goes on")
    found = site.check(gaps_expected=True)
    matrix.add("16 retention cut in before the worker (recorded as gaps)", found)
    assert found.decisions == 900 - lost
    gaps = {one.partition.number: one.gaps for one in ledgers_of(site.store) if one.gaps}
    assert gaps == {number: ((stored[number], cut[number] - 1),) for number in cut}
    assert second.log_tail(100_000).count("data_gap") == len(cut)
    assert second.terminate() == 0


def test_a_topic_made_anew_is_refused_with_what_to_do(site: Site, kafka_broker: KafkaBroker) -> None:
    topic = wiring.topics(site.settings).responses
    publish(site, 0, 200)
    worker = site.start_worker()
    wait_until(lambda: site.decided() == 200, "the first batches are decided")
    kafka_broker.delete_topics([topic])
    time.sleep(1)
    kafka_broker.create_topic(topic, site.settings.kafka.partitions)
    publish(site, 200, 400)  # past the stored progress of every partition
    assert worker.process.wait(240) == WorkerExit.LOG_RECREATED, worker.log_tail()
    assert f"the topic {topic} was deleted and recreated" in worker.log_tail()
    assert "new prefix" in worker.log_tail()
    assert not site.store.evidence.log_faults()


@pytest.mark.long
def test_a_broker_that_is_away_at_the_start_is_waited_for(
    own_site: Site, own_kafka_broker: KafkaBroker, matrix: Matrix
) -> None:
    publish(own_site, 0, 300)
    own_kafka_broker.kill()
    workers = [own_site.start_worker(), own_site.start_worker()]
    time.sleep(3)
    for worker in workers:
        assert worker.process.poll() is None, worker.log_tail()
        assert "the broker" in worker.unready()
    back = threading.Thread(target=own_kafka_broker.start)
    back.start()
    began = time.monotonic()
    back.join(240)
    wait_until(lambda: own_site.decided() == 300, "all batches are decided")
    seconds = time.monotonic() - began
    for worker in workers:
        worker.wait_until_ready()
    found = own_site.check()
    assert found.decisions == 300
    matrix.add("4 broker away at the start", found, seconds=seconds)
    assert [worker.terminate() for worker in workers] == [0, 0]


@pytest.mark.long
def test_refusals_without_end_stop_the_worker_and_nothing_is_lost(site: Site, matrix: Matrix) -> None:
    topic = wiring.topics(site.settings).responses
    publish(site, 0, 50)
    with wiring.publisher(site.settings) as publisher:
        for number in range(1500):
            publisher.send(topic, b"rubbish %d" % number, key=b"flood")
    publish(site, 50, 50)
    ends: list[int] = []
    while site.recorded() < 1600:
        worker = site.start_worker(
            STREAMER_WORKER_DEAD_LETTER_MAX_RUN="500", STREAMER_WORKER_COMMIT_MAX_RECORDS="400"
        )
        wait_until(lambda: worker.ended or site.recorded() == 1600, "it halts, or all is recorded")  # noqa: B023
        if worker.ended:
            ends.append(worker.process.returncode)
            assert "streamer dead-letters list" in worker.log_tail()
            assert "500 records in a row were refused" in worker.log_tail()
    assert ends, "the cap was never passed"
    assert set(ends) == {WorkerExit.DEAD_LETTER_CAP}
    site.start_worker()  # a worker that halted leaves what it had recorded to the next one to publish
    found = site.check()
    assert (found.decisions, found.dead_letters) == (100, 1500)
    matrix.add(f"8 a flood of rubbish: the cap halted {len(ends)} workers", found)
