"""Whole topics, read to where they ended: nothing is missed, and what holds a reader up is no end."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaProducer

from streamer.stream import tail
from streamer.stream.publisher import Publisher
from streamer.stream.tail import KafkaLog
from tests.integration.stream.brokers import TestedBroker

LIMIT = 1024 * 1024 + 64 * 1024
SENT = 1200


class Clock:
    """A clock that goes when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def sent(broker: TestedBroker, partitions: int = 1) -> str:
    topic = broker.topic("t", partitions)
    with Publisher(broker.connection, max_request_size=LIMIT) as publisher:
        for number in range(SENT):
            publisher.send(topic, b"%d" % number, key=b"%d" % number)
    return topic


def whole(log: KafkaLog, topic: str) -> Iterator[int]:
    ends = {number: end for number, (_, end) in log.bounds(topic).items()}
    return (int(record.value or b"") for record in log.read(topic, ends))


def test_a_caller_that_takes_its_time_misses_nothing(
    broker: TestedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, clock = sent(broker), Clock()
    monkeypatch.setattr(tail, "time", clock)
    found = []
    for number in whole(KafkaLog(broker.connection, log_id="l"), topic):
        found.append(number)
        clock.now += 100  # as a slow database does
    assert sorted(found) == list(range(SENT))


def test_several_partitions_are_read_whole_and_an_empty_one_ends_at_once(broker: TestedBroker) -> None:
    log = KafkaLog(broker.connection, log_id="l")
    assert sorted(whole(log, sent(broker, 4))) == list(range(SENT))
    assert list(whole(log, broker.topic("empty", 2))) == []


@pytest.mark.kafka
def test_aborted_and_open_transactions_are_holes_and_keep_nobody_waiting(
    real: TestedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_PATIENCE_SECONDS", 5.0)
    topic = real.topic("t", 1)
    producer: Any = KafkaProducer(
        **real.connection.for_kafka_python(KafkaProducer), transactional_id=f"{topic}-transactions"
    )
    producer.init_transactions()
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number)
        producer.flush()
        ends()
    log = KafkaLog(real.connection, log_id="l")
    assert list(whole(log, topic)) == [0, 2]
    producer.begin_transaction()
    producer.send(topic, b"9")
    producer.flush()
    assert list(whole(log, topic)) == [0, 2]
    producer.abort_transaction()
    producer.close()
