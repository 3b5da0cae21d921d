import asyncio
from concurrent.futures import Future
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.journal import Lease, Partition, Record
from streamer.stream.intake import FetchBudget, Fetched, Intake, OfferResult, Run

ONE = Partition("log", "topic", 0)
TWO = Partition("log", "topic", 1)
SIZE = 10


def record(offset: int, partition: Partition = ONE) -> Record:
    return Record(partition, offset, None, b"v", (), 0)


def fetched(
    offset: int, *, follows: int | None = None, partition: Partition = ONE, flow: int = -1
) -> Fetched:
    return Fetched(record(offset, partition), offset if follows is None else follows, flow, SIZE)


def an_intake(*leases: Lease, max_records: int = 1000) -> tuple[Intake, FetchBudget]:
    budget = FetchBudget(max_records=max_records, max_bytes=10**9)
    intake = Intake(budget)
    intake.install(leases or [Lease(ONE, 1, 0)], now=0.0)
    return intake, budget


def gathered(intake: Intake, *, max_records: int = 1000, max_bytes: int = 10**9) -> list[Run]:
    return asyncio.run(
        asyncio.wait_for(intake.gather(max_records=max_records, max_bytes=max_bytes), timeout=240)
    )


def test_records_in_order_are_taken():
    intake, _ = an_intake()
    assert [intake.offer(fetched(n), now=1.0) for n in range(3)] == [OfferResult.TAKEN] * 3
    (run,) = gathered(intake)
    assert [one.offset for one in run.records] == [0, 1, 2]
    assert (run.expected_offset, run.next_offset) == (0, 3)


def test_a_hole_in_the_log_is_passed_and_lies_inside_the_run():
    intake, _ = an_intake(Lease(ONE, 1, 5))
    assert intake.offer(fetched(7, follows=5), now=1.0) is OfferResult.TAKEN
    assert intake.offer(fetched(20, follows=8), now=1.0) is OfferResult.TAKEN
    (run,) = gathered(intake)
    assert (run.expected_offset, run.next_offset) == (5, 21)


def test_a_record_whose_predecessor_never_arrived_is_refused():
    intake, _ = an_intake()
    intake.offer(fetched(0), now=1.0)
    assert intake.offer(fetched(2, follows=2), now=1.0) is OfferResult.BROKEN
    assert intake.offer(fetched(1), now=1.0) is OfferResult.TAKEN
    assert intake.expected() == {ONE: 2}


def test_what_was_taken_before_is_dropped_and_what_is_not_ours_too():
    intake, _ = an_intake(Lease(ONE, 1, 3))
    assert intake.offer(fetched(2), now=1.0) is OfferResult.REPEATED
    assert intake.offer(fetched(0, partition=TWO), now=1.0) is OfferResult.FOREIGN


def test_the_next_run_of_a_partition_follows_the_one_that_is_committed():
    intake, _ = an_intake(Lease(ONE, 1, 0), Lease(TWO, 1, 0))
    intake.offer(fetched(0), now=1.0)
    first = gathered(intake)
    intake.offer(fetched(1), now=1.0)
    second = gathered(intake)
    assert [(run.expected_offset, run.next_offset) for run in (*first, *second)] == [(0, 1), (1, 2)]
    assert intake.committed() == {ONE: 0, TWO: 0}
    intake.release(first)
    assert intake.committed() == {ONE: 1, TWO: 0}
    assert intake.idle_since(ONE) is None
    intake.release(second)
    assert intake.committed() == {ONE: 2, TWO: 0}
    assert intake.idle_since(ONE) == 1.0


def test_every_partition_gets_its_share_of_a_group():
    leases = [Lease(Partition("log", "topic", number), 1, 0) for number in range(4)]
    intake, _ = an_intake(*leases)
    for lease in leases:
        for offset in range(100):
            intake.offer(fetched(offset, partition=lease.partition), now=1.0)
    runs = gathered(intake, max_records=40)
    assert sorted(len(run.records) for run in runs) == [10, 10, 10, 10]


def test_one_record_larger_than_the_bound_still_passes():
    intake, _ = an_intake()
    intake.offer(fetched(0), now=1.0)
    intake.offer(fetched(1), now=1.0)
    (run,) = gathered(intake, max_bytes=1)
    assert len(run.records) == 1


def test_a_revoked_run_is_stale_and_gives_its_budget_back():
    intake, budget = an_intake(max_records=3)
    for offset in range(3):
        intake.offer(fetched(offset), now=1.0)
    assert budget.room() == 0
    runs = gathered(intake, max_records=2)
    assert intake.revoke() == [ONE]
    assert not intake.holds(runs[0])
    intake.install([Lease(ONE, 2, 0)], now=2.0)
    assert not intake.holds(runs[0])
    intake.release(runs)
    assert intake.committed() == {ONE: 0}
    assert budget.room() == 3


