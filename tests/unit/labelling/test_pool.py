"""The event loop in a thread that asks language models."""

import asyncio
import gc
import threading
import time
from typing import Any

import anyio
import pytest

from streamer.errors import UsageError
from streamer.labels.llm.pool import Pool


def reading(pool: Pool, job: Any) -> threading.Thread:
    """A thread that waits for a job while the pool is closed."""

    def read() -> None:
        with pytest.raises(UsageError, match="was closed while it worked"):
            list(pool.finished([job], ahead=1))

    reader = threading.Thread(target=read)
    reader.start()
    return reader


def test_what_begins_while_others_are_cancelled_is_ended_too() -> None:
    begun, ended = threading.Event(), []

    async def later() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("later")

    async def job() -> None:
        try:
            begun.set()
            await asyncio.sleep(3600)
        finally:
            kept.append(asyncio.create_task(later()))
            ended.append("job")

    async def nothing() -> None:
        ended.append("close")

    kept: list[asyncio.Task[None]] = []
    pool = Pool("test")

    reader = reading(pool, job)
    assert begun.wait(60)
    pool.close(nothing)
    reader.join(60)
    assert not reader.is_alive()
    (task,) = kept
    assert task.done()
    assert task.cancelled()
    assert ended[0] == "job"
    assert ended[-1] == "close"


def test_a_task_of_a_job_that_has_not_begun_when_all_are_cancelled_leaves_nothing_behind() -> None:
    """A connection being made is one; Python would complain of a coroutine never awaited."""
    begun, closing = threading.Event(), threading.Event()

    async def child() -> None:
        await asyncio.sleep(3600)

    async def job() -> None:
        begun.set()
        assert closing.wait(60)
        time.sleep(0.2)  # noqa: ASYNC251 - until the loop has been told to end
        await asyncio.sleep(0)
        async with anyio.create_task_group() as group:
            group.start_soon(child)

    async def nothing() -> None:
        pass

    pool = Pool("test")

    reader = reading(pool, job)
    assert begun.wait(60)
    threading.Timer(0.05, closing.set).start()
    pool.close(nothing)
    reader.join(60)
    gc.collect()  # pytest raises what is complained of
