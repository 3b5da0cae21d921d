"""Topics that the broker does not know yet when a worker joins: read soon after they appear."""

import asyncio
import time

import pytest

from tests.integration.stream.brokers import TestedBroker
from tests.integration.stream.deciders import EchoDecider
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.running import a_worker, numbered, published


@pytest.mark.kafka
@pytest.mark.expected_errors(r"aiokafka\.(cluster|consumer\.group_coordinator): ")
async def test_a_topic_is_read_seconds_after_it_appears(real: TestedBroker):
    source, actions = real.prefix + "in", real.topic("actions")
    journal = MemoryJournal()

    async with a_worker(real, [source], journal, EchoDecider(actions)) as worker:
        await worker.until(lambda: worker.health.unready() != ["the broker has not answered yet"])
        await asyncio.sleep(6)
        assert worker.health.unready(), "it reads nothing, and says that it is ready"
        real.topic("in")
        began = time.monotonic()
        await published(real.connection, source, numbered(100))
        await worker.until(lambda: journal.total() == 100)
        assert time.monotonic() - began < 240, "nobody looked before the metadata was old"
        await worker.until(lambda: not worker.health.unready())
