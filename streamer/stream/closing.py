"""Ending a Kafka client in bounded time, with nothing of it left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerClosed


async def closed_within(client: AIOKafkaProducer | AIOKafkaConsumer, seconds: float) -> None:
    """Stop a producer or consumer; what it has not flushed or committed by then is given up.

    The library's own stop waits for a broker that is unavailable, and one that is broken off has closed nothing: the
    client's tasks would go on for as long as the process lives, with their connections, and a second stop
    returns at once.
    """
    stopped = False
    try:
        stopped = await _within(seconds, client.stop)
    finally:
        if not stopped:
            await _abandoned(client)


def cut(connections: Any) -> None:
    """Close every connection of a library's client, waiting neither for what it has to send nor for the other side."""
    for connection in list(connections._conns.values()):
        writer = connection._writer
        connection.close()
        if writer is not None:
            writer.transport.abort()


async def _abandoned(client: Any) -> None:
    producing = isinstance(client, AIOKafkaProducer)
    connections = client.client if producing else client._client
    await _ask_no_more(connections)
    # Requests in flight fail with their connection, and the tasks that wait for them can end.
    cut(connections)
    for part in (client._sender,) if producing else (client._coordinator, client._fetcher):
        if part is not None:
            await _within(1.0, part.close)
    if producing:
        _fail_all(client._message_accumulator)
    await _within(1.0, connections.close)
    cut(connections)  # a task may have reconnected before it ended


async def _ask_no_more(connections: Any) -> None:
    """End the task that asks for metadata: it would log the loss of the connections that we cut as an error."""
    asking, update = connections._sync_task, connections._md_update_fut
    if asking is not None:
        asking.cancel()
        await asyncio.wait([asking], timeout=0.1)
    if update is not None and not update.done():
        update.set_result(False)


async def _within(seconds: float, end: Callable[[], Awaitable[object]]) -> bool:
    """Whether something ended well in time. Raises `CancelledError` when we are cancelled, and for nothing else.

    What the library waits for may itself be cancelled, or fail in ways of its own in a client that is half closed.
    """
    task = asyncio.ensure_future(end())
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.1)
    return not task.cancelled() and task.done() and task.exception() is None


def _fail_all(accumulator: Any) -> None:
    """Fail the futures of messages that will not be sent."""
    # A batch that was tried before still removes itself from the pending ones when it fails.
    for queue in accumulator._batches.values():
        accumulator._pending_batches.update(queue)
    accumulator._batches.clear()
    failed = [*accumulator._pending_batches]
    accumulator.fail_all(ProducerClosed())
    for batch in failed:
        if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
            batch._drain_waiter.exception()  # else asyncio reports an error that was never retrieved
