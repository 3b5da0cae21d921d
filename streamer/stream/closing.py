"""Ending a Kafka client in bounded time, with nothing of it left behind."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerClosed

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

_MAY_FAIL = (KafkaError, OSError, TimeoutError)


async def closed_within(client: AIOKafkaProducer | AIOKafkaConsumer, seconds: float) -> None:
    """Stop a producer or consumer; what it has not flushed or told its group by then is given up.

    The library's own stop waits for a broker that is away, and one that is broken off has closed nothing: the
    client's tasks would go on for as long as the process lives, with their connections, and a second stop
    returns at once.
    """
    try:
        async with asyncio.timeout(seconds):
            await cast("Any", client).stop()
    except _MAY_FAIL:
        await _abandoned(client)
    except asyncio.CancelledError:
        await _abandoned(client)
        raise


async def _abandoned(client: Any) -> None:
    producing = isinstance(client, AIOKafkaProducer)
    connections = client.client if producing else client._client
    # Requests in flight fail with their connection, and the tasks that wait for them can end.
    await connections.close()
    parts = (client._sender,) if producing else (client._coordinator, client._fetcher)
    for part in parts:
        if part is not None:
            with contextlib.suppress(*_MAY_FAIL, asyncio.CancelledError):
                async with asyncio.timeout(1.0):
                    await part.close()
    if producing:
        _fail_all(client._message_accumulator)
    await connections.close()  # a task may have connected anew before it ended


def _fail_all(accumulator: Any) -> None:
    """Let nobody wait for a message that will not be sent."""
    # A batch that was tried before still removes itself from the pending ones when it fails.
    for queue in accumulator._batches.values():
        accumulator._pending_batches.update(queue)
    accumulator._batches.clear()
    accumulator.fail_all(ProducerClosed())
