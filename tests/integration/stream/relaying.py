"""A relay by itself on a real broker, and the pace at which it publishes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from streamer.journal import Lease, OutboxMessage, Partition
from streamer.stream.connection import KafkaConnection
from streamer.stream.health import WorkerHealth
from streamer.stream.hooks import Hooks
from streamer.stream.relay import Relay
from streamer.stream.relay_lane import RelayLimits
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.running import Witness

SOURCE = Partition("log", "in", 0)
EVERY = 0.02
MOST_BEHIND = 0.2
"""Share of the messages that may wait, while as many more of those that came at the same moments are published."""


class Relaying:
    """A running relay of one source partition, what it publishes from, and what it told."""

    def __init__(
        self, connection: KafkaConnection, journal: MemoryJournal, pool: ThreadPoolExecutor, idle_poll: float
    ) -> None:
        self.journal = journal
        self.witness = Witness()
        self.health = WorkerHealth(self.witness)
        self.held = {SOURCE: Lease(SOURCE, 1, 0)}
        self.relay = Relay(
            connection, journal, executor=pool, sources=lambda: self.held,
            takes_ownerless=lambda: True,
            limits=RelayLimits(max_request_size=1_100_000, idle_poll=idle_poll),
            hooks=Hooks(observer=self.health),
        )  # fmt: skip

    def put(self, topic: str, key: bytes, value: bytes = b"v") -> int:
        """Let a message wait; its row."""
        row = self.journal.enqueue(OutboxMessage(topic, key, value, ()), SOURCE)
        self.relay.wake()
        return row

    def offer(self, topic: str, key: bytes, value: bytes = b"v") -> int:
        """Let a message wait, and hand it to the relay as a commit does; its row."""
        row = self.journal.enqueue(OutboxMessage(topic, key, value, ()), SOURCE)
        self.relay.offer([self.journal.outbox[row].message], [Lease(SOURCE, 1, 0)])
        self.relay.wake()
        return row

    async def until(self, condition: Callable[[], bool], *, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; stuck: {self.health.stuck()}"
            await asyncio.sleep(0.005)

    def published(self, rows: Iterable[int]) -> bool:
        """Whether the broker has acknowledged all of these."""
        return not self.waiting(rows)

    def waiting(self, rows: Iterable[int]) -> int:
        """How many of these the broker has not acknowledged."""
        return sum(not self.journal.outbox[row].published for row in rows)

    async def most_behind(
        self, topic: str, keys: list[bytes], other: Relaying, other_topic: str, *, rounds: int = 3
    ) -> float:
        """How far messages that come one after another fall behind those of another relay, which come at the same moments.

        The share of the keys that waited at the worst moment and whose twins did not, so that whatever else the machine
        does delays both; of the best of some rounds.
        """
        found = []
        for _ in range(rounds):
            rows: list[int] = []
            twins: list[int] = []
            behind = 0

            def seen(rows: list[int] = rows, twins: list[int] = twins) -> bool:
                nonlocal behind
                behind = max(behind, self.waiting(rows) - other.waiting(twins))
                return not self.waiting(rows) and not other.waiting(twins)

            for key in keys:
                rows.append(self.put(topic, key))
                twins.append(other.put(other_topic, key))
                await asyncio.sleep(EVERY)
                seen()
            await self.until(seen)
            found.append(behind / len(keys))
        return min(found)


@asynccontextmanager
async def a_relay(
    connection: KafkaConnection, journal: MemoryJournal, *, idle_poll: float = 1.0
) -> AsyncIterator[Relaying]:
    with ThreadPoolExecutor(1) as pool:
        relaying = Relaying(connection, journal, pool, idle_poll)
        task = asyncio.create_task(relaying.relay.run())
        try:
            yield relaying
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
