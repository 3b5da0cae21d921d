"""The places where we reach into Faust's aiokafka driver: lease and seek, read committed, stamped records.

Faust runs the Kafka consumer on a thread of its own. Everything in `StampingThread` whose name begins with
an underscore runs on that thread's event loop, so a fetch and a seek never interleave; the rest runs on the
application's loop.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, NamedTuple, Protocol, cast

import faust
import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    KafkaError,
    NodeNotReadyError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition
from faust.app.base import BootStrategy
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP, Message

from streamer.events.outgoing import bounded
from streamer.journal import Partition, Record
from streamer.stream.backoff import Backoff
from streamer.stream.closing import cut
from streamer.stream.header_names import accept_any_record
from streamer.stream.intake import RECORD_OVERHEAD, FetchBudget, Fetched
from streamer.stream.topic_identity import TopicIdsRequest, ids_in

log = structlog.get_logger(__name__)

_FULL_POLL = 0.005
"""Seconds between looks for room while the budget is used up; the delay hides behind what waits then."""


class ReaderHooks(Protocol):
    """What the driver asks of the engine that owns it."""

    consumer_arguments: Mapping[str, Any]
    max_record_bytes: int
    budget: FetchBudget
    log_id: str

    async def seek(self, consumer: "LeasingConsumer") -> Mapping[TP, int]:
        """Lease what is assigned, set the fetcher to the positions, and return them."""

    def assignment_began(self, generation: int, assigned: Collection[TP]) -> None:
        """The group has assigned these partitions, in this generation of it."""

    async def revoked(self) -> None:
        """A rebalance revokes every partition; the group goes on once this returns."""

    def unavailable(self, error: Exception) -> None:
        """The broker does not answer. Called on the consumer's thread."""

    def refused(self, error: KafkaError, *, final: bool) -> None:
        """The group does not take us in; we ask again unless it is `final`. Called on the consumer's thread."""

    def fetched(self, fetched: Mapping[TP, Collection[Fetched]]) -> None:
        """What one poll brought, of each partition in offset order."""

    def out_of_range(self) -> None:
        """The broker no longer has the offset that was asked for. Called on the consumer's thread."""


class FetchState(NamedTuple):
    """The fetcher's view of one partition; `highwater` and `stable_end` are None before the first
    fetch.

    `handed_out` is one past the last record that left the fetcher, or the position that was sought;
    `position` is where the next fetch begins, past transaction markers; `highwater` one past the
    last record of the log, `stable_end` past the last that a read-committed consumer may see.
    """

    handed_out: int
    position: int
    highwater: int | None
    stable_end: int | None


