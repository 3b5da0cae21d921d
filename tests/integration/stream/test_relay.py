"""The relay's lanes: what becomes of one topic or partition does not hold up the others."""

import asyncio
import random
import shutil

import pytest
from aiokafka.partitioner import murmur2
from kafka.admin import NewPartitions

from streamer.journal import Lease, OutboxMessage
from streamer.stream import relay_lane
from streamer.stream.connection import KafkaConnection
from tests.integration.stream.brokers import TestedBroker
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.relaying import MOST_BEHIND, SOURCE, a_relay
from tests.integration.stream.running import all_records
from tests.services.kafka import KafkaBroker

NOT_FOUND = r"aiokafka\.cluster: Topic .* (not found|is not available)"


def keys_of(partition: int, partitions: int, count: int) -> list[bytes]:
    """Keys that the producer puts into one partition."""
    found = (b"key-%d" % number for number in range(10_000))
    return [key for key in found if (murmur2(key) & 0x7FFFFFFF) % partitions == partition][:count]


@pytest.mark.kafka
@pytest.mark.expected_errors(NOT_FOUND)
async def test_a_topic_that_is_missing_holds_up_nobody_else(real: TestedBroker):
    actions, control = real.topic("actions"), real.topic("control")
    missing = real.prefix + "missing"

    async with (
        a_relay(real.connection, MemoryJournal()) as relaying,
        a_relay(real.connection, MemoryJournal()) as healthy,
    ):
        keys = keys_of(0, 4, 25) + keys_of(1, 4, 25)
        await relaying.most_behind(actions, keys[:2], healthy, control, rounds=1)
        waiting = [relaying.put(missing, b"k%d" % (number % 50), b"%d" % number) for number in range(2000)]
        assert await relaying.most_behind(actions, keys, healthy, control) <= MOST_BEHIND
        await relaying.until(lambda: len(relaying.health.stuck()) == 1)
        assert f"topic {missing}: UnknownTopicOrPartition" in relaying.health.stuck()[0]
        await asyncio.to_thread(real.topic, "missing")
        await relaying.until(lambda: relaying.published(waiting))
        assert relaying.health.stuck() == []
        numbers: dict[bytes, list[int]] = {}
        for record in await asyncio.to_thread(all_records, real.connection, missing):
            numbers.setdefault(record.key or b"", []).append(int(record.value or b""))
        assert sum(map(len, numbers.values())) == 2000
        assert all(found == sorted(found) for found in numbers.values())

        # The producer knows the topic now, and its partitions' leader.
        await asyncio.to_thread(real.kafka.delete_topics, [missing])
        relaying.put(missing, b"k", b"late")
        assert await relaying.most_behind(actions, keys, healthy, control) <= MOST_BEHIND


@pytest.mark.kafka
@pytest.mark.expected_errors(NOT_FOUND, r"aiokafka\.producer\.sender: Got error produce response")
def test_a_partition_without_a_leader_holds_up_no_other_of_its_topic(own_kafka_broker: KafkaBroker):
    own_kafka_broker.create_topic("control", 4)
    folder = own_kafka_broker.add_log_folder()
    own_kafka_broker.create_topic("actions", 3)
    own_kafka_broker.restart()
    admin = own_kafka_broker.admin()
    try:
        admin.create_partitions({"actions": NewPartitions(total_count=4)})  # into the empty folder

        async def scenario() -> None:
            connection = KafkaConnection(own_kafka_broker.bootstrap)
            async with (
                a_relay(connection, MemoryJournal()) as relaying,
                a_relay(connection, MemoryJournal()) as healthy,
            ):
                others = [key for number in range(3) for key in keys_of(number, 4, 17)]
                lost = keys_of(3, 4, 5)
                await relaying.until(lambda: (folder / "actions-3").is_dir())
                assert not (folder / "actions-2").exists()
                await relaying.most_behind("actions", others + lost, healthy, "control", rounds=1)
                shutil.rmtree(folder)
                # The broker notices when it wants to make a file there.
                admin.create_topics(
                    {"another": {"num_partitions": 4, "replication_factor": 1}}, timeout_ms=20_000
                )
                # More than a lane reads at a time.
                waiting = [relaying.put("actions", key) for key in lost * 500]
                first = await relaying.most_behind("actions", others, healthy, "control")
                await relaying.until(lambda: len(relaying.health.stuck()) == 1)
                assert "topic actions, partition 3: LeaderNotAvailable" in relaying.health.stuck()[0]
                again = await relaying.most_behind("actions", others, healthy, "control")
                print(f"behind with a partition without a leader: {first:.0%}, then {again:.0%}")
                assert not relaying.published(waiting[:1])
                assert first <= MOST_BEHIND
                assert again <= MOST_BEHIND

        asyncio.run(scenario())
    finally:
        admin.close()


