"""The event loop in a thread that asks language models."""

import asyncio
import threading

import pytest

from streamer.errors import UsageError
from streamer.labels.llm.pool import Pool


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

    def read() -> None:
        with pytest.raises(UsageError, match="was closed while it worked"):
            list(pool.finished([job], ahead=1))

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(60)
    pool.close(nothing)
    reader.join(60)
    assert not reader.is_alive()
    (task,) = kept
    assert task.done()
    assert task.cancelled()
    assert ended[0] == "job"
    assert ended[-1] == "close"