class StampingThread(AIOKafkaConsumerThread):
    """The consumer's thread: hands out records with what preceded them, as far as the budget has room."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._handed_out: dict[TP, int] = {}
        self._unknown: frozenset[str] = frozenset()
        self._flow = 0
        self._hooks = cast("ReaderApp", self.app).hooks
        self._partitions: dict[TP, Partition] = {}

    async def on_start(self) -> None:
        # The broker answered a moment ago. When it has gone away since, Faust would end the worker.
        backoff = Backoff()
        while not self.should_stop:
            try:
                await super().on_start()
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._hooks.unavailable(error)
                if self._consumer is not None:
                    await self._consumer.stop()
                await asyncio.sleep(backoff.next_delay())
            else:
                return

    async def _keepalive2(self) -> None:
        # Mode's own calls it an error that this thread was busy for three seconds. A large batch may take longer to unpack,
        # within what heartbeats leave (`unpacking`). A reader that pauses for longer sends no heartbeats, and its
        # partitions go to another worker.
        while not self.should_stop:
            await self.sleep(1.1)
            await self._wakeup_timer_in_thread()

    @faust.Service.task
    async def _heed_refusals(self) -> None:
        # aiokafka keeps the group's refusal until it is asked for, and does not ask the group again before.
        while not self.should_stop:
            await self.sleep(1.0)
            coordinator: Any = None if self._consumer is None else self._consumer._coordinator
            if coordinator is not None:
                try:
                    coordinator.check_errors()
                except KafkaError as error:
                    self._hooks.refused(error, final=coordinator._coordination_task.done())

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        # Faust would read uncommitted records, and would choose security from its own settings.
        self._assignor = RoundRobinPartitionAssignor
        accept_any_record(most=self._hooks.max_record_bytes)
        return AIOKafkaConsumer(
            **self._hooks.consumer_arguments,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
        )

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is Faust's
        max_records: int | None = None,
    ) -> dict[TP, list[Fetched]]:
        if not self.consumer.flow_active:
            return {}
        fetcher: Any = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        # Waiting for room inside the context counts as polling, or the group would throw us out.
        with fetcher._subscriptions.fetch_context():
            room = await self._room(timeout or 1.0)
            if not room:
                return {}
            flow = self._flow
            try:
                drained = await fetcher.fetched_records(
                    active_partitions, timeout=timeout, max_records=min(room, max_records or room)
                )
            except ConsumerStoppedError:
                raise
            except OffsetOutOfRangeError:
                self._hooks.out_of_range()
                return {}
            except NoOffsetForPartitionError:
                return {}  # assigned, and not yet set to its stored progress
            except KafkaError as error:
                log.warning("stream.fetch_failed", error=f"{type(error).__name__}: {error}"[:300])
                await asyncio.sleep(1.0)
                return {}
        if flow != self._flow:
            # Sought while this call waited: whoever made it may be gone, so these are for the next one.
            for tp in drained.keys() & self._handed_out.keys():
                consumer.seek(tp, self._handed_out[tp])
            return {}
        return {tp: self._stamped(tp, records) for tp, records in drained.items() if tp in self._handed_out}

    async def _gather_remaining_tasks(self) -> None:
        await super()._gather_remaining_tasks()
        if self._consumer is not None:
            # What asked the broker while the consumer stopped may have reconnected.
            cut(self._consumer._client)

    async def _room(self, within: float) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        # The budget is given back on another loop; a look now and then costs less than waking across.
        while not (room := self._hooks.budget.room()) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_FULL_POLL)
        return room

    def _stamped(self, tp: TP, records: Collection[ConsumerRecord[bytes, bytes]]) -> list[Fetched]:
        follows = self._handed_out[tp]
        partition = self._partitions[tp]
        flow = self._flow
        stamped: list[Fetched] = []
        total = 0
        most = self._hooks.max_record_bytes
        for one in records:
            timestamp = -1 if one.timestamp is None else one.timestamp  # messages of format 0 have none
            record = Record(partition, one.offset, one.key, one.value, tuple(one.headers), timestamp)
            record = bounded(record, most)
            size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
            for name, value in record.headers:
                size += len(name) + len(value or b"")
            stamped.append(Fetched(record, follows, flow, size))
            follows = one.offset + 1
            total += size
        self._handed_out[tp] = follows
        self._hooks.budget.fetched(flow, len(stamped), total)
        return stamped

    async def begin_flow(self, positions: Mapping[TP, int]) -> None:
        """Set the fetcher to `positions`; every record from now on is stamped as following them."""
        await self.call_thread(self._begin_flow, dict(positions))

    async def _begin_flow(self, positions: dict[TP, int]) -> None:
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        here = {tp: offset for tp, offset in positions.items() if tp in assigned}
        for tp, offset in here.items():
            consumer.seek(tp, offset)
        self._partitions = {tp: Partition(self._hooks.log_id, tp.topic, tp.partition) for tp in here}
        self._handed_out = here
        self._flow = self._hooks.budget.begin_flow()

    async def bounds(self, tps: Collection[TP]) -> dict[TP, tuple[int, int]]:
        """Earliest and end offset of each partition, asked from the broker."""
        return cast("dict[TP, tuple[int, int]]", await self.call_thread(self._bounds, list(tps)))

    async def _bounds(self, tps: list[TP]) -> dict[TP, tuple[int, int]]:
        consumer = self._ensure_consumer()
        earliest = await consumer.beginning_offsets(tps)
        end = await consumer.end_offsets(tps)
        return {tp: (earliest[tp], end[tp]) for tp in tps}

    async def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The broker's ids of the topics that exist; empty where the broker has none."""
        return cast("dict[str, str]", await self.call_thread(self._topic_ids, frozenset(topics)))

    async def _topic_ids(self, topics: frozenset[str]) -> dict[str, str]:
        client: Any = self._ensure_consumer()._client
        node = client.get_random_node()
        if node is None:
            raise NodeNotReadyError("no broker is known")
        try:
            return ids_in(await client.send(node, TopicIdsRequest(topics)))
        except NotImplementedError:
            return {}  # a broker before Kafka 2.8, or the embedded one

    async def commit_progress(self, offsets: Mapping[TP, int]) -> bool:
        """Commit our offsets to the group, only for lag tools; False when the broker did not take it."""
        return bool(await self.call_thread(self._commit_progress, dict(offsets)))

    async def _commit_progress(self, offsets: dict[TP, int]) -> bool:
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        wanted = {
            TopicPartition(*tp): OffsetAndMetadata(offset, "")
            for tp, offset in offsets.items()
            if tp in assigned
        }
        try:
            if wanted:
                async with asyncio.timeout(3.0):
                    await consumer.commit(wanted)
        except (KafkaError, TimeoutError) as error:
            log.debug("stream.advisory_commit_failed", error=type(error).__name__)
            return False
        return True

    async def learn_topics(self, topics: Collection[str]) -> frozenset[str]:
        """Ask the broker again for those topics that its last answer left out, and return them.

        A broker that has just started may know none of them. The group's leader would then assign nothing,
        and nobody would look again before `metadata.max.age.ms` is over.
        """
        return cast("frozenset[str]", await self.call_thread(self._learn_topics, topics))

    async def _learn_topics(self, topics: Collection[str]) -> frozenset[str]:
        client: Any = self._ensure_consumer()._client
        unknown = frozenset(one for one in topics if not client.cluster.partitions_for_topic(one))
        if unknown:
            client.force_metadata_update()
        if unknown != self._unknown:
            self._unknown = unknown
            log.warning("stream.topics_unknown", topics=sorted(unknown))
        return unknown

    def fetch_state(self, tp: TP) -> FetchState | None:
        """What the fetcher knows of a partition; None unless it is assigned and was sought."""
        consumer = self._consumer
        handed_out = self._handed_out.get(tp)
        if consumer is None or handed_out is None:
            return None
        subscription = consumer._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or tp not in assignment.tps:
            return None
        state = assignment.state_value(tp)
        if not state.has_valid_position:
            return None
        return FetchState(handed_out, state.position, state.highwater, state.lso)


