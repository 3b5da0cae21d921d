"""Workers in this process, and what tests wait for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from streamer.journal import DataGap, Headers, Journal, OutboxMessage
from streamer.stream.connection import KafkaConnection, Subscription
from streamer.stream.ending import Ending, StopDeadline
from streamer.stream.health import WorkerHealth
from streamer.stream.hooks import Decider, SilentObserver
from streamer.stream.tail import KafkaLog, TailedRecord
from streamer.stream.worker import WorkerLimits, run_worker
from tests.integration.stream.brokers import TestedBroker


class Witness(SilentObserver):
    """Remembers what happened."""

    def __init__(self) -> None:
        self.resets: list[str] = []
        self.gaps: list[DataGap] = []
        self.latencies: list[float] = []
        self.parked_rows: list[int] = []
        self.lags: dict[tuple[str, int], int] = {}

    def reset(self, reason: str) -> None:
        self.resets.append(reason)

    def gap(self, gap: DataGap) -> None:
        self.gaps.append(gap)

    def acknowledged(self, seconds: float, headers: Headers) -> None:
        self.latencies.append(seconds)

    def parked(self, message: OutboxMessage, error: str) -> None:
        self.parked_rows.append(message.id)

    def lag(self, topic: str, partition: int, records: int) -> None:
        self.lags[topic, partition] = records


class RunningWorker:
    """One `run_worker` as a task."""

    def __init__(
        self, broker: TestedBroker, topics: Sequence[str], journal: Journal, decider: Decider
    ) -> None:
        self.witness = Witness()
        self.health = WorkerHealth(self.witness)
        self.stop = asyncio.Event()
        self.terminated: list[int] = []
        self._deadline = StopDeadline(240.0, terminate=self.terminated.append)
        self.passed: list[str] = []
        self._arguments: dict[str, Any] = {
            "subscription": Subscription(
                connection=broker.connection, topics=topics, group_id=broker.group, log_id=broker.log_id
            ),
            "journal": journal,
            "decider": decider,
            "health": self.health,
            "ending": Ending(deadline=self._deadline, asked=self.stop),
            "failpoint": self.passed.append,
        }

    def start(self, limits: WorkerLimits | None = None, **more: Any) -> RunningWorker:
        running = run_worker(**self._arguments, limits=limits or WorkerLimits(), **more)
        self.task = asyncio.create_task(running)
        self.task.add_done_callback(lambda _: self._deadline.call_off())
        return self

    async def until(self, condition: Callable[[], bool], *, seconds: float = 240.0) -> None:
        """Wait for a condition; raise what ended the worker before."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.task.done():
                self.task.result()
                raise AssertionError("the worker returned")
            assert time.monotonic() < deadline, f"waited in vain; {self.health.unready()}"
            await asyncio.sleep(0.02)

    async def drain(self) -> None:
        """Stop, and not by the deadline of a stop."""
        self.stop.set()
        await asyncio.wait_for(self.task, 200)


@contextlib.asynccontextmanager
async def a_worker(
    broker: TestedBroker,
    topics: Sequence[str],
    journal: Journal,
    decider: Decider,
    limits: WorkerLimits | None = None,
    **more: Any,
) -> AsyncIterator[RunningWorker]:
    worker = RunningWorker(broker, topics, journal, decider).start(limits, **more)
    try:
        yield worker
    finally:
        worker.stop.set()
        await asyncio.wait({worker.task}, timeout=240)
    if not worker.task.done():
        raise AssertionError("the worker did not stop")


async def published(
    connection: KafkaConnection,
    topic: str,
    messages: Iterable[tuple[bytes | None, bytes | None]],
    **send: Any,
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=connection.bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        futures = [await producer.send(topic, value, key=key, **send) for key, value in messages]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()


def numbered(count: int, *, start: int = 0) -> list[tuple[bytes, bytes]]:
    return [(f"k{i % 97}".encode(), f"ok-{i}".encode()) for i in range(start, start + count)]


def all_records(connection: KafkaConnection, topic: str) -> list[TailedRecord]:
    """What a topic holds now."""
    log = KafkaLog(connection, log_id="read")
    return list(log.read(topic, {number: end for number, (_, end) in log.bounds(topic).items()}))
