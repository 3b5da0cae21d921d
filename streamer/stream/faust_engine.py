"""Faust as the reader: consumer group, back-pressure, lease and seek, and resets after lost records."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
)
from faust.types import TP

from streamer.events.limits import DEFAULT_LIMITS
from streamer.journal import Partition
from streamer.stream.backoff import Backoff
from streamer.stream.connection import KafkaConnection, Subscription
from streamer.stream.ending import WorkerExit, WorkerHalted
from streamer.stream.faust_driver import LeasingConsumer, LeasingTransport, ReaderApp
from streamer.stream.hooks import StreamObserver
from streamer.stream.intake import FetchBudget, Fetched, Intake, OfferResult
from streamer.stream.leasing import Bounds, Leasing
from streamer.stream.topic_identity import recreated


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """Bounds on memory and time; seconds and bytes.

    `max_buffered_*` may be between the fetcher and the database, `max_poll_records` are taken from
    the fetcher at a time. `max_fetch_bytes` is per partition and fetch; one larger record still
    passes. Of a record whose key, value and headers have more than `max_record_bytes` an excerpt is
    read. After `session_timeout` without a heartbeat the group reassigns our partitions;
    `request_timeout` is at least as long, and a lease may take .7 of it.
    """

    max_buffered_records: int = 4000
    max_buffered_bytes: int = 64 * 1024 * 1024
    max_poll_records: int = 2000
    max_fetch_bytes: int = 1024 * 1024
    max_record_bytes: int = DEFAULT_LIMITS.max_input_bytes
    session_timeout: float = 8.0
    heartbeat_interval: float = 1.0
    request_timeout: float = 30.0

    def __post_init__(self) -> None:
        if self.request_timeout < self.session_timeout:
            raise ValueError("the request timeout must not be less than the session timeout")
        bounds = (
            self.max_buffered_records,
            self.max_buffered_bytes,
            self.max_poll_records,
            self.max_fetch_bytes,
            self.max_record_bytes,
        )
        if min(bounds) < 1:
            raise ValueError("the reader's bounds must be 1 or more")

    @property
    def lease_deadline(self) -> float:
        """Seconds that taking the leases may last before the worker gives up and restarts."""
        return 0.7 * self.request_timeout


def consumer_defaults(limits: ReaderLimits) -> dict[str, Any]:
    """Return what the user's own client properties may replace."""
    return {
        "client_id": "streamer-worker",
        "fetch_max_wait_ms": 100,
        "max_partition_fetch_bytes": limits.max_fetch_bytes,
        "max_poll_records": limits.max_poll_records,
        "request_timeout_ms": int(limits.request_timeout * 1000),
        "session_timeout_ms": int(limits.session_timeout * 1000),
        "rebalance_timeout_ms": int(limits.request_timeout * 1000),
        "heartbeat_interval_ms": int(limits.heartbeat_interval * 1000),
        "max_poll_interval_ms": 1_000_000,
        "metadata_max_age_ms": 60_000,
    }


def reader_app(connection: KafkaConnection, group_id: str, limits: ReaderLimits) -> ReaderApp:
    """Return a Faust application that only reads, with our driver; its `hooks` are still to be set."""
    app = ReaderApp(
        group_id,
        broker=[f"kafka://{server}" for server in connection.servers],
        web_enabled=False,
        datadir="/nonexistent",
        store="memory://",
        topic_disable_leader=True,
        topic_allow_declare=False,
        stream_wait_empty=False,  # events without an outcome are read again, so there is no need to wait for them
        stream_recovery_delay=0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=limits.max_fetch_bytes,
        broker_session_timeout=limits.session_timeout,
        broker_heartbeat_interval=limits.heartbeat_interval,
        broker_request_timeout=limits.request_timeout,
        broker_max_poll_records=limits.max_poll_records,
    )
    app.finalize()
    app.transport = LeasingTransport(app.conf.broker_consumer, app)
    return app


log = structlog.get_logger(__name__)
T = TypeVar("T")