class LeasingConsumer(Consumer):
    """Faust's consumer, whose committed offsets are those in the database."""

    app: "ReaderApp"
    _thread: StampingThread

    def _new_consumer_thread(self) -> StampingThread:
        return StampingThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> StampingThread:
        """The thread that the Kafka consumer lives on."""
        return self._thread

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Lease and seek; Faust calls it after each rebalance, at times more than once, and at times during one."""
        return await self.app.hooks.seek(self)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Give the leases up before anyone else can take them."""
        await self.app.hooks.revoked()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Let leases be taken again, for what is assigned now."""
        self.app.hooks.assignment_began(generation_id, assigned)
        await super().on_partitions_assigned(assigned, generation_id)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:  # noqa: ASYNC109 - Faust's signature
        """Hand over what one poll brought, all at once; nothing is left for Faust's streams, which cost two tasks a record."""
        fetched, _ = await self._wait_next_records(timeout)
        if fetched and self.flow_active:
            self.app.hooks.fetched(fetched)
        return
        yield

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Nothing: the engine's own watchdog looks, and knows back-pressure from trouble."""


class LeasingTransport(Transport):
    """Faust's transport with our consumer."""

    Consumer = LeasingConsumer


class _ReadOnly(BootStrategy):
    enable_kafka_producer = False  # Faust's producer is not idempotent; the relay has its own
    enable_web = False


class ReaderApp(faust.App):
    """A Faust application that only reads, and leaves no folders behind."""

    BootStrategy = _ReadOnly
    hooks: ReaderHooks

    def _create_directories(self) -> None:
        pass
