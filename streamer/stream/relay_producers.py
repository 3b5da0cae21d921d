"""A lane's producer, and a new one after a fatal error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer

from streamer.stream.closing import closed_within
from streamer.stream.connection import KafkaConnection


class Producers:
    """One idempotent producer at a time. A retired one is closed when its last user is done with it."""

    def __init__(self, connection: KafkaConnection, *, max_request_size: int) -> None:
        self._connection = connection
        self._max_request_size = max_request_size
        self._current: AIOKafkaProducer | None = None
        self._users: dict[AIOKafkaProducer, int] = {}
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[AIOKafkaProducer]:
        """Give the started producer. Raises `KafkaError` or `OSError` when there is no broker."""
        async with self._starting:
            producer = self._current or await self._started()
        self._users[producer] = self._users.get(producer, 0) + 1
        try:
            yield producer
        finally:
            self._users[producer] -= 1
            self._close_unused()

    def retire(self, producer: AIOKafkaProducer) -> None:
        """Stop using this one for new messages."""
        if producer is self._current:
            self._current = None

    async def close(self) -> None:
        """Close all; what is not acknowledged does not count."""
        self._current = None
        self._close_unused()
        await asyncio.gather(*self._closing)

    async def _started(self) -> AIOKafkaProducer:
        arguments = self._connection.for_aiokafka(AIOKafkaProducer)
        producer = AIOKafkaProducer(
            **{"request_timeout_ms": 10_000, **arguments},
            acks="all",
            enable_idempotence=True,
            max_request_size=self._max_request_size,
        )
        try:
            await producer.start()
        except BaseException:
            await closed_within(producer, 1)
            raise
        self._current = producer
        self._users[producer] = 0
        return producer

    def _close_unused(self) -> None:
        for producer in [one for one, users in self._users.items() if not users and one is not self._current]:
            del self._users[producer]
            task = asyncio.create_task(closed_within(producer, 1))  # its results are no longer needed
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
