"""A relay by itself on a real broker, and the pace at which it publishes."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streamer.journal import Lease, OutboxMessage, Partition
from streamer.stream.health import WorkerHealth
from streamer.stream.relay import Relay
from streamer.stream.reports import Reports
from tests.integration.stream.running import Witness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from streamer.stream.connection import KafkaConnection
    from tests.integration.stream.memory_journal import MemoryJournal

SOURCE = Partition("log", "in", 0)
EVERY = 0.02
WITHIN = 1.2
"""Messages may take so much longer than without the fault."""


class Relaying:
    """A running relay of one source partition, what it publishes from, and what it told."""

    def __init__(self, connection: KafkaConnection, journal: MemoryJournal, pool: ThreadPoolExecutor) -> None:
        self.journal = journal
        self.witness = Witness()
        self.health = WorkerHealth(self.witness)
        self.relay = Relay(
            connection,
            journal,
            executor=pool,
            sources=lambda: {SOURCE: Lease(SOURCE, 1, 0)},
            takes_ownerless=lambda: True,
            max_request_size=1_100_000,
            reports=Reports(observer=self.health),
        )

    def put(self, topic: str, key: bytes, value: bytes = b"v") -> int:
        """Let a message wait; its row."""
        row = self.journal.enqueue(OutboxMessage(topic, key, value, ()), SOURCE)
        self.relay.wake()
        return row

    async def until(self, condition: Callable[[], bool], *, seconds: float = 120.0) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; stuck: {self.health.stuck()}"
            await asyncio.sleep(0.005)

    def published(self, rows: Iterable[int]) -> bool:
        """Whether the broker has acknowledged all of these."""
        return all(self.journal.outbox[row].published for row in rows)

    async def pace(self, topic: str, keys: list[bytes], *, rounds: int = 3) -> float:
        """Seconds for messages that come one after another; the least of some rounds, for the machine only adds."""
        found = []
        for _ in range(rounds):
            began = time.monotonic()
            rows = []
            for key in keys:
                rows.append(self.put(topic, key))
                await asyncio.sleep(EVERY)
            await self.until(lambda rows=rows: self.published(rows))
            found.append(time.monotonic() - began)
        return min(found)


@asynccontextmanager
async def a_relay(connection: KafkaConnection, journal: MemoryJournal) -> AsyncIterator[Relaying]:
    with ThreadPoolExecutor(1) as pool:
        relaying = Relaying(connection, journal, pool)
        task = asyncio.create_task(relaying.relay.run())
        try:
            yield relaying
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
