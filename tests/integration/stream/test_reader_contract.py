"""What a reader promises through the intake, whatever it is made of and whichever broker it reads."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streamer.failpoints import POINTS, RUN_POINTS
from streamer.journal import Partition, Record
from streamer.stream.ending import WorkerExit, WorkerHalted
from streamer.stream.faust_engine import FaustEngine, ReaderLimits
from streamer.stream.intake import Fetched
from streamer.stream.worker import WorkerLimits
from tests.integration.stream.brokers import TestedBroker
from tests.integration.stream.deciders import EchoDecider
from tests.integration.stream.memory_journal import MemoryJournal, Outage
from tests.integration.stream.running import a_worker, all_records, numbered, published

# A broker that has just started, and one whose groups are at rest, make the client library say so as errors.
COORDINATOR = r"aiokafka\.consumer\.group_coordinator: "
pytestmark = pytest.mark.expected_errors(COORDINATOR)


def contiguous(journal: MemoryJournal) -> bool:
    return all(offsets == list(range(len(offsets))) for offsets in journal.offsets().values())


async def test_every_record_gets_one_outcome_in_order_and_its_action(broker: TestedBroker):
    source, labels, actions = broker.topic("in"), broker.topic("labels"), broker.topic("actions")
    journal = MemoryJournal()

    await published(broker.connection, source, numbered(500))
    await published(broker.connection, labels, numbered(50, start=500))
    async with a_worker(broker, [source, labels], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 550 and not journal.waiting())
        await worker.until(lambda: not worker.health.unready())
        assert len(worker.witness.latencies) == 550
        assert worker.witness.resets == []
        assert set(POINTS) - set(RUN_POINTS) - {"in_transaction", "after_transaction"} == set(worker.passed)
        await worker.until(lambda: len(worker.witness.lags) == 8 and not any(worker.witness.lags.values()))
    for partition, rows in journal.recorded.items():
        assert [offset for offset, _ in rows] == list(range(len(rows))), partition
        assert {kind for _, kind in rows} == {"decision"}
    told = all_records(broker.connection, actions)
    assert sorted(record.value for record in told) == sorted(
        b"action of ok-%d" % number for number in range(550)
    )


async def test_bytes_pass_unchanged_even_where_there_are_none(broker: TestedBroker):
    source, actions = broker.topic("in"), broker.topic("actions")
    journal = MemoryJournal()
    odd: list[tuple[bytes | None, bytes | None]] = [
        (b"k", None),
        (None, b"\xff\xfe not utf-8"),
        (b"\x00", b""),
        (None, b"x" * 300_000),
    ]
    headers = [("h", b"\xff\x00"), ("h", b"again"), ("empty", b"")]

    await published(broker.connection, source, odd, headers=headers)
    async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 4 and not journal.waiting())
    told = all_records(broker.connection, actions)
    assert {(one.key, one.value) for one in told} == set(odd)
    assert all(one.headers == (*headers, ("refused", b"1")) for one in told)


async def test_a_message_without_key_and_value_is_published(broker: TestedBroker):
    actions = broker.topic("actions")
    from streamer.journal import OutboxMessage

    journal = MemoryJournal()
    journal.enqueue(OutboxMessage(actions, None, None, (("why", b"tombstone"),)))

    async with a_worker(broker, [broker.topic("in")], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: not journal.waiting())
    (told,) = all_records(broker.connection, actions)
    assert (told.key, told.value, told.headers) == (None, None, (("why", b"tombstone"),))


async def test_a_restart_goes_on_where_the_database_is(broker: TestedBroker):
    source, actions = broker.topic("in"), broker.topic("actions")
    journal = MemoryJournal()

    await published(broker.connection, source, numbered(100))
    async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 100)
        await worker.drain()
    await published(broker.connection, source, numbered(100, start=100))
    decider = EchoDecider(actions)
    async with a_worker(broker, [source], journal, decider) as worker:
        await worker.until(lambda: journal.total() == 200)
    assert sum(decider.calls) == 100
    assert contiguous(journal)


async def test_workers_come_and_go_and_nothing_is_lost_or_done_twice(real: TestedBroker):
    # Real Kafka alone: the embedded broker does not rebalance a group of two reliably.
    broker = real
    source, actions = broker.topic("in"), broker.topic("actions")
    journal = MemoryJournal()

    async with a_worker(broker, [source], journal, EchoDecider(actions)) as first:
        await published(broker.connection, source, numbered(300))
        await first.until(lambda: journal.total() == 300)
        async with a_worker(broker, [source], journal, EchoDecider(actions)) as second:
            # Published while the group rebalances.
            for start in range(300, 900, 100):
                await published(broker.connection, source, numbered(100, start=start))
                await asyncio.sleep(0.2)
            await second.until(lambda: second.passed.count("after_lease") > 0)
            await first.until(lambda: journal.total() == 900)
        await published(broker.connection, source, numbered(100, start=900))
        await first.until(lambda: journal.total() == 1000 and not journal.waiting())
        assert not first.terminated
        assert not second.terminated
    assert contiguous(journal)
    assert len(journal.decided) == 1000


async def test_a_worker_that_stops_while_it_leases_does_not_fence_the_next_owner(real: TestedBroker):
    source, actions = real.topic("in"), real.topic("actions")
    armed, asked, go_on = threading.Event(), threading.Event(), threading.Event()

    def hold(operation: str) -> None:
        if operation == "lease" and armed.is_set():
            asked.set()
            go_on.wait(240)

    journal = MemoryJournal()
    slow = replace(journal, before=hold)  # the same record

    async with a_worker(real, [source], slow, EchoDecider(actions)) as first:
        await published(real.connection, source, numbered(100))
        await first.until(lambda: journal.total() == 100)
        armed.set()
        async with a_worker(real, [source], journal, EchoDecider(actions)) as second:
            await first.until(asked.is_set)
            first.stop.set()
            # Time enough for the second to take all leases, if the first has left the group.
            await asyncio.sleep(4.0)
            go_on.set()
            await published(real.connection, source, numbered(100, start=100))
            await second.until(lambda: journal.total() == 200)
            assert not second.terminated
    assert contiguous(journal)


def losing(monkeypatch: pytest.MonkeyPatch, *offsets: int) -> list[int]:
    """Lose each of these records once, on the way from the fetcher to the intake; those that were lost."""
    take = FaustEngine._take
    lost: list[int] = []

    def lose_some(engine: FaustEngine, fetched: Fetched) -> None:
        if fetched.record.offset in offsets and fetched.record.offset not in lost:
            lost.append(fetched.record.offset)
        else:
            take(engine, fetched)

    monkeypatch.setattr(FaustEngine, "_take", lose_some)
    return lost


async def test_a_record_lost_between_fetcher_and_intake_is_read_again(
    broker: TestedBroker, monkeypatch: pytest.MonkeyPatch
):
    source, actions = broker.topic("in"), broker.topic("actions")
    journal = MemoryJournal()
    lost = losing(monkeypatch, 5, 6, 30)
    await published(broker.connection, source, [(b"one", value) for _, value in numbered(200)])
    async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 200)
        assert set(worker.witness.resets) == {"record_lost"}
    assert sorted(lost) == [5, 6, 30]
    assert contiguous(journal)


async def test_the_last_record_lost_is_noticed_by_the_watchdog(
    broker: TestedBroker, monkeypatch: pytest.MonkeyPatch
):
    source, actions = broker.topic("in"), broker.topic("actions")
    journal = MemoryJournal()
    losing(monkeypatch, 9)
    await published(broker.connection, source, [(b"one", value) for _, value in numbered(10)])
    async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: journal.total() == 10)
        assert worker.witness.resets == ["record_lost"]
    assert contiguous(journal)


async def test_what_waits_in_memory_is_bounded(broker: TestedBroker):
    source, actions = broker.topic("in"), broker.topic("actions")
    journal = MemoryJournal()
    go = threading.Event()
    limits = WorkerLimits(reader=ReaderLimits(max_buffered_records=50), max_commit_records=10)

    def wait(_records: Sequence[Record]) -> None:
        go.wait(240)

    await published(broker.connection, source, numbered(1000))
    decider = EchoDecider(actions, before=wait)
    async with a_worker(broker, [source], journal, decider, limits) as worker:
        await worker.until(lambda: "after_lease" in worker.passed)
        await asyncio.sleep(2)
        assert worker.witness.resets == []
        go.set()
        await worker.until(lambda: journal.total() == 1000)
        assert max(decider.calls) <= 10
    assert contiguous(journal)


@pytest.mark.expected_errors("data_gap", COORDINATOR)
def test_a_gap_in_the_log_is_recorded_and_passed(broker: TestedBroker):
    source, actions = broker.topic("in", 1), broker.topic("actions")
    journal = MemoryJournal()
    partitions: list[Partition] = []

    async def scenario() -> None:
        if broker.kafka is not None:
            await published(broker.connection, source, numbered(100))
            broker.delete_before(source, 60)
        else:
            # The embedded broker keeps 5 MiB of a partition.
            await published(broker.connection, source, [(b"one", b"ok" + b"x" * 100_000)] * 80)
        await published(broker.connection, source, [(b"one", b"ok-last")])
        async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
            await worker.until(lambda: b"ok-last" in {r.value for r in decided(journal)})
            assert worker.witness.gaps == journal.gaps

    def decided(journal: MemoryJournal) -> list[Record]:
        return [] if not journal.actions else [_Value(key.batch_id) for key in list(journal.actions)]

    asyncio.run(scenario())
    (gap,) = journal.gaps
    partitions.append(gap.partition)
    assert gap.from_offset == 0
    offsets = journal.offsets()[gap.partition.number]
    assert offsets[0] == gap.to_offset > 0
    assert offsets == list(range(gap.to_offset, offsets[-1] + 1))


class _Value:
    def __init__(self, text: str) -> None:
        self.value = text.encode()


@pytest.mark.expected_errors("worker_halted", COORDINATOR)
def test_a_topic_that_ends_before_the_progress_stops_the_worker(broker: TestedBroker):
    from streamer.journal import Partition

    source, actions = broker.topic("in", 1), broker.topic("actions")
    journal = MemoryJournal(progress={Partition(broker.log_id, source, 0): (3, 1000)})

    async def scenario() -> None:
        await published(broker.connection, source, numbered(10))
        async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
            await asyncio.wait_for(asyncio.shield(worker.task), 240)

    with pytest.raises(WorkerHalted, match="deleted and recreated") as caught:
        asyncio.run(scenario())
    assert caught.value.status is WorkerExit.LOG_RECREATED


async def test_the_database_away_delays_and_loses_nothing(broker: TestedBroker):
    source, actions = broker.topic("in"), broker.topic("actions")
    outage = Outage()
    journal = MemoryJournal(before=outage)

    outage.on = True
    async with a_worker(broker, [source], journal, EchoDecider(actions)) as worker:
        await published(broker.connection, source, numbered(100))
        await worker.until(lambda: outage.refused > 3)
        assert "the database does not answer" in worker.health.unready()
        outage.on = False
        await worker.until(lambda: journal.total() == 100)
        outage.on = True
        await published(broker.connection, source, numbered(100, start=100))
        await worker.until(lambda: outage.refused > 10)
        assert "the database does not answer" in worker.health.unready()
        outage.on = False
        await worker.until(lambda: journal.total() == 200 and not journal.waiting())
        await worker.until(lambda: not worker.health.unready())
    assert contiguous(journal)
