"""The relay ends when it is told to, whatever else happens in the same moment."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from streamer.journal import OutboxMessage
from streamer.stream.connection import KafkaConnection
from streamer.stream.hooks import Hooks
from streamer.stream.relay import Relay
from streamer.stream.relay_lane import RelayLane, RelayLimits
from tests.integration.stream.memory_journal import MemoryJournal


def a_relay(executor: Executor, *waiting: OutboxMessage, idle_poll: float = 30) -> Relay:
    journal = MemoryJournal()
    for message in waiting:
        journal.enqueue(message)
    return Relay(
        KafkaConnection("127.0.0.1:1"), journal, executor=executor, sources=dict,
        takes_ownerless=lambda: True,
        limits=RelayLimits(max_request_size=1000, idle_poll=idle_poll), hooks=Hooks(),
    )  # fmt: skip


async def test_a_cancellation_together_with_a_wake_is_not_lost():
    # So it is when a commit passes the dead-letter cap: it wakes the relay, and then the worker halts.
    with ThreadPoolExecutor(1) as executor:
        relay = a_relay(executor)
        running = asyncio.create_task(relay.run())
        await asyncio.sleep(0.1)
        relay.wake()
        await asyncio.sleep(0)  # what waits for the wake is done, and the relay has not gone on yet
        running.cancel()
        await asyncio.wait([running], timeout=240)
        assert running.cancelled()


@pytest.mark.expected_errors("aiokafka: Unable connect")
def test_a_broker_that_is_away_is_not_asked_without_a_pause(monkeypatch: pytest.MonkeyPatch):
    rounds, begun = 0, asyncio.Event()
    publish = RelayLane._publish_some

    async def counted(lane: RelayLane) -> bool:
        nonlocal rounds
        rounds += 1
        begun.set()
        return await publish(lane)

    monkeypatch.setattr(RelayLane, "_publish_some", counted)

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as executor:
            relay = a_relay(executor, OutboxMessage("actions", b"k", b"v", ()), idle_poll=0.05)
            running = asyncio.create_task(relay.run())
            await asyncio.wait_for(begun.wait(), 240)
            await asyncio.sleep(2)
            running.cancel()
            await asyncio.wait([running], timeout=240)

    asyncio.run(scenario())
    assert rounds <= 100
