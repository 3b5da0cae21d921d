"""Leasing where the reader gives up waiting, and while the group rebalances."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from streamer.journal import DataGap, Partition
from streamer.stream.hooks import Hooks
from streamer.stream.intake import FetchBudget, Intake
from streamer.stream.leasing import Bounds, Leasing
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.running import Witness

ONE, TWO = Partition("log", "topic", 0), Partition("log", "topic", 1)


@pytest.mark.expected_errors("data_gap")
def test_a_gap_whose_recording_was_cancelled_is_recorded_once_and_passed():
    pause, written, go_on = _pause_at("record_gap")
    journal, witness = MemoryJournal(after=pause), Witness()

    async def scenario() -> dict[Partition, int]:
        with _leasing(journal, witness, Bounds(40, 50)) as leasing:
            leasing.begin(1, [ONE])
            # Faust's fetcher is cancelled while it seeks.
            given_up = asyncio.create_task(leasing.positions())
            assert await asyncio.to_thread(written.wait, 240)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            go_on.set()
            return await leasing.positions()

    assert asyncio.run(scenario()) == {ONE: 40}
    assert journal.gaps == witness.gaps == [DataGap(ONE, 0, 40)]


async def test_nothing_is_leased_between_the_end_of_a_generation_and_the_next_assignment():
    journal = MemoryJournal()

    with _leasing(journal, Witness(), Bounds(0, 0)) as leasing:
        assert await leasing.positions() == {}, "before the first assignment"
        leasing.begin(1, [ONE])
        assert await leasing.positions() == {ONE: 0}
        leasing.revoke()
        # Faust seeks again in a rebalance, with the partitions that it had before.
        assert await leasing.positions() == {}
        assert journal.progress[ONE] == (1, 0), "another worker may hold the lease by now"
        leasing.begin(1, [ONE])
        assert await leasing.positions() == {ONE: 0}
        assert journal.progress[ONE] == (2, 0)


async def test_a_seek_that_waited_through_a_rebalance_leases_nothing_that_is_no_longer_assigned():
    asked, go_on = asyncio.Event(), asyncio.Event()
    journal = MemoryJournal()

    async def topic_ids(_topics: Collection[str]) -> dict[str, str]:
        asked.set()
        await go_on.wait()
        return {}

    with _leasing(journal, Witness(), Bounds(0, 0), topic_ids=topic_ids) as leasing:
        leasing.begin(1, [ONE, TWO])
        first = asyncio.create_task(leasing.positions())
        await asked.wait()
        second = asyncio.create_task(leasing.positions())  # a reset of the reader, at the same time
        await asyncio.sleep(0)
        leasing.revoke()
        leasing.begin(1, [ONE])
        go_on.set()
        await first
        assert await second == {ONE: 0}
        assert TWO not in journal.progress, "another worker holds its lease"


async def test_a_lease_that_the_database_is_asked_for_when_the_group_rebalances_is_waited_for():
    pause, asked, go_on = _pause_at("lease")
    journal = MemoryJournal(before=pause)

    with _leasing(journal, Witness(), Bounds(0, 0)) as leasing:
        leasing.begin(1, [ONE])
        late = asyncio.create_task(leasing.positions())
        assert await asyncio.to_thread(asked.wait, 240)
        leasing.revoke()
        settled = asyncio.create_task(leasing.settled())
        await asyncio.sleep(0.05)
        assert not settled.done(), "the other workers would take their leases before this one"
        go_on.set()
        await settled
        assert journal.progress[ONE] == (1, 0)
        assert await late == {}


def _pause_at(operation: str) -> tuple[Callable[[str], None], threading.Event, threading.Event]:
    """What stops the journal's thread at an operation; set once it has come there, and to be set for it to go on."""
    reached, go_on = threading.Event(), threading.Event()

    def pause(present: str) -> None:
        if present == operation:
            reached.set()
            go_on.wait(240)

    return pause, reached, go_on


@contextmanager
def _leasing(
    journal: MemoryJournal,
    witness: Witness,
    bounds_of_each: Bounds,
    *,
    topic_ids: Callable[[Collection[str]], Awaitable[dict[str, str]]] | None = None,
) -> Iterator[Leasing]:
    async def bounds(partitions: Collection[Partition]) -> dict[Partition, Bounds]:
        return dict.fromkeys(partitions, bounds_of_each)

    async def no_ids(_topics: Collection[str]) -> dict[str, str]:
        return {}

    with ThreadPoolExecutor(max_workers=1) as executor:
        yield Leasing(
            journal,
            Intake(FetchBudget(max_records=10, max_bytes=10**6)),
            executor=executor,
            bounds=bounds,
            hooks=Hooks(observer=witness),
            topic_ids=topic_ids or no_ids,
        )
