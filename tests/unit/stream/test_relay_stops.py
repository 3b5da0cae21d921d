"""The relay ends when it is told to, whatever else happens in the same moment."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streamer.stream.connection import KafkaConnection
from streamer.stream.hooks import Hooks
from streamer.stream.relay import Relay
from streamer.stream.relay_lane import RelayLimits
from tests.integration.stream.memory_journal import MemoryJournal

if TYPE_CHECKING:
    from concurrent.futures import Executor


def a_relay(executor: Executor) -> Relay:
    return Relay(
        KafkaConnection("127.0.0.1:1"),
        MemoryJournal(),
        executor=executor,
        sources=list,
        takes_ownerless=lambda: True,
        limits=RelayLimits(max_request_size=1000, idle_poll=30),
        hooks=Hooks(),
    )


def test_a_cancellation_together_with_a_wake_is_not_lost() -> None:
    # So it is when a commit passes the dead-letter cap: it wakes the relay, and then the worker halts.
    async def scenario() -> None:
        with ThreadPoolExecutor(1) as executor:
            relay = a_relay(executor)
            running = asyncio.create_task(relay.run())
            await asyncio.sleep(0.1)
            relay.wake()
            await asyncio.sleep(0)  # what waits for the wake is done, and the relay has not gone on yet
            running.cancel()
            await asyncio.wait([running], timeout=5)
            assert running.cancelled()

    asyncio.run(scenario())