_LOST_AFTER = 5.0
"""Seconds without an arrival after which a record that left the fetcher counts as lost."""
_STUCK_AFTER = 15.0
"""Seconds without a fetch, although the broker has records and there is room."""
_UNLEASED_AFTER = 30.0
_RESET_SPACING = 0.25
_START_PATIENCE = 5.0
_LEAVE_PATIENCE = 10.0
_COMMIT_EVERY = 2.0
_LEARN_EVERY = 3.0
_REMEDIES: Mapping[type[KafkaError], str] = {
    GroupAuthorizationFailedError: "permit this user to read the group (deploy/kafka/acls.sh)",
    InconsistentGroupProtocolError: "other programs read with this group; choose another kafka.group_id",
    InvalidSessionTimeoutError: "set the Kafka property session.timeout.ms to what the broker permits"
    " (group.min.session.timeout.ms to group.max.session.timeout.ms)",
}


class FaustEngine:
    """A reader by Faust: it offers the records of the partitions it is assigned to an `Intake`,
    in offset order. A missing topic is read from when it appears. `refusal` says why the group
    does not take us in; empty while it does, or has not answered."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        log_id: str,
        intake: Intake,
        budget: FetchBudget,
        limits: ReaderLimits,
        observer: StreamObserver,
    ) -> None:
        self.budget = budget
        self.log_id = log_id
        self.refusal = ""
        self._topics = frozenset(subscription.topics)
        self._group_id = subscription.group_id
        self._intake = intake
        self._limits = limits
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._leasing: Leasing | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._resetting: asyncio.Task[None] | None = None
        self._unleased_since: float | None = None
        self._last_committed: dict[TP, int] = {}
        self._unknown: frozenset[str] = frozenset()
        self._identities: dict[str, str] = {}
        self._commit_at = self._learn_at = 0.0
        self._stopping = False
        self.consumer_arguments: Mapping[str, Any] = {
            **consumer_defaults(limits),
            **subscription.connection.for_aiokafka(AIOKafkaConsumer),
            "group_id": subscription.group_id,
        }
        self.max_record_bytes = limits.max_record_bytes
        self._app = reader_app(subscription.connection, subscription.group_id, limits)
        self._app.hooks = self
        self._app.topics.add(self._app.topic(*subscription.topics, acks=False))

    async def start(self, leasing: Leasing) -> None:
        """Join the group and read. Takes 1-2 s; records flow once the group has assigned partitions."""
        self._leasing = leasing
        self._starting = asyncio.create_task(self._app.start(), name="stream-start")
        # A start that is cancelled half-way leaves its connections open: `stop` lets it end first.
        await asyncio.wait([self._starting, self._failure], return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        self._starting.result()
        self._watch = asyncio.create_task(self._watch_forever(), name="stream-watchdog")

    async def failed(self) -> None:
        """Wait until the reader cannot continue, and raise why."""
        await asyncio.shield(self._failure)

    async def quiesce(self) -> None:
        """Offer nothing more: what has been taken can be committed in peace."""
        self._stopping = True
        if (resetting := self._resetting) is not None:
            resetting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await resetting
        if self._app.started:
            self._app.consumer.stop_flow()

    async def stop(self) -> None:
        """Commit the last progress to the group and leave it."""
        await self.quiesce()
        if self._starting is not None and not self._starting.done():
            self._revoke()  # nothing is leased any more, so nothing to wait for
            await asyncio.wait([self._starting], timeout=_START_PATIENCE)
            self._starting.cancel()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        if self._app.started:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._commit_progress(), 3.0)
        await self._settle(_LEAVE_PATIENCE)  # once we have left, the partitions are leased by others
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._app.stop(), 15.0)
        if self._failure.done():
            self._failure.exception()  # seen; the waiter in `failed` has it, and later ones do not matter

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        """Ask the broker, for as long as it takes."""
        bounds = await self._asked(lambda: self._consumer.thread.bounds([_tp(one) for one in partitions]))
        return {one: Bounds(*bounds[_tp(one)]) for one in partitions}

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Ask the broker, for as long as it takes."""
        return await self._asked(lambda: self._consumer.thread.topic_ids(topics))

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff()
        while True:
            try:
                answer = await ask()
            except (KafkaError, TimeoutError, OSError) as error:
                self.unavailable(error)
                await asyncio.sleep(backoff.next_delay())
                continue
            self._observer.part("broker", True)
            return answer

    def assigned(self) -> set[Partition]:
        """The group's present assignment."""
        if not self._app.started:
            return set()
        return self._partitions(self._consumer.assignment())

    @property
    def joined(self) -> bool:
        """Whether the group has given us an assignment (an empty one counts) of topics that there are."""
        app, there = self._app, self._unknown != self._topics
        return bool(app.started and there and not app.rebalancing and app.consumer_generation_id > 0)

    # ---- hooks of the driver

    async def seek(self, consumer: LeasingConsumer) -> Mapping[TP, int]:
        """Lease and seek what is assigned; a failure is kept for `failed`, for Faust would only log it."""
        leasing = self._leasing
        if leasing is None or self._failure.done() or self._stopping:
            return {}
        patience = None if self._resetting is not None else self._limits.lease_deadline
        try:
            positions = await asyncio.wait_for(leasing.positions(), patience)
        except TimeoutError:
            # Faust would continue without seeking the streams: better to restart.
            self._fail(WorkerHalted(WorkerExit.LEASE_TIMEOUT, f"no lease within {patience:.0f} s"))
            return {}
        except Exception as error:  # Faust must not swallow it, whatever it is
            self._fail(error)
            return {}
        sought = {_tp(partition): offset for partition, offset in positions.items()}
        if sought:
            await consumer.thread.begin_flow(sought)
        return sought

    def assignment_began(self, generation: int, assigned: Collection[TP]) -> None:
        """Let `seek` lease what the group has assigned."""
        self.refusal = ""
        if self._leasing is not None:
            self._leasing.begin(generation, self._partitions(assigned))

    async def revoked(self) -> None:
        """Drop the leases: what is being committed may still succeed, but it is no error if it does not."""
        await self._settle(self._limits.lease_deadline)

    async def _settle(self, patience: float) -> None:
        self._revoke()
        if self._leasing is not None:
            try:
                await asyncio.wait_for(self._leasing.settled(), patience)
            except TimeoutError:
                log.warning(
                    "stream.lease_unsettled", detail="a late lease may end another worker, which restarts"
                )

    def _revoke(self) -> None:
        if self._leasing is not None:
            self._leasing.revoke()

    def unavailable(self, error: Exception) -> None:
        """The broker does not answer; whoever asked asks again."""
        self._observer.part("broker", False)
        log.warning("stream.part_away", part="broker", error=f"{type(error).__name__}: {error}"[:300])

    def refused(self, error: KafkaError, *, final: bool) -> None:
        """Say why, as long as it lasts: somebody has to change something, unless the client itself is broken."""
        remedy = _REMEDIES.get(type(error), "")
        refusal = f"the group {self._group_id} does not take us in: {error}"[:300]
        refusal = f"{refusal}; {remedy}" if remedy else refusal
        if refusal != self.refusal:
            log.warning("stream.group_refused", reason=refusal)
            self.refusal = refusal
        if final:
            self._loop.call_soon_threadsafe(self._fail, WorkerHalted(WorkerExit.CRASHED, refusal))

    def out_of_range(self) -> None:
        """Set back; `Leasing` then finds the gap. Called on the consumer's thread."""
        self._loop.call_soon_threadsafe(self._reset_soon, "offset_out_of_range")

    # ---- reading

    def fetched(self, fetched: Mapping[TP, Collection[Fetched]]) -> None:
        """Offer it to the intake."""
        try:
            for records in fetched.values():
                for one in records:
                    self._take(one)
        except Exception as error:  # Faust must not swallow it, whatever it is
            self._fail(error)

    def _take(self, fetched: Fetched) -> None:
        if self._intake.offer(fetched, now=time.monotonic()) is OfferResult.BROKEN:
            self._reset_soon("record_lost")

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._revoke()

    def _reset_soon(self, reason: str) -> None:
        if self._resetting is None and not self._stopping and not self._app.rebalancing:
            self._resetting = asyncio.create_task(self._reset(reason), name="stream-reset")

    async def _reset(self, reason: str) -> None:
        """What Faust does on a rebalance, without one; the order matters."""
        try:
            log.warning("stream.reset", reason=reason)
            self._observer.reset(reason)
            app, consumer = self._app, self._consumer
            consumer.stop_flow()
            await app._stop_fetcher()
            if app.rebalancing:
                return  # the rebalance will seek and resume
            consumer.resume_partitions(consumer.assignment())
            await consumer.perform_seek()
            if app.rebalancing:
                return
            consumer.resume_flow()
            await app._fetcher.maybe_start()
            await asyncio.sleep(_RESET_SPACING)
        except Exception as error:
            self._fail(error)
        finally:
            self._resetting = None

    # ---- watching

    async def _watch_forever(self) -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                await self._look(time.monotonic())
        except Exception as error:
            self._fail(error)

    async def _look(self, now: float) -> None:
        if self._app.should_stop and not self._stopping:
            reason = f"the reader stopped: {self._app.crash_reason!r}"
            self._fail(WorkerHalted(WorkerExit.CRASHED, reason))
        if now >= self._learn_at:
            self._learn_at = now + _LEARN_EVERY
            self._unknown = await self._consumer.thread.learn_topics(self._topics)
            await self._check_identities()
        if self._app.rebalancing or self._resetting is not None:
            return
        if not self.assigned() - set(self._intake.leases):
            self._unleased_since = None
        elif self._unleased_since is None:
            self._unleased_since = now
        elif now - self._unleased_since > _UNLEASED_AFTER:
            self._fail(WorkerHalted(WorkerExit.LEASE_TIMEOUT, "partitions were assigned but never leased"))
        committed = self._intake.committed()
        for partition, expected in self._intake.expected().items():
            self._check_partition(partition, expected, committed[partition], now)
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_EVERY
            await self._commit_progress()

    async def _check_identities(self) -> None:
        """A topic can be deleted, recreated and filled past our offsets between two fetches, which know only names."""
        try:
            found = await self._consumer.thread.topic_ids(self._topics)
        except (KafkaError, TimeoutError, OSError):
            return  # unavailable; other requests to the broker report that
        for topic, identity in found.items():
            if self._identities.setdefault(topic, identity) != identity:
                self._fail(WorkerHalted(WorkerExit.LOG_RECREATED, recreated(topic)))

    def _check_partition(self, partition: Partition, expected: int, committed: int, now: float) -> None:
        state = self._consumer.thread.fetch_state(_tp(partition))
        if state is None or state.highwater is None:
            return
        # All that was handed out has arrived: only holes lie between us and the fetch position.
        caught_up = state.handed_out <= expected == committed
        done = max(expected, state.position) if caught_up else committed
        self._observer.lag(partition.topic, partition.number, max(0, state.highwater - done))
        idle_since = self._intake.idle_since(partition)
        if idle_since is None:
            return
        stable_end = state.highwater if state.stable_end is None else state.stable_end
        if state.handed_out > expected and now - idle_since > _LOST_AFTER:
            reason = "record_lost"
        elif state.position < stable_end and self.budget.room() and now - idle_since > _STUCK_AFTER:
            reason = "fetch_stuck"
        else:
            return
        self._intake.touch(partition, now)
        self._reset_soon(reason)

    async def _commit_progress(self) -> None:
        progress = {_tp(partition): offset for partition, offset in self._intake.committed().items()}
        news = {
            tp: offset for tp, offset in progress.items() if offset and self._last_committed.get(tp) != offset
        }
        if news and await self._consumer.thread.commit_progress(news):
            self._last_committed = progress

    @property
    def _consumer(self) -> LeasingConsumer:
        return cast("LeasingConsumer", self._app.consumer)

    def _partitions(self, tps: Collection[TP]) -> set[Partition]:
        return {Partition(self.log_id, tp.topic, tp.partition) for tp in tps if tp.topic in self._topics}


def _tp(partition: Partition) -> TP:
    return TP(partition.topic, partition.number)
