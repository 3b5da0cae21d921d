"""A client that is stopped while its broker is away ends in time and leaves nothing running."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import Producer

from streamer.stream.closing import closed_within
from streamer.stream.embedded_broker import EmbeddedBroker
from tests.services.error_log import ErrorLog

pytestmark = pytest.mark.expected_errors("^aiokafka")


async def nothing_is_left() -> None:
    """Wait for the other tasks of this loop: they end."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, left = await asyncio.wait(others, timeout=240)
        assert not left


async def test_a_producer_whose_broker_went_away_gives_up():
    with EmbeddedBroker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        await producer.send_and_wait("t", b"there")
    lost = await producer.send("t", b"nobody is there")
    await closed_within(producer, 0.3)
    await nothing_is_left()
    with pytest.raises(Exception, match=r"(?i)closed|connection"):
        await lost


async def test_a_consumer_whose_broker_went_away_gives_up():
    with EmbeddedBroker() as broker:
        consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap, group_id=None)
        await consumer.start()
    await closed_within(consumer, 0.3)
    await nothing_is_left()


def test_a_producer_that_is_asking_for_metadata_is_closed_without_an_error(expected_errors: ErrorLog):
    """The broker is there, and its answer comes too late for the client that nobody needs any more."""
    slow = {"bootstrap.servers": "embedded", "test.mock.num.brokers": 1, "test.mock.broker.rtt": 300}
    broker = Producer({**slow, "log_level": 0})
    [found] = broker.list_topics(timeout=240).brokers.values()

    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=f"{found.host}:{found.port}", enable_idempotence=True)
        await producer.start()
        lost = await producer.send("t", b"the flush waits for this one")
        asking = producer.client.force_metadata_update()
        await closed_within(producer, 0.1)
        await nothing_is_left()
        assert await asking is False
        with pytest.raises(KafkaError):
            await lost

    asyncio.run(scenario())
    assert expected_errors.lines == []
