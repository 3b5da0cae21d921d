"""What a worker does when something breaks: the database, a lease, a message, the broker."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer.group_coordinator import GroupCoordinator

from streamer.errors import Unavailable
from streamer.journal import OutboxMessage, Record
from streamer.stream import header_names
from streamer.stream.ending import WorkerExit, WorkerHalted
from streamer.stream.faust_engine import ReaderLimits
from streamer.stream.isolation import DeadLetterLimits
from streamer.stream.worker import Thresholds, WorkerLimits
from tests.integration.stream.brokers import TestedBroker
from tests.integration.stream.deciders import EchoDecider
from tests.integration.stream.memory_journal import MemoryJournal, Outage
from tests.integration.stream.running import a_worker, all_records, numbered, published
from tests.services.kafka import KafkaBroker

COORDINATOR = r"aiokafka\.consumer\.group_coordinator: "
CLIENTS = r"^(aiokafka|kafka|faust|mode)"
pytestmark = pytest.mark.expected_errors(COORDINATOR)


async def test_a_commit_whose_answer_was_lost_is_not_done_twice(embedded: TestedBroker):
    source, actions = embedded.topic("in"), embedded.topic("actions")
    losing = Outage("commit")
    journal = MemoryJournal(after=losing)

    losing.on = True
    async with a_worker(embedded, [source], journal, EchoDecider(actions)) as worker:
        await published(embedded.connection, source, numbered(100))
        await worker.until(lambda: losing.refused > 2)
        losing.on = False
        await worker.until(lambda: journal.total() == 100 and not journal.waiting())
        assert not worker.terminated
    assert all(rows == list(range(len(rows))) for rows in journal.offsets().values())


@pytest.mark.expected_errors("worker_halted", CLIENTS)
def test_a_zombie_is_ended_at_once(embedded: TestedBroker):
    source, actions = embedded.topic("in"), embedded.topic("actions")
    journal = MemoryJournal()

    async def scenario() -> None:
        async with a_worker(embedded, [source], journal, EchoDecider(actions)) as worker:
            await published(embedded.connection, source, numbered(100))
            await worker.until(lambda: journal.total() == 100)
            journal.lease(
                list(journal.progress)
            )  # another worker, while this one still thinks that it owns them
            await published(embedded.connection, source, numbered(100, start=100))
            await worker.until(lambda: bool(worker.terminated))
            assert worker.terminated == [WorkerExit.FENCED]
            assert not worker.health.alive
            with pytest.raises(WorkerHalted):
                await worker.task

    asyncio.run(scenario())
    assert journal.total() == 100


@pytest.mark.expected_errors("worker_halted", COORDINATOR)
def test_too_many_refusals_halt_the_worker_visibly(embedded: TestedBroker):
    source, actions = embedded.topic("in"), embedded.topic("actions")
    journal = MemoryJournal()
    limits = WorkerLimits(dead_letters=DeadLetterLimits(run=20), max_commit_records=10)

    async def scenario() -> None:
        await published(embedded.connection, source, [(b"one", b"bad")] * 500)
        async with a_worker(embedded, [source], journal, EchoDecider(actions), limits) as worker:
            with pytest.raises(WorkerHalted, match="20 records in a row") as caught:
                await asyncio.wait_for(asyncio.shield(worker.task), 240)
            assert caught.value.status is WorkerExit.DEAD_LETTER_CAP
            assert worker.health.unready() == [str(caught.value)]

    asyncio.run(scenario())
    assert 20 < journal.total() <= 40


@pytest.mark.expected_errors("worker_halted", COORDINATOR)
async def test_no_lease_in_time_ends_the_worker(embedded: TestedBroker):
    outage = Outage("lease")
    journal = MemoryJournal(before=outage)
    limits = WorkerLimits(reader=ReaderLimits(request_timeout=6, session_timeout=6))

    outage.on = True
    async with a_worker(embedded, [embedded.topic("in")], journal, EchoDecider(), limits) as worker:
        await published(embedded.connection, embedded.topic("in"), numbered(4))
        with pytest.raises(WorkerHalted, match="no lease within 4 s") as caught:
            await asyncio.wait_for(asyncio.shield(worker.task), 240)
        assert caught.value.status is WorkerExit.LEASE_TIMEOUT


@pytest.mark.expected_errors(COORDINATOR)
async def test_a_worker_that_the_group_refuses_says_why(real: TestedBroker):
    properties = {"session.timeout.ms": "10"}  # less than any broker permits
    refused = replace(real, connection=replace(real.connection, properties=properties))

    async with a_worker(refused, [real.topic("in")], MemoryJournal(), EchoDecider()) as worker:
        await worker.until(lambda: "InvalidSessionTimeoutError" in str(worker.health.unready()))


@pytest.mark.expected_errors("worker_halted", CLIENTS)
async def test_a_worker_whose_group_membership_breaks_ends(
    embedded: TestedBroker, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug of the client library")

    monkeypatch.setattr(GroupCoordinator, "_on_join_complete", broken)

    async with a_worker(embedded, [embedded.topic("in")], MemoryJournal(), EchoDecider()) as worker:
        with pytest.raises(WorkerHalted, match="a bug of the client library") as caught:
            await asyncio.wait_for(asyncio.shield(worker.task), 60)
        assert caught.value.status is WorkerExit.CRASHED


async def test_a_decider_that_is_away_is_asked_again(embedded: TestedBroker):
    source, actions = embedded.topic("in"), embedded.topic("actions")
    journal = MemoryJournal()
    refusals: list[int] = []

    def refuse_twice(records: Sequence[Record]) -> None:
        if len(refusals) < 2:
            refusals.append(len(records))
            raise Unavailable("the encoder is away")

    await published(embedded.connection, source, numbered(50))
    async with a_worker(embedded, [source], journal, EchoDecider(actions, refuse_twice)) as worker:
        await worker.until(lambda: journal.total() == 50)
    assert len(refusals) == 2


@pytest.mark.expected_errors("worker_halted", "record_refused", COORDINATOR)
async def test_a_bug_that_every_record_meets_halts_the_worker_at_the_cap(embedded: TestedBroker):
    source, actions = embedded.topic("in"), embedded.topic("actions")
    journal = MemoryJournal()
    limits = WorkerLimits(dead_letters=DeadLetterLimits(run=20), max_commit_records=10)

    def fail(_records: Sequence[Record]) -> None:
        raise KeyError("a bug")

    await published(embedded.connection, source, numbered(50))
    async with a_worker(embedded, [source], journal, EchoDecider(actions, fail), limits) as worker:
        with pytest.raises(WorkerHalted, match="20 records in a row"):
            await asyncio.wait_for(asyncio.shield(worker.task), 240)
    refused = journal.total()
    assert 20 < refused <= 31
    async with a_worker(embedded, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 50)
    kinds = [kind for rows in journal.recorded.values() for _, kind in rows]
    assert (kinds.count("dead_letter"), kinds.count("decision")) == (refused, 50 - refused)


@pytest.mark.expected_errors("worker_halted", COORDINATOR)
async def test_an_error_of_the_system_ends_the_worker_and_loses_nothing(embedded: TestedBroker):
    source, actions = embedded.topic("in"), embedded.topic("actions")
    journal = MemoryJournal()

    def fail(_records: Sequence[Record]) -> None:
        raise OSError("too many open files")

    await published(embedded.connection, source, numbered(50))
    async with a_worker(embedded, [source], journal, EchoDecider(actions, fail)) as worker:
        with pytest.raises(OSError, match="too many open files"):
            await asyncio.wait_for(asyncio.shield(worker.task), 240)
    assert not journal.total()
    async with a_worker(embedded, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 50)


@pytest.mark.kafka
@pytest.mark.expected_errors("message_parked", COORDINATOR)
def test_what_can_never_be_published_is_parked_and_the_rest_passes(real: TestedBroker):
    actions = real.topic("actions", max_message_bytes=100_000)
    journal = MemoryJournal()
    journal.enqueue(OutboxMessage(actions, b"k", b"first", ()))
    journal.enqueue(OutboxMessage(actions, b"k", b"x" * 500_000, ()))  # the topic refuses it
    journal.enqueue(OutboxMessage(actions, b"k", b"y" * 3_000_000, ()))  # so does the producer
    journal.enqueue(OutboxMessage("no such/topic name", b"k", b"z", ()))
    journal.enqueue(OutboxMessage(actions, b"k", b"w", (("\ud800", b"no UTF-8 for this name"),)))
    journal.enqueue(OutboxMessage(actions, b"k", b"last", ()))

    async def scenario() -> None:
        async with a_worker(real, [real.topic("in")], journal, EchoDecider(actions)) as worker:
            await worker.until(lambda: not journal.waiting())
            assert sorted(worker.witness.parked_rows) == [2, 3, 4, 5]  # of several topics

    asyncio.run(scenario())
    assert [record.value for record in all_records(real.connection, actions)] == [b"first", b"last"]
    assert "MessageSizeTooLarge" in str(journal.outbox[2].parked)
    assert "InvalidTopic" in str(journal.outbox[4].parked)
    assert "UnicodeEncodeError" in str(journal.outbox[5].parked)


@pytest.mark.kafka
async def test_holes_of_transactions_are_passed_without_a_reset(real: TestedBroker):
    source, actions = real.topic("in", 1), real.topic("actions")
    journal = MemoryJournal()

    producer = AIOKafkaProducer(
        bootstrap_servers=real.connection.bootstrap, transactional_id=real.prefix + "publisher"
    )
    await producer.start()
    number = 0
    async with a_worker(real, [source], journal, EchoDecider(actions)) as worker:
        for transaction in range(20):
            await producer.begin_transaction()
            for _ in range(10):
                await producer.send(source, b"ok-%d-%d" % (transaction, number), key=b"one")
                number += 1
            if transaction % 3 == 2:
                await producer.flush()
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        await producer.stop()
        await worker.until(lambda: journal.total() == 140)
        # The log ends with a marker: nothing arrives any more, and that is no trouble.
        await asyncio.sleep(7)
        assert worker.witness.resets == []
        assert list(worker.witness.lags.values()) == [0]
    (offsets,) = journal.offsets().values()
    assert len(offsets) == len(set(offsets)) == 140
    assert not any(int(key.batch_id.split("-")[1]) % 3 == 2 for key in journal.decided)


@pytest.mark.kafka
@pytest.mark.expected_errors("data_gap", COORDINATOR)
def test_records_deleted_before_they_were_read_are_a_gap_while_running(real: TestedBroker):
    source, actions = real.topic("in", 1), real.topic("actions")
    outage = Outage("commit")
    journal = MemoryJournal(before=outage)
    limits = WorkerLimits(
        reader=ReaderLimits(max_buffered_records=20, max_poll_records=10, max_fetch_bytes=20_000),
        max_commit_records=10,
    )

    async def scenario() -> None:
        async with a_worker(real, [source], journal, EchoDecider(actions), limits) as worker:
            await published(real.connection, source, [(b"one", b"ok-first")])
            await worker.until(lambda: journal.total() == 1)
            outage.on = True
            await published(
                real.connection, source, [(b"one", b"ok-%d-" % n + b"x" * 1000) for n in range(500)]
            )
            await worker.until(lambda: outage.refused > 3)
            real.delete_before(source, 400)
            outage.on = False
            await worker.until(
                lambda: b"ok-499" in {key.batch_id[:6].encode() for key in list(journal.decided)}
            )
            assert worker.witness.gaps == journal.gaps
            assert "offset_out_of_range" in worker.witness.resets

    asyncio.run(scenario())
    (gap,) = journal.gaps
    assert gap.to_offset == 400
    (offsets,) = journal.offsets().values()
    assert offsets == [*range(gap.from_offset), *range(400, 501)]


@pytest.mark.kafka
@pytest.mark.expected_errors(CLIENTS)
def test_the_broker_killed_under_load(own_kafka_broker: KafkaBroker):
    broker = TestedBroker.on(own_kafka_broker)
    source, actions, thresholds = broker.topic("in"), broker.topic("actions"), broker.topic("thresholds")
    journal = MemoryJournal()
    followed: list[tuple[bytes | None, bytes | None]] = []

    async def scenario() -> None:
        await published(broker.connection, thresholds, [(b"gate", b"1")])
        follow = Thresholds(topic=thresholds, on_message=lambda key, value: followed.append((key, value)))
        async with a_worker(broker, [source], journal, EchoDecider(actions), thresholds=follow) as worker:
            await published(broker.connection, source, numbered(2000))
            await worker.until(lambda: journal.total() > 200 and followed == [(b"gate", b"1")])
            await asyncio.to_thread(own_kafka_broker.kill)
            await asyncio.sleep(5)
            await asyncio.to_thread(own_kafka_broker.start)
            await published(broker.connection, source, numbered(500, start=2000))
            await published(broker.connection, thresholds, [(b"gate", b"2")])
            await worker.until(lambda: journal.total() == 2500 and not journal.waiting(), seconds=240)
            await worker.until(lambda: (b"gate", b"2") in followed)
            await worker.until(lambda: not worker.health.unready())

    asyncio.run(scenario())
    assert all(rows == list(range(len(rows))) for rows in journal.offsets().values())
    told = {record.value for record in all_records(broker.connection, actions)}
    assert told == {b"action of ok-%d" % number for number in range(2500)}


async def test_a_threshold_message_that_nobody_understands_is_passed(
    embedded: TestedBroker, expected_errors: object
):
    source, thresholds = embedded.topic("in"), embedded.topic("thresholds")
    journal = MemoryJournal()
    seen: list[bytes | None] = []

    def understand(key: bytes | None, value: bytes | None) -> None:
        if value == b"garbage":
            raise ValueError(value)
        seen.append(value)

    for value in (b"1", b"garbage", None, b"2"):
        await published(embedded.connection, thresholds, [(b"gate", value)])
    follow = Thresholds(topic=thresholds, on_message=understand)
    async with a_worker(embedded, [source], journal, EchoDecider(), thresholds=follow) as worker:
        await worker.until(lambda: seen == [b"1", None, b"2"])


async def test_a_batch_that_takes_seconds_to_unpack_is_no_error(
    embedded: TestedBroker, monkeypatch: pytest.MonkeyPatch
):
    """The consumer's thread sends heartbeats as well; how long unpacking may take leaves time for these."""
    source, actions = embedded.topic("in"), embedded.topic("actions")
    journal = MemoryJournal()
    unpacked = header_names.at_once

    def slow(codec: int, packed: memoryview) -> bytes | None:
        time.sleep(4.5)
        return unpacked(codec, packed)

    async with a_worker(embedded, [source], journal, EchoDecider(actions)) as worker:
        await published(embedded.connection, source, numbered(10))
        await worker.until(lambda: journal.total() == 10)
        monkeypatch.setattr(header_names, "at_once", slow)
        producer = AIOKafkaProducer(bootstrap_servers=embedded.connection.bootstrap, compression_type="gzip")
        await producer.start()
        try:
            await producer.send_and_wait(source, b"ok-last", key=b"k")
        finally:
            await producer.stop()
        await worker.until(lambda: journal.total() == 11)
        await asyncio.sleep(2.5)  # until the thread has looked at itself
        assert not worker.terminated