async def test_drained_waits_for_what_is_being_committed():
    intake, _ = an_intake()
    intake.offer(fetched(0), now=1.0)
    runs = await intake.gather(max_records=10, max_bytes=10**9)
    waiting = asyncio.create_task(intake.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    intake.release(runs)
    await asyncio.wait_for(waiting, 240)


async def test_gather_waits_until_something_arrives():
    intake, _ = an_intake()
    gathering = asyncio.create_task(intake.gather(max_records=10, max_bytes=10**9))
    await asyncio.sleep(0)
    assert not gathering.done()
    intake.offer(fetched(0), now=1.0)
    assert len(await asyncio.wait_for(gathering, 240)) == 1


@given(
    log=st.lists(st.booleans(), max_size=40),
    steps=st.lists(st.tuples(st.sampled_from(["deliver", "lose", "again", "commit"]), st.integers(1, 9))),
)
def test_whatever_the_reader_does_the_committed_offsets_are_a_prefix_of_the_log(
    log: list[bool], steps: list[tuple[str, int]]
):
    """`log` tells which offsets hold a record; the reader delivers, loses and reads again at will."""
    offsets = [offset for offset, there in enumerate(log) if there]
    intake, budget = an_intake()
    committed: list[int] = []
    position = follows = 0
    flow = budget.begin_flow()
    for step, count in steps:
        if step == "again":
            follows = intake.expected()[ONE]
            position = sum(offset < follows for offset in offsets)
            flow = budget.begin_flow()
        elif step == "commit":
            runs = intake._gather(count, 10**9)
            committed += [one.offset for run in runs for one in run.records]
            intake.release(runs)
        else:
            for offset in offsets[position : position + count]:
                budget.fetched(flow, 1, SIZE)
                if step == "deliver":
                    intake.offer(fetched(offset, follows=follows, flow=flow), now=0.0)
                follows, position = offset + 1, position + 1
    assert committed == offsets[: len(committed)]


def test_the_budget_counts_what_is_underway_and_what_is_held():
    budget = FetchBudget(max_records=10, max_bytes=1000)
    flow = budget.begin_flow()
    budget.fetched(flow, 6, 60)
    assert budget.room() == 4
    budget.arrived(flow, 10, kept=True)
    budget.arrived(flow, 10, kept=False)
    assert budget.room() == 5
    later = budget.begin_flow()
    assert budget.room() == 9  # what was underway is forgotten, what is held is not
    budget.arrived(flow, 10, kept=True)  # a straggler of the old flow
    assert budget.room() == 8
    budget.fetched(later, 1, 2000)
    assert budget.room() == 0
    budget.released(2, 20)
    budget.arrived(later, 2000, kept=False)
    assert budget.room() == 10


@pytest.mark.parametrize("offset", [3, 5])
def test_a_recorded_gap_moves_the_partition(offset: int):
    intake, _ = an_intake(Lease(ONE, 1, 2))
    intake.move_past(ONE, offset)
    assert intake.expected() == intake.committed() == {ONE: offset}


async def test_a_record_waits_until_it_is_prepared_and_only_its_own_partition_waits_with_it():
    begun: dict[tuple[int, int], Future[None]] = {}

    def prepare(one: Record) -> Future[None] | None:
        if one.value == b"v" and one.offset == 2:
            return None
        return begun.setdefault((one.partition.number, one.offset), Future())

    intake = Intake(FetchBudget(max_records=100, max_bytes=10**9), prepare)
    intake.install([Lease(ONE, 1, 0), Lease(TWO, 1, 0)], now=0.0)
    for partition in (ONE, TWO):
        for offset in range(3):
            intake.offer(fetched(offset, partition=partition), now=1.0)
    begun[0, 1].set_result(None)
    begun[1, 0].set_result(None)
    (run,) = await intake.gather(max_records=100, max_bytes=10**9)
    assert (run.lease.partition, [one.offset for one in run.records]) == (TWO, [0])
    waiting = asyncio.create_task(intake.gather(max_records=100, max_bytes=10**9))
    await asyncio.sleep(0)
    assert not waiting.done()
    Thread(target=begun[0, 0].set_result, args=(None,)).start()
    (run,) = await waiting
    assert (run.lease.partition, [one.offset for one in run.records]) == (ONE, [0, 1, 2])
    intake.revoke()
    assert begun[1, 1].cancelled(), "what is dropped need not be prepared"
