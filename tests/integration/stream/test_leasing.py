"""Leasing where the reader gives up waiting: Faust's fetcher is cancelled while it seeks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from streamer.journal import DataGap, Partition
from streamer.stream.fetch_budget import FetchBudget
from streamer.stream.hooks import Hooks
from streamer.stream.intake import Intake
from streamer.stream.leasing import Bounds, Leasing
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.running import Witness

if TYPE_CHECKING:
    from collections.abc import Collection

ONE = Partition("log", "topic", 0)


@pytest.mark.expected_errors("data_gap")
def test_a_gap_whose_recording_was_cancelled_is_recorded_once_and_passed() -> None:
    written, go_on = threading.Event(), threading.Event()

    def pause(operation: str) -> None:
        if operation == "record_gap":
            written.set()
            go_on.wait(10)

    journal, witness = MemoryJournal(after=pause), Witness()
    intake = Intake(FetchBudget(max_records=10, max_bytes=10**6))

    async def bounds(partitions: Collection[Partition]) -> dict[Partition, Bounds]:
        return dict.fromkeys(partitions, Bounds(40, 50))

    async def topic_ids(_topics: Collection[str]) -> dict[str, str]:
        return {}

    async def scenario() -> dict[Partition, int]:
        with ThreadPoolExecutor(max_workers=1) as executor:
            leasing = Leasing(
                journal,
                intake,
                executor=executor,
                bounds=bounds,
                hooks=Hooks(observer=witness),
                topic_ids=topic_ids,
            )
            given_up = asyncio.create_task(leasing.positions(1, [ONE]))
            assert await asyncio.to_thread(written.wait, 10)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            go_on.set()
            return await leasing.positions(1, [ONE])

    assert asyncio.run(scenario()) == {ONE: 40}
    assert journal.gaps == witness.gaps == [DataGap(ONE, 0, 40)]
