"""Making, checking, measuring, filling and following topics."""

import asyncio
import time
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient

from streamer.errors import Unavailable, UsageError
from streamer.stream.connection import KafkaConnection
from streamer.stream.embedded_broker import EmbeddedBroker
from streamer.stream.publisher import Publisher
from streamer.stream.tail import Tail
from streamer.stream.topics import TopicPlan, check_topics, cluster_id, create_topics, log_bounds, topic_id
from tests.faults.site import wait_until
from tests.integration.stream.brokers import TestedBroker
from tests.integration.stream.deciders import EchoDecider
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.running import a_worker, all_records, numbered, published

LIMIT = 1024 * 1024 + 64 * 1024


@pytest.mark.kafka
def test_topics_are_made_as_planned_and_differences_are_named(real: TestedBroker) -> None:
    good = TopicPlan(name=real.prefix + "good", partitions=3, max_message_bytes=LIMIT, replication=1)
    compacted = TopicPlan(name=real.prefix + "c", partitions=1, max_message_bytes=LIMIT, compacted=True)
    plans = [good, compacted]
    assert [str(one) for one in check_topics(real.connection, plans)] == [
        f"{good.name}: the topic is missing, should be there",
        f"{compacted.name}: the topic is missing, should be there",
    ]
    assert create_topics(real.connection, plans) == [good.name, compacted.name]
    assert create_topics(real.connection, plans) == []
    assert check_topics(real.connection, plans) == []
    wanted = [
        TopicPlan(name=good.name, partitions=5, max_message_bytes=LIMIT * 2, replication=3),
        TopicPlan(name=compacted.name, partitions=1, max_message_bytes=LIMIT // 2),
    ]
    assert [str(one) for one in check_topics(real.connection, wanted)] == [
        f"{good.name}: the number of partitions is 3, should be 5",
        f"{good.name}: replication is 1, should be 3",
        f"{good.name}: max.message.bytes is {LIMIT}, should be {LIMIT * 2}",
        f"{compacted.name}: cleanup.policy is compact, should be delete",
    ]


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("name", "replication", "why"),
    [
        ("no such/name", 1, "InvalidTopicError: "),
        ("", 1, "InvalidTopicError: "),
        ("fine", 3, "InvalidReplicationFactorError: "),
    ],
)
def test_a_topic_that_the_broker_refuses_is_a_usage_error(
    real: TestedBroker, name: str, replication: int, why: str
) -> None:
    plan = TopicPlan(name=name, partitions=1, max_message_bytes=LIMIT, replication=replication)
    with pytest.raises(UsageError) as refused:
        create_topics(real.connection, [plan])
    said = str(refused.value)
    assert said.startswith(f"the broker refuses the topic {name}: {why}")
    assert "Request" not in said, "the broker's reason suffices"


@pytest.mark.kafka
def test_a_recreated_topic_has_another_id(real: TestedBroker) -> None:
    plan = TopicPlan(name=real.prefix + "again", partitions=1, max_message_bytes=LIMIT, replication=1)
    assert topic_id(real.connection, plan.name) is None
    create_topics(real.connection, [plan])
    before = topic_id(real.connection, plan.name)
    assert before is not None
    assert topic_id(real.connection, plan.name) == before
    admin = KafkaAdminClient(**real.connection.for_kafka_python(KafkaAdminClient))
    admin.delete_topics([plan.name])
    admin.close()
    wait_until(lambda: topic_id(real.connection, plan.name) is None, "it is deleted")
    create_topics(real.connection, [plan])
    assert topic_id(real.connection, plan.name) not in (None, before)


def test_the_embedded_broker_gives_topics_no_ids(embedded: TestedBroker) -> None:
    assert topic_id(embedded.connection, embedded.topic("t")) is None


def test_what_is_published_can_be_followed_and_measured(broker: TestedBroker) -> None:
    topic = broker.topic("t", 4)
    with Publisher(broker.connection, max_request_size=LIMIT) as publisher:
        publisher.send(topic, b"before", key=b"k")
    with Tail(broker.connection, topic) as tail:
        sent = [(b"%d" % n, b"v%d" % n, (("h", b"1"),)) for n in range(1200)]
        with Publisher(broker.connection, max_request_size=LIMIT) as publisher:
            for key, value, headers in sent:
                publisher.send(topic, value, key=key, headers=headers)
        seen = list(tail.records(limit=1200, seconds=240))
        assert list(tail.records(idle=0.3)) == []
    assert {(one.key, one.value, one.headers) for one in seen} == set(sent)
    assert len({one.partition for one in seen if one.key == b"7"}) == 1
    bounds = log_bounds(broker.connection, [topic, broker.prefix + "absent"])
    assert sum(end - earliest for earliest, end in bounds.values()) == 1201
    assert len(all_records(broker.connection, topic)) == 1201


def test_a_slow_publisher_waits_for_what_it_sent_a_while_ago(embedded: TestedBroker) -> None:
    topic = embedded.topic("t")
    with Publisher(embedded.connection, max_request_size=LIMIT) as publisher:
        publisher.send(topic, b"first")
        time.sleep(0.6)
        publisher.send(topic, b"second")  # so both are acknowledged, though nobody called flush
        ends = log_bounds(embedded.connection, [topic]).values()
        assert sum(end for _, end in ends) == 2


def test_a_message_that_is_too_large_is_a_usage_error(embedded: TestedBroker) -> None:
    topic = embedded.topic("t")
    with (
        pytest.raises(UsageError, match="larger than"),
        Publisher(embedded.connection, max_request_size=LIMIT) as publisher,
    ):
        publisher.send(topic, b"x" * LIMIT)


@pytest.mark.expected_errors(r"^kafka\.net\.")
def test_nobody_there_is_unavailable() -> None:
    nowhere = KafkaConnection("127.0.0.1:1", {"bootstrap.timeout.ms": "300"})
    with pytest.raises(Unavailable):
        cluster_id(nowhere)
    with pytest.raises(Unavailable), Tail(nowhere, "t"):
        pass


def test_a_topic_that_is_not_there_cannot_be_followed(real: TestedBroker) -> None:
    with pytest.raises(UsageError, match="no topic"), Tail(real.connection, real.prefix + "absent"):
        pass


def test_each_start_of_the_embedded_broker_is_a_new_log() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.bootstrap
    identities = set()
    for _ in range(2):
        broker.start(topics=["a"])
        identities.add(broker.log_id)
        assert log_bounds(broker.connection, ["a"]) == {("a", number): (0, 0) for number in range(4)}
        broker.stop()
    assert len(identities) == 2
    assert all(identity.startswith("embedded-") for identity in identities)


def test_without_confluent_kafka_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(UsageError, match=r"pip install 'conformal-streamer\[demo\]'"):
        EmbeddedBroker().start()


@pytest.mark.kafka
@pytest.mark.expected_errors(r"aiokafka\.(cluster|consumer\.group_coordinator): ")
async def test_a_topic_is_read_seconds_after_it_appears(real: TestedBroker):
    source, actions = real.prefix + "in", real.topic("actions")
    journal = MemoryJournal()
    # Somebody looks long before the metadata is old.
    hour = {"metadata.max.age.ms": "3600000"}
    real = replace(real, connection=replace(real.connection, properties=hour))

    async with a_worker(real, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: worker.health.unready() != ["the broker has not answered yet"])
        await asyncio.sleep(6)
        assert worker.health.unready(), "it reads nothing, and says that it is ready"
        real.topic("in")
        await published(real.connection, source, numbered(100))
        await worker.until(lambda: journal.total() == 100)
        await worker.until(lambda: not worker.health.unready())
