"""A broker that goes away between the worker's first look at it and the reader's start."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamer.stream.connection import Subscription
from streamer.stream.faust_engine import FaustEngine, ReaderLimits
from streamer.stream.health import WorkerHealth
from streamer.stream.hooks import Hooks
from streamer.stream.intake import FetchBudget, Intake
from streamer.stream.leasing import Leasing
from tests.integration.stream.brokers import TestedBroker
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.running import Witness
from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.expected_errors(r"^(aiokafka|kafka)", "part_away")


def _run(broker: TestedBroker, scenario: Callable[[FaustEngine, Leasing, Witness], Awaitable[None]]) -> None:
    async def started() -> None:
        witness = Witness()
        budget = FetchBudget(max_records=10, max_bytes=10**6)
        intake = Intake(budget)
        engine = FaustEngine(
            Subscription(connection=broker.connection, topics=[broker.prefix + "in"], group_id=broker.group),
            log_id=broker.log_id,
            intake=intake,
            budget=budget,
            limits=ReaderLimits(),
            observer=WorkerHealth(witness),
        )
        with ThreadPoolExecutor(max_workers=1) as executor:
            leasing = Leasing(
                MemoryJournal(),
                intake,
                executor=executor,
                bounds=engine.bounds,
                hooks=Hooks(observer=witness),
                topic_ids=engine.topic_ids,
            )
            try:
                await scenario(engine, leasing, witness)
            finally:
                await engine.stop()

    asyncio.run(started())


def test_the_reader_waits_for_a_broker_that_is_away_when_it_starts(own_kafka_broker: KafkaBroker) -> None:
    broker = TestedBroker.on(own_kafka_broker)
    source = broker.topic("in")

    async def scenario(engine: FaustEngine, leasing: Leasing, _: Witness) -> None:
        own_kafka_broker.kill()
        starting = asyncio.create_task(engine.start(leasing))
        done, _pending = await asyncio.wait([starting], timeout=3.0)
        assert not done, starting.exception()
        await asyncio.to_thread(own_kafka_broker.start)
        await asyncio.wait_for(starting, 240)
        deadline = time.monotonic() + 240
        while {one.topic for one in engine.assigned()} != {source}:
            assert time.monotonic() < deadline, "nothing was assigned"
            await asyncio.sleep(0.05)

    _run(broker, scenario)


def test_a_reader_that_waits_for_its_broker_can_be_stopped(own_kafka_broker: KafkaBroker) -> None:
    broker = TestedBroker.on(own_kafka_broker)

    async def scenario(engine: FaustEngine, leasing: Leasing, _: Witness) -> None:
        own_kafka_broker.kill()
        starting = asyncio.create_task(engine.start(leasing))
        await asyncio.wait([starting], timeout=3.0)
        assert not starting.done(), starting.exception()
        await asyncio.wait_for(engine.stop(), 240)
        starting.cancel()
        await asyncio.wait([starting], timeout=240)
        assert starting.done()

    _run(broker, scenario)