@pytest.mark.kafka
async def test_what_a_commit_offers_is_published_without_being_read(
    real: TestedBroker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relay_lane, "_REREAD_SECONDS", 600.0)
    topic = real.topic("actions")
    journal = MemoryJournal()
    asked: list[str] = []

    async with a_relay(real.connection, journal, idle_poll=600) as relaying:
        rows = [relaying.put(topic, b"first")]
        await relaying.until(lambda: relaying.published(rows))
        lane, _ = relaying.relay._lanes[topic]
        await relaying.until(lambda: not lane._to_read)
        await asyncio.get_running_loop().run_in_executor(
            relaying.relay.executor, int
        )  # after its last reading
        journal.before = asked.append
        for number in range(200):
            rows.append(relaying.offer(topic, b"k%d" % (number % 7), b"%d" % number))
            await asyncio.sleep(0.001)
        await relaying.until(lambda: relaying.published(rows))
    assert "unpublished" not in asked
    assert "mark_published" in asked
    values = [record.value for record in all_records(real.connection, topic)]
    assert sorted(int(value or b"") for value in values if value != b"v") == list(range(200))


@pytest.mark.kafka
async def test_what_is_offered_after_its_partition_was_revoked_overtakes_nothing(real: TestedBroker):
    topic = real.topic("actions")

    async with a_relay(real.connection, MemoryJournal()) as relaying:
        first = relaying.offer(topic, b"key", b"0")
        await relaying.until(lambda: relaying.published([first]))
        relaying.held = {}  # the group rebalances
        waiting = relaying.put(topic, b"key", b"1")
        await asyncio.sleep(0.5)  # the lane takes note of it
        late = relaying.offer(topic, b"key", b"2")  # of a commit that was underway
        await asyncio.sleep(1.0)
        relaying.held = {SOURCE: Lease(SOURCE, 2, 0)}
        relaying.relay.wake()
        await relaying.until(lambda: relaying.published([waiting, late]))
    assert [one.value for one in all_records(real.connection, topic)] == [b"0", b"1", b"2"]


async def test_offers_that_come_late_twice_or_never_change_neither_order_nor_number(real: TestedBroker):
    """Rows of somebody else, which nobody offers, and offers of rows that the relay has read by then, or published."""
    topic = real.topic("actions")
    journal = MemoryJournal()
    rng = random.Random(8)

    async with a_relay(real.connection, journal, idle_poll=0.02) as relaying:
        rows, late = [relaying.put(topic, b"k0", b"-1")], []
        await relaying.until(lambda: relaying.published(rows))
        for number in range(1500):
            way = rng.choices(("offered", "known", "late", "foreign"), (5, 2, 2, 1))[0]
            # One worker commits what has a key; what another process writes has others.
            kind = b"k" if way in ("offered", "known") else way.encode()
            message = OutboxMessage(topic, b"%b%d" % (kind, rng.randrange(5)), b"%d" % number, ())
            rows.append(journal.enqueue(message, SOURCE))
            written = journal.outbox[rows[-1]].message
            if way == "late":
                late.append(written)
            elif way != "foreign":
                relaying.relay.offer([written] if way == "offered" else [], list(relaying.held.values()))
                relaying.relay.wake()
            if late and rng.random() < 0.1:
                relaying.relay.offer(late, list(relaying.held.values()))
                relaying.relay.wake()
                late = []
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.01)
        await relaying.until(lambda: relaying.published(rows))
    numbers: dict[bytes, list[int]] = {}
    for record in all_records(real.connection, topic):
        numbers.setdefault(record.key or b"", []).append(int(record.value or b""))
    assert sorted(number for found in numbers.values() for number in found) == list(range(-1, 1500))
    assert all(found == sorted(found) for found in numbers.values())
