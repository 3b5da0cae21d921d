"""One topic's lane of the relay: its messages to Kafka, each partition at its own pace."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar, cast

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    RecordListTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from aiokafka.partitioner import murmur2

from streamer.journal import Journal, Lease, OutboxMessage, Partition
from streamer.stream.backoff import Backoff, until_available
from streamer.stream.connection import KafkaConnection
from streamer.stream.hooks import Hooks
from streamer.stream.relay_producers import Producers

Read = Callable[[str, Sequence[Partition], int, int], list[OutboxMessage]]

log = structlog.get_logger(__name__)
T = TypeVar("T")

_HOPELESS = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    InvalidTopicError,
    UnsupportedForMessageFormatError,
    # What the producer refuses before it sends: a header name that no broker takes.
    ValueError,
    TypeError,
)
_SILENT = (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError, OSError)
"""Errors without an answer: if nothing else is acknowledged, the broker is unavailable."""

_OF_THE_TOPIC = (TopicAuthorizationFailedError, UnknownTopicOrPartitionError)
"""Errors that all partitions of a topic have in common."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LOG_EVERY = 10.0
_LINGER = 0.005
"""Seconds to wait so that messages about to be acknowledged are marked together with the others."""

_LOOK_AHEAD = 0.02
"""Seconds after which a lane reads past the messages of a partition that is slow."""

_REREAD_SECONDS = 30.0
"""Seconds between readings from the first message on; in between only new ones are read."""

_IDLE = 60.0
"""Seconds without a message after which a lane ends and its producer is closed."""

_METADATA_WITHIN = 5.0
_SLOW = 1.0
"""Seconds without an answer after which a lane looks whether the partition still has a leader."""

_LAST_DELAY = 5.0
_OPEN_AFTER = 2
"""Failures in a row after which a partition is said to be stuck; one alone may be a leader that moves."""

_MAX_BYTES = 16 * 1024 * 1024
"""The most that is read at a time, and that waits as offered."""


class _Circuit:
    """Opens with a failure and lets one attempt through after each delay; closes with a success."""

    def __init__(self) -> None:
        self.failures = 0
        self._backoff = Backoff(last=_LAST_DELAY)
        self.retry_at = 0.0

    def fail(self) -> None:
        self.failures += 1
        self.retry_at = time.monotonic() + self._backoff.next_delay()

    def close(self) -> None:
        self.failures = 0
        self.retry_at = 0.0
        self._backoff.reset()


@dataclass(eq=False)
class _Destination:
    """One partition of the topic, or (None) the one that the producer chooses for messages without
    a key.

    `sending` is on its way until its result is known; `behind` is the lowest id in the queue that
    was passed over while this one could not take it; `singly` messages are to be sent one by one,
    for one of them may be hopeless; `stuck`: this was reported.
    """

    number: int | None
    circuit: _Circuit = field(default_factory=_Circuit)
    sending: asyncio.Task[_Sent] | None = None
    behind: int | None = None
    singly: int = 0
    stuck: bool = False

    @property
    def free(self) -> bool:
        return self.sending is None and time.monotonic() >= self.circuit.retry_at

    def passed_over(self, message: OutboxMessage) -> None:
        if message.queued:
            self.behind = message.id if self.behind is None else min(self.behind, message.id)


@dataclass
class _Sent:
    """The outcome of some messages to one destination: acknowledged, certainly hopeless, or to be sent again.

    `spoiled`: a batch failed, and an idempotent producer's sequence numbers have a hole.
    """

    began: float
    acknowledged: list[OutboxMessage] = field(default_factory=list)
    hopeless: list[tuple[OutboxMessage, BaseException]] = field(default_factory=list)
    again: Sequence[OutboxMessage] = ()
    errors: list[BaseException] = field(default_factory=list)
    spoiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits:
    """The relay's bounds: the largest message to try, in bytes (the input's limit and what a
    dead letter adds); messages that a lane reads and publishes at a time; seconds between looks
    without a `wake`, and between looks for topics without a lane."""

    max_request_size: int
    batch: int = 1000
    idle_poll: float = 1.0


