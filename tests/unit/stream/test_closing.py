"""A client that is stopped while its broker is away ends in time and leaves nothing running."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamer.stream.closing import closed_within
from streamer.stream.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.expected_errors("^aiokafka")


async def what_is_left(seconds: float) -> set[str]:
    """The other tasks of this loop, once they had time to end."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left or asyncio.get_running_loop().time() > deadline:
            return {str(task.get_coro()) for task in left}
        await asyncio.sleep(0.02)


def test_a_producer_whose_broker_went_away_gives_up() -> None:
    async def scenario() -> None:
        with EmbeddedBroker() as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
            await producer.start()
            await producer.send_and_wait("t", b"there")
        lost = await producer.send("t", b"nobody is there")
        await closed_within(producer, 0.3)
        assert await what_is_left(1.0) == set()
        with pytest.raises(Exception, match=r"(?i)closed|connection"):
            await lost

    asyncio.run(scenario())


def test_a_consumer_whose_broker_went_away_gives_up() -> None:
    async def scenario() -> None:
        with EmbeddedBroker() as broker:
            consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap, group_id=None)
            await consumer.start()
        await closed_within(consumer, 0.3)
        assert await what_is_left(1.0) == set()

    asyncio.run(scenario())
