"""The main job on real Kafka and real PostgreSQL, with the worker killed in the middle."""

import pytest

from streamer import wiring
from tests.faults import oracle
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, events, publish, wait_until
from tests.services.kafka import KafkaBroker


def test_killed_as_one_group_is_decided_and_the_one_before_is_in_its_transaction(site: Site) -> None:
    publish(site, 0, 300)
    worker = site.start_worker(STREAMER_FAILPOINTS="in_transaction=sleep:1@*,while_scoring=kill@3")
    worker.wait_until_killed()
    decided = site.decided()
    assert 0 < decided < 300, "the first group is recorded, and not the others"
    again = site.start_worker()
    wait_until(lambda: site.decided() == 300, "a new worker decides what was left")
    found = site.check()
    assert found.decisions == 300
    assert found.duplicates == found.dead_letters == 0
    again.wait_until_ready()
    assert again.metrics()[f'streamer_policy_version{{gate="{GATE}"}}'] == 2
    assert again.terminate() == 0


@pytest.mark.long
def test_an_aborted_and_a_committed_transaction_in_between(
    site: Site, kafka_broker: KafkaBroker, matrix: Matrix
) -> None:
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
    matrix.add("16 transactional publishers, with a kill", found)


def test_repeated_and_conflicting_batches_and_bad_bytes_among_good_ones(site: Site, matrix: Matrix) -> None:
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
    matrix.add("7 the same again, and with other content", found)
    letters = oracle.read_all(wiring.connection(site.settings), dead)
    assert sorted(r.value or b"" for r in letters) == sorted(
        [
            *(v for _, v in other), b"", b"", b"\xff\xfe", b"not json", b"\x00\x00\x00\x00\x01{}",
            b"[" * 200_000,
        ]
    )  # fmt: skip
