"""The outbox to Kafka: every row exactly as stored, at least once, in id order."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar, cast

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)

from streamer.stream.backoff import Backoff, until_available
from streamer.stream.closing import closed_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Executor

    from streamer.failpoints import Failpoint
    from streamer.journal import Journal, OutboxMessage, Partition
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.latency import LatencyLedger
    from streamer.stream.observer import StreamObserver

log = structlog.get_logger(__name__)
T = TypeVar("T")

_HOPELESS = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    InvalidTopicError,
    UnsupportedForMessageFormatError,
    # What the producer refuses before it sends: a topic or header name that no broker takes.
    ValueError,
    TypeError,
)
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LOG_EVERY = 10.0
_LEFT_BEHIND = timedelta(seconds=5)
"""A row of no partition that waited so long was left behind by the command that wrote it."""


class Relay:
    """Publishes the outbox rows of the partitions that this worker leases.

    Rows of no partition are policies. The command that wrote one publishes it at once; should it fail, one worker of
    the group does it, after `_LEFT_BEHIND`. Two publishers at a time could leave an older policy as the last one on
    the compacted topic.

    Parameters
    ----------
    journal : `unpublished`, `mark_published` and `park` are called in `executor`.
    sources : the partitions leased now.
    takes_ownerless : tells whether this is the worker that looks after rows of no partition.
    max_request_size : the largest message to try, bytes: the input's limit and what a dead letter adds.
    batch : rows read and published at a time.
    idle_poll : seconds between looks when nobody called `wake`.
    failpoint : called with ``before_publish``, ``after_publish`` and ``after_mark``.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        journal: Journal,
        *,
        executor: Executor,
        sources: Callable[[], Collection[Partition]],
        takes_ownerless: Callable[[], bool],
        max_request_size: int,
        ledger: LatencyLedger,
        observer: StreamObserver,
        tell: Callable[[str, bool], None],
        failpoint: Failpoint,
        batch: int = 1000,
        idle_poll: float = 1.0,
    ) -> None:
        self._connection = connection
        self._journal = journal
        self._executor = executor
        self._sources = sources
        self._takes_ownerless = takes_ownerless
        self._max_request_size = max_request_size
        self._ledger = ledger
        self._observer = observer
        self._tell = tell
        self._failpoint = failpoint
        self._batch = batch
        self._idle_poll = idle_poll
        self._wake = asyncio.Event()
        self._producer: AIOKafkaProducer | None = None
        self._backoff = Backoff()
        self._logged = float("-inf")
        self._finishing = False

    def wake(self) -> None:
        """There is something to publish."""
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return once it finds nothing to publish."""
        self._finishing = True
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled or finished; what can pass is retried forever."""
        try:
            while True:
                self._wake.clear()
                rows = await self.publish_waiting()
                if self._finishing and not rows:
                    return
                if rows < self._batch and not self._finishing:
                    # Not `wait_for`: Python 3.11's loses a cancellation that comes together with the wake.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._idle_poll):
                            await self._wake.wait()
        finally:
            await self._close_producer()

    async def publish_waiting(self) -> int:
        """Try one batch; how many rows it had. What could not be published now is in the next one again."""
        rows = await self._in_database(
            lambda: self._journal.unpublished(
                sorted(self._sources()),
                limit=self._batch,
                ownerless=_LEFT_BEHIND if self._takes_ownerless() else None,
            )
        )
        again = await self._attempt(rows, together=True) if rows else []
        if again:
            # A row that fails alone is hopeless; one that failed with others may not be.
            await asyncio.sleep(self._backoff.next_delay())
            again = await self._attempt(again, together=False)
        if again:
            await asyncio.sleep(self._backoff.next_delay())
        else:
            self._backoff.reset()
        return len(rows)

    async def _attempt(self, rows: Sequence[OutboxMessage], *, together: bool) -> list[OutboxMessage]:
        """Send the rows and mark what the broker has; those that have to be tried again, in order."""
        began = time.monotonic()
        failed: dict[str, BaseException] = {}
        self._failpoint("before_publish")
        if together:
            results = await self._send(rows, failed)
        else:
            results = [(await self._send([row], failed))[0] for row in rows]
        published = [row for row, error in zip(rows, results, strict=True) if error is None]
        if published:
            self._failpoint("after_publish")
            await self._in_database(lambda: self._journal.mark_published([row.id for row in published]))
            self._failpoint("after_mark")
            self._observer.stage("publish", time.monotonic() - began)
        again: list[OutboxMessage] = []
        for row, error in zip(rows, results, strict=True):
            if error is None:
                continue
            if not together and isinstance(error, _HOPELESS):
                await self._park(row, error)
            else:
                again.append(row)
        answered = any(error is None or isinstance(error, _HOPELESS) for error in results)
        self._tell("broker", answered)
        if again:
            self._report(next(error for error in results if error is not None), len(again))
        return again

    async def _send(
        self, rows: Sequence[OutboxMessage], failed: dict[str, BaseException]
    ) -> list[BaseException | None]:
        """One entry a row: None once the broker has acknowledged it, else the error.

        `failed` has the topics that do not take messages now: their rows are not tried, for that would change
        their order; those of other topics are.
        """
        if all(row.topic in failed for row in rows):
            return [failed[row.topic] for row in rows]
        try:
            producer = await self._started_producer()
        except (KafkaError, OSError, TimeoutError) as error:
            failed.update(dict.fromkeys((row.topic for row in rows), error))
            return [error] * len(rows)
        results: list[BaseException | None] = [None] * len(rows)
        underway: dict[int, asyncio.Future[object]] = {}
        for place, row in enumerate(rows):
            if row.topic in failed:
                results[place] = failed[row.topic]
                continue
            try:
                underway[place] = await _sent(producer, row)
            except (*_HOPELESS, KafkaError, OSError) as error:
                results[place] = error
                if not isinstance(error, _HOPELESS):
                    failed[row.topic] = error
        answers = await asyncio.gather(*underway.values(), return_exceptions=True)
        now_ms = time.time() * 1000
        for place, answer in zip(underway, answers, strict=True):
            if isinstance(answer, BaseException):
                results[place] = answer
                if not isinstance(answer, _HOPELESS):
                    failed[rows[place].topic] = answer
            else:
                seconds = self._ledger.acknowledged(rows[place], now_ms)
                if seconds is not None:
                    self._observer.acknowledged(seconds)
        if any(error is not None for error in results):
            # After a failed batch an idempotent producer's sequence numbers have a hole: begin with a new one.
            await self._close_producer()
        return results

    async def _started_producer(self) -> AIOKafkaProducer:
        if self._producer is None:
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
            self._producer = producer
        return self._producer

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await closed_within(producer, 5)  # nothing unacknowledged counts

    async def _park(self, row: OutboxMessage, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        await self._in_database(lambda: self._journal.park(row.id, reason[:1000]))
        log.error("stream.message_parked", row=row.id, topic=row.topic, error=reason[:300])
        self._observer.parked(row, reason)

    def _report(self, error: BaseException, rows: int) -> None:
        now = time.monotonic()
        if now - self._logged > _LOG_EVERY:
            self._logged = now
            log.warning("stream.publish_failed", rows=rows, error=f"{type(error).__name__}: {error}"[:300])

    async def _in_database(self, call: Callable[[], T]) -> T:
        answer = await until_available(self._executor, call, part="database", tell=self._tell)
        return cast("T", answer)  # it is always wanted, so a None is the call's own


async def _sent(producer: AIOKafkaProducer, row: OutboxMessage) -> asyncio.Future[object]:
    """Hand a row to the producer; the future is done when the broker has it."""
    if not _TOPIC_NAME.fullmatch(row.topic) or row.topic in (".", ".."):
        # The library would look for such a topic without a pause until its time is up.
        raise InvalidTopicError(row.topic)
    headers = list(row.headers)
    if row.key is not None or row.value is not None:
        sent: asyncio.Future[object] = await producer.send(row.topic, row.value, key=row.key, headers=headers)
        return sent
    # A tombstone without a key (the dead letter of one): the library refuses it by itself, in a batch not.
    batch = producer.create_batch()
    batch.append(key=None, value=None, timestamp=None, headers=headers)
    partitions = await producer.partitions_for(row.topic)
    return cast(
        "asyncio.Future[object]", await producer.send_batch(batch, row.topic, partition=min(partitions))
    )