@dataclass(eq=False)
class RelayLane:
    """Publishes the messages of one topic; see `streamer.stream.relay.Relay` for the arguments.

    Messages of a partition are in flight one group at a time, in the order of their ids; a
    partition that failed is asked again after a delay, with one message, and the lane reads past
    its messages. What the broker has is marked as published while the next messages are sent;
    nothing is read meanwhile, or it would be sent again. `read`, called in `executor`, gives of
    (topic, sources, after, max_bytes) the oldest messages, at most `batch`.
    """

    topic: str
    connection: KafkaConnection
    journal: Journal
    _: KW_ONLY
    executor: Executor
    sources: Callable[[], Mapping[Partition, Lease]]
    read: Read
    limits: RelayLimits
    hooks: Hooks

    def __post_init__(self) -> None:
        self._producers = Producers(self.connection, max_request_size=self.limits.max_request_size)
        self._whole = _Destination(None)  # the topic itself, before any partition of it is known
        self._destinations: dict[int | None, _Destination] = {}
        self._held: dict[Partition, Lease] = {}
        self._after = 0  # reading goes on behind this id, which falls back for what was passed over
        self._seen = 0  # the highest id that was read or offered
        self._reread_at = 0.0
        self._read_at = float("-inf")
        self._to_read = True
        self._offered: list[OutboxMessage] = []
        self._acknowledged: list[OutboxMessage] = []
        self._marking: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._finishing = False
        self._logged = float("-inf")

    def wake(self) -> None:
        """There may be something to read and publish."""
        self._to_read = True
        self._wake.set()

    def offer(self, messages: Sequence[OutboxMessage]) -> None:
        """Take messages that were queued just now, in the order of their ids.

        They need not be read then, unless they may have been already, or too many wait.
        """
        if messages[0].id > self._seen and _bytes(self._offered) + _bytes(messages) <= _MAX_BYTES:
            self._offered += messages
            self._seen = messages[-1].id
        else:
            self._after = min(self._after, messages[0].id - 1, *(one.id - 1 for one in self._offered[:1]))
            self._offered, self._to_read = [], True
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return once it finds nothing that it can publish."""
        self._finishing = self._to_read = True
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled, finished, or idle for a while."""
        waking = asyncio.create_task(self._wake.wait())
        used = time.monotonic()
        try:
            while True:
                finishing = self._finishing
                if waking.done():
                    self._wake.clear()
                    waking = asyncio.create_task(self._wake.wait())
                more = await self._publish_some()
                if self._waits() or more:
                    used = time.monotonic()
                idle = time.monotonic() - used > _IDLE
                if (finishing or idle) and not more and not self._underway() and self._marking is None:
                    return
                await self._wait(waking, more=more)
                await self._settle()
        finally:
            waking.cancel()
            marking = [self._marking] if self._marking is not None else []
            tasks = [waking, *self._underway(), *marking]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in (self._whole, *self._destinations.values()):
                self._flows(one)
            await self._producers.close()

    async def _wait(self, waking: asyncio.Task[object], *, more: bool) -> None:
        """Until something was sent, there is something new, or it is time to try again."""
        underway = self._underway()
        now = time.monotonic()
        # Each destination's own time: what was skipped is tried again then.
        due = [
            one.circuit.retry_at - now
            for one in self._all()
            if one.sending is None and (one.circuit.retry_at > now or one.behind is not None)
        ]
        timeout = max(0.0, min([self.limits.idle_poll, *due]))
        if more:
            timeout = min(timeout, _LOOK_AHEAD if underway else 0.0)
        elif self._whole.free:
            timeout = min(timeout, max(0.0, self._read_at + self.limits.idle_poll - now))
        marking = [self._marking] if self._marking is not None else []
        await asyncio.wait(
            [waking, *underway, *marking], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )

    async def _publish_some(self) -> bool:
        """Read on and send what can be sent; whether there may be more that can."""
        if not self._whole.free or len(self._acknowledged) >= self.limits.batch:
            return False
        # Settled once: one whose time came in between would have later messages sent before those passed over.
        ready = self._choose_start()
        from_first = self._after == 0
        offered: list[OutboxMessage] = []
        full = False
        if self._to_read or time.monotonic() >= self._read_at + self.limits.idle_poll:
            messages = await self._read_on()
            full = len(messages) >= self.limits.batch or _bytes(messages) >= _MAX_BYTES
            self._to_read |= full
        else:
            from_first = False
            messages = offered = self._offered
            self._offered = []
        if not messages:
            if from_first:
                self._none_waits(self._all())
            return False
        began_after = self._after
        if not offered:
            self._after = max([self._after, *(one.id for one in messages if one.queued)])
        if not _TOPIC_NAME.fullmatch(self.topic) or self.topic in (".", ".."):
            # The library would search for such a topic without a pause until its timeout.
            for message in messages:
                await self._park(message, InvalidTopicError(self.topic))
            return True
        partitions = await self._partitions(len(messages))
        if partitions is None:
            for message in messages:
                self._whole.passed_over(message)
            return False
        groups: dict[_Destination, list[OutboxMessage]] = {}
        left: list[OutboxMessage] = []
        seen = {self._whole}
        for message in messages:
            one = self._destination(message.key, partitions, ready)
            most = 1 if one.circuit.failures or self._whole.circuit.failures else self.limits.batch
            seen.add(one)
            if one in ready and len(groups.get(one, ())) < most:
                groups.setdefault(one, []).append(message)
            elif offered:
                left.append(message)
            else:
                one.passed_over(message)
        self._offered = left + self._offered
        if from_first and not full:
            self._none_waits(set(self._destinations.values()) - seen)
        for one, group in groups.items():
            one.sending = asyncio.create_task(
                self._send(one, group), name=f"stream-relay-{self.topic}-{one.number}"
            )
        taken = sum(not one.free for one in self._destinations.values() if one.number is not None)
        return full and taken < len(partitions) and (bool(groups) or self._after > began_after)

    async def _read_on(self) -> list[OutboxMessage]:
        """Read what comes next; what was offered meanwhile and read too counts as read."""
        if self._marking is not None:
            await self._marking
        self._to_read, self._read_at = False, time.monotonic()
        messages = await self._in_database(
            lambda: self.read(self.topic, sorted(self._held), self._after, _MAX_BYTES)
        )
        read = {one.id for one in messages if one.queued}
        self._seen = max([self._seen, *read])
        self._offered = [one for one in self._offered if one.id not in read]
        return messages

    def _choose_start(self) -> set[_Destination]:
        """Go back to what was skipped for a destination that can take it now, and sometimes to the start.

        Returns those that can.
        """
        held = dict(self.sources())
        now = time.monotonic()
        if held != self._held or now >= self._reread_at:
            # Ids grow within the partitions that we hold, and only there.
            self._held, self._reread_at, self._after = held, now + _REREAD_SECONDS, 0
            self._offered, self._to_read = [], True
            for one in self._all():
                one.behind = None
        ready = {one for one in self._all() if one.free}
        for one in ready:
            if one.behind is not None:
                self._after = min(self._after, one.behind - 1)
                one.behind, self._to_read = None, True
        return ready

    def _none_waits(self, destinations: Collection[_Destination]) -> None:
        """A destination without a message here is no longer stuck: another worker may have its messages now."""
        for one in destinations:
            if one.sending is None:
                one.circuit.close()
                self._flows(one)

    async def _partitions(self, messages: int) -> Sequence[int] | None:
        """The topic's partitions; None when they are unavailable now."""
        try:
            async with self._producers.one() as producer, asyncio.timeout(_METADATA_WITHIN):
                found = await producer.partitions_for(self.topic)
        except TimeoutError:
            self._failed(self._whole, UnknownTopicOrPartitionError(self.topic), messages)
        except (KafkaError, OSError) as error:
            self._failed(self._whole, error, messages)
        else:
            return sorted(found)
        return None

    def _destination(
        self, key: bytes | None, partitions: Sequence[int], ready: set[_Destination]
    ) -> _Destination:
        number = None if key is None else partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
        if number not in self._destinations:
            self._destinations[number] = _Destination(number)
            ready.add(self._destinations[number])
        return self._destinations[number]

    async def _send(self, to: _Destination, messages: Sequence[OutboxMessage]) -> _Sent:
        sent = _Sent(time.monotonic())
        self.hooks.failpoint("before_publish")
        try:
            async with self._producers.one() as producer:
                await self._require_leader(producer, to.number)
                for group in [[message] for message in messages[: to.singly]] + (
                    [messages[to.singly :]] if messages[to.singly :] else []
                ):
                    await self._send_group(producer, to, group, sent)
                    if sent.spoiled or sent.errors:
                        self._producers.retire(producer)
                        break
        except (KafkaError, OSError, TimeoutError) as error:
            sent.errors.append(error)
        done = {message.id for message in (*sent.acknowledged, *(message for message, _ in sent.hopeless))}
        sent.again = [message for message in messages if message.id not in done]
        return sent

    async def _require_leader(self, producer: AIOKafkaProducer, number: int | None) -> None:
        """Raise where a message would wait in the producer for a leader, and all that come after it behind it."""
        if number is None:
            return
        if not self._has_leader(producer, number):
            async with asyncio.timeout(_METADATA_WITHIN):
                await producer.client.force_metadata_update()
            if not self._has_leader(producer, number):
                raise LeaderNotAvailableError(f"{self.topic}, partition {number}")

    def _has_leader(self, producer: AIOKafkaProducer, number: int) -> bool:
        leader = producer.client.cluster.leader_for_partition(TopicPartition(self.topic, number))
        return leader is not None and leader != -1

    async def _send_group(
        self,
        producer: AIOKafkaProducer,
        to: _Destination,
        group: Sequence[OutboxMessage],
        sent: _Sent,
    ) -> None:
        underway: list[tuple[OutboxMessage, asyncio.Future[object]]] = []
        for message in group:
            try:
                underway.append((message, await _handed_over(producer, message, to.number)))
            except _HOPELESS as error:
                sent.hopeless.append((message, error))
            except (
                KafkaError,
                OSError,
                AssertionError,
            ) as error:  # it asserts that the topic has the partition
                sent.errors.append(error)
                break
        answers = await self._answers(producer, to, [future for _, future in underway])
        now_ms = time.time() * 1000
        for (message, _), answer in zip(underway, answers, strict=True):
            if answer is None:
                sent.acknowledged.append(message)
                seconds = self.hooks.ledger.acknowledged(message, now_ms)
                if seconds is not None:
                    self.hooks.observer.acknowledged(seconds, message.headers)
                continue
            sent.spoiled = True
            if isinstance(answer, _HOPELESS) and len(group) == 1:
                sent.hopeless.append((message, answer))
            else:
                sent.errors.append(answer)

    async def _answers(
        self,
        producer: AIOKafkaProducer,
        to: _Destination,
        futures: Sequence[asyncio.Future[object]],
    ) -> list[BaseException | None]:
        """What the broker says of each: None where it has it. A partition that has lost its leader is not waited for.

        The library would ask for the leader without a pause until the messages' time is up.
        """
        waiting = set(futures)
        for future in waiting:
            # Its error is retrieved, or asyncio would report that of a message which is no longer awaited.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=_SLOW)
            if waiting and to.number is not None and not self._has_leader(producer, to.number):
                break
        lost = LeaderNotAvailableError(f"{self.topic}, partition {to.number}")
        return [lost if not future.done() or future.cancelled() else future.exception() for future in futures]

    async def _settle(self) -> None:
        """Have marked what the broker has, park what it never takes, and open or close circuits."""
        if self._marking is not None and self._marking.done():
            self._marking.result()
            self._marking = None
        ended = [(one, one.sending.result()) for one in self._all() if one.sending and one.sending.done()]
        if not ended:
            return
        published = [message for _, sent in ended for message in sent.acknowledged]
        if published:
            self._acknowledged += published
            if self._marking is None:
                self._marking = asyncio.create_task(self._mark(), name=f"stream-relay-{self.topic}-mark")
            self.hooks.observer.part("broker", True)
            self._whole.circuit.close()
            self._flows(self._whole)
            self.hooks.observer.stage("publish", time.monotonic() - min(sent.began for _, sent in ended))
        for one, sent in ended:
            self.hooks.tracing.published(sent.acknowledged, seconds=time.monotonic() - sent.began)
            for message, error in sent.hopeless:
                await self._park(message, error)
            for message in sent.again:
                one.passed_over(message)
            one.sending = None
            doubtful = any(isinstance(error, _HOPELESS) for error in sent.errors)
            settled = len(sent.acknowledged) + len(sent.hopeless)
            one.singly = len(sent.again) if doubtful else max(0, one.singly - settled)
            if sent.errors and not doubtful:
                error = sent.errors[0]
                shared = isinstance(error, _OF_THE_TOPIC)
                self._failed(self._whole if shared else one, error, len(sent.again), broker=bool(published))
            elif not sent.errors:
                one.circuit.close()
                self._flows(one)

    async def _mark(self) -> None:
        """Mark what the broker has, and what it gets meanwhile, until there is no more."""
        while self._acknowledged:
            if underway := self._underway():
                await asyncio.wait(underway, timeout=_LINGER)
                await asyncio.sleep(0)  # for `_settle`
            self.hooks.failpoint("after_publish")
            published, self._acknowledged = self._acknowledged, []
            await self._in_database(functools.partial(self.journal.mark_published, published))
            self.hooks.failpoint("after_mark")

    def _failed(
        self, one: _Destination, error: BaseException, messages: int, *, broker: bool = False
    ) -> None:
        one.circuit.fail()
        if not broker:
            self.hooks.observer.part("broker", not isinstance(error, _SILENT))
        reason = f"{type(error).__name__}: {error}"[:300]
        if one.circuit.failures >= _OPEN_AFTER and not one.stuck:
            one.stuck = True
            self.hooks.observer.lane(self.topic, one.number, reason)
        now = time.monotonic()
        if now - self._logged > _LOG_EVERY:
            self._logged = now
            log.warning(
                "stream.publish_failed",
                topic=self.topic,
                partition=one.number,
                messages=messages,
                error=reason,
            )

    def _flows(self, one: _Destination) -> None:
        if one.stuck:
            one.stuck = False
            self.hooks.observer.lane(self.topic, one.number, None)

    async def _park(self, message: OutboxMessage, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        await self._in_database(lambda: self.journal.park(message, reason[:1000]))
        log.error("stream.message_parked", row=message.id, topic=message.topic, error=reason[:300])
        self.hooks.observer.parked(message, reason)

    def _all(self) -> Sequence[_Destination]:
        return [self._whole, *self._destinations.values()]

    def _underway(self) -> list[asyncio.Task[_Sent]]:
        return [one.sending for one in self._all() if one.sending is not None]

    def _waits(self) -> bool:
        return any(one.sending or one.circuit.failures or one.behind is not None for one in self._all())

    async def _in_database(self, call: Callable[[], T]) -> T:
        answer = await until_available(
            self.executor, call, part="database", report_status=self.hooks.observer.part
        )
        return cast("T", answer)  # `wanted` is always true, so a None comes from the call


def _bytes(messages: Sequence[OutboxMessage]) -> int:
    return sum(len(one.value or b"") for one in messages)


async def _handed_over(
    producer: AIOKafkaProducer, message: OutboxMessage, partition: int | None
) -> asyncio.Future[object]:
    """Hand a message to the producer; the future is done when the broker has it."""
    headers = list(message.headers)
    if message.key is not None or message.value is not None:
        sent: asyncio.Future[object] = await producer.send(
            message.topic, message.value, key=message.key, partition=partition, headers=headers
        )
        return sent
    # A tombstone without a key (the dead letter of one): the library refuses it alone, but not in a batch.
    batch = producer.create_batch()
    batch.append(key=None, value=None, timestamp=None, headers=headers)
    partitions = await producer.partitions_for(message.topic)
    return cast(
        "asyncio.Future[object]",
        await producer.send_batch(batch, message.topic, partition=min(partitions)),
    )
