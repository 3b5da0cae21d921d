"""One worker from start to drain: the components of this package, connected, and the compacted thresholds topic, which
notifies them; the authority is SQL.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from streamer.failpoints import Failpoint, disarmed
from streamer.journal import Journal
from streamer.stream.backoff import Backoff, until_available
from streamer.stream.closing import closed_within
from streamer.stream.connection import KafkaConnection, Subscription
from streamer.stream.ending import Ending, WorkerExit, WorkerHalted, signals_set
from streamer.stream.faust_engine import FaustEngine, ReaderLimits
from streamer.stream.group_commit import GroupCommit
from streamer.stream.handshake import shake_hands
from streamer.stream.header_names import accept_any_record
from streamer.stream.health import WorkerHealth
from streamer.stream.hooks import Decider, Hooks
from streamer.stream.intake import FetchBudget, Intake, Prepare
from streamer.stream.isolation import DeadLetterCap, DeadLetterLimits
from streamer.stream.leasing import Leasing
from streamer.stream.log_limits import limit_client_logs
from streamer.stream.relay import Relay
from streamer.stream.relay_lane import RelayLimits
from streamer.stream.topics import cluster_id
from streamer.tracing import NO_TRACING, Tracing


@dataclass(eq=False)
class ThresholdFollower:
    """Reads every partition of the topic from its beginning, in no group, and survives outages.

    `on_message` is called in `executor` with (key, value) of each record, in order within a
    partition; after an outage records may come again. `Unavailable` makes it be called again with
    the same record; any other error is logged and the record passed.
    """

    connection: KafkaConnection
    topic: str
    on_message: Callable[[bytes | None, bytes | None], None]
    _: KW_ONLY
    executor: Executor
    report_status: Callable[[str, bool], None]

    async def run(self) -> None:
        """Follow until cancelled."""
        backoff = Backoff(last=10.0)
        while True:
            try:
                await self._follow(backoff)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning(
                    "stream.threshold_follower_lost_broker", error=f"{type(error).__name__}: {error}"[:300]
                )
            await asyncio.sleep(backoff.next_delay())

    async def _follow(self, backoff: Backoff) -> None:
        accept_any_record()
        consumer = AIOKafkaConsumer(
            self.topic,
            **self.connection.for_aiokafka(AIOKafkaConsumer),
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        try:
            await consumer.start()
            async for record in consumer:
                backoff.reset()
                await self._handle(record.key, record.value)
        finally:
            await closed_within(consumer, 5)

    async def _handle(self, key: bytes | None, value: bytes | None) -> None:
        try:
            await until_available(
                self.executor,
                lambda: self.on_message(key, value),
                part="database",
                report_status=self.report_status,
            )
        except Exception:
            log.exception("stream.threshold_message_failed", topic=self.topic)


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The worker's bounds; bytes and seconds. `max_commit_*` are of one group commit;
    `max_output_bytes` of the largest message that the relay publishes: an input and why it was
    refused fit in. A stop waits for `drain_timeout` for what was taken."""

    reader: ReaderLimits = field(default_factory=ReaderLimits)
    dead_letters: DeadLetterLimits = field(default_factory=DeadLetterLimits)
    max_commit_records: int = 1000
    max_commit_bytes: int = 16 * 1024 * 1024
    max_output_bytes: int = (1024 + 64) * 1024
    drain_timeout: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds topic and who follows it (see `ThresholdFollower`)."""

    topic: str
    on_message: Callable[[bytes | None, bytes | None], None]


async def run_worker(
    subscription: Subscription,
    *,
    journal: Journal,
    decider: Decider,
    thresholds: Thresholds | None = None,
    prepare: Prepare | None = None,
    limits: WorkerLimits,
    health: WorkerHealth,
    failpoint: Failpoint = disarmed,
    tracing: Tracing = NO_TRACING,
    ending: Ending,
) -> None:
    """Read, decide, record and publish until SIGTERM, SIGINT or `ending.asked`; then drain and
    return.

    The journal is called on four threads of ours, one call at a time on each; the decider on
    another one, which calls nothing else. `thresholds` None follows nothing; `prepare` begins with
    each record that is read (see `Intake`). `health` observes everything and says whether the
    worker is ready; give it the next observer, and the decider the same `tracing`. `failpoint` is
    called with the name of each step passed (`streamer.failpoints.POINTS`). Raises `WorkerHalted`,
    with the exit status for the process, when the worker cannot or must not go on.
    """
    limit_client_logs()
    with signals_set(ending.asked), _threads("score", "commit", "lease", "relay", "follow") as threads:
        worker = _Worker(
            subscription=subscription,
            journal=journal,
            decider=decider,
            thresholds=thresholds,
            prepare=prepare,
            limits=limits,
            health=health,
            hooks=Hooks(observer=health, failpoint=failpoint, tracing=tracing),
            ending=ending,
            threads=threads,
        )
        stopping = asyncio.create_task(worker.begin_deadline(), name="stream-stop-deadline")
        try:
            await worker.run()
        except WorkerHalted as halted:
            if halted.status is not WorkerExit.FENCED:
                log.error("stream.worker_halted", status=halted.status.name.lower(), reason=str(halted))
            raise
        finally:
            stopping.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """What `run_worker` is given, and how it works together."""

    subscription: Subscription
    journal: Journal
    decider: Decider
    thresholds: Thresholds | None
    prepare: Prepare | None
    limits: WorkerLimits
    health: WorkerHealth
    hooks: Hooks
    ending: Ending
    threads: dict[str, ThreadPoolExecutor]

    async def begin_deadline(self) -> None:
        await self.ending.asked.wait()
        self.ending.deadline.begin(int(WorkerExit.STOP_OVERDUE))

    async def run(self) -> None:
        found = await self.ending.unless_asked(self._reachable())
        if found is None:
            return
        self.health.log_id = self.subscription.log_id or found
        budget = FetchBudget(
            max_records=self.limits.reader.max_buffered_records,
            max_bytes=self.limits.reader.max_buffered_bytes,
        )
        intake = Intake(budget, self.prepare)
        engine = FaustEngine(
            self.subscription,
            log_id=self.health.log_id,
            intake=intake,
            budget=budget,
            limits=self.limits.reader,
            observer=self.health,
        )
        self.health.refusal = lambda: engine.refusal
        leasing = Leasing(
            self.journal,
            intake,
            executor=self.threads["lease"],
            bounds=engine.bounds,
            hooks=self.hooks,
            topic_ids=engine.topic_ids,
        )
        await self._read(engine, leasing, intake)

    async def _read(self, engine: FaustEngine, leasing: Leasing, intake: Intake) -> None:
        first = self.subscription.topics[0]
        relay = Relay(
            self.subscription.connection,
            self.journal,
            executor=self.threads["relay"],
            sources=lambda: intake.leases,
            takes_ownerless=lambda: any(p.topic == first and p.number == 0 for p in tuple(intake.leases)),
            limits=RelayLimits(max_request_size=self.limits.max_output_bytes),
            hooks=self.hooks,
        )
        commits = GroupCommit(
            intake,
            self.decider,
            relay.commit,
            score_executor=self.threads["score"],
            executor=self.threads["commit"],
            max_records=self.limits.max_commit_records,
            max_bytes=self.limits.max_commit_bytes,
            cap=DeadLetterCap(self.limits.dead_letters),
            hooks=self.hooks,
            on_commit=relay.wake,
        )
        relaying = asyncio.create_task(relay.run(), name="stream-relay")
        committing = asyncio.create_task(commits.run(), name="stream-group-commit")
        tasks: list[asyncio.Task[Any]] = [committing, relaying]
        if self.thresholds is not None:
            follower = ThresholdFollower(
                self.subscription.connection,
                self.thresholds.topic,
                self.thresholds.on_message,
                executor=self.threads["follow"],
                report_status=self.health.part,
            )
            tasks.append(asyncio.create_task(follower.run(), name="stream-threshold-follower"))
        try:
            if await self.ending.unless_asked(self._started(engine, leasing)) is not None:
                limit_client_logs()  # the loggers that the clients have made since
                tasks.append(asyncio.create_task(engine.failed(), name="stream-reader"))
                tasks.append(asyncio.create_task(self.ending.asked.wait(), name="stream-stop"))
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                self.health.stopping = "draining"
                for task in done:
                    task.result()
                await self._drain(engine, intake, relay, relaying)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.stop()

    def _fail(self, error: BaseException) -> None:
        status = error.status if isinstance(error, WorkerHalted) else WorkerExit.CRASHED
        self.health.stopping = str(error) or type(error).__name__
        self.ending.deadline.begin(int(status))
        if status is WorkerExit.FENCED:
            log.error("stream.worker_halted", status="fenced", reason=str(error))
            # Before anything else: leaving the group would be a write.
            self.ending.deadline.terminate(int(status))

    async def _drain(
        self, engine: FaustEngine, intake: Intake, relay: Relay, relaying: asyncio.Task[None]
    ) -> None:
        log.info("stream.draining")
        await engine.quiesce()
        try:
            async with asyncio.timeout(self.limits.drain_timeout):
                await intake.drained()
                relay.finish()
                await asyncio.wait([relaying], timeout=2.0)
        except TimeoutError:
            log.warning("stream.drain_incomplete", detail="the next owner decides what was not recorded")
        log.info("stream.drained")

    async def _started(self, engine: FaustEngine, leasing: Leasing) -> bool:
        await engine.start(leasing)
        self.health.joined = lambda: engine.joined
        topics, group = list(self.subscription.topics), self.subscription.group_id
        log.info("stream.worker_started", topics=topics, group_id=group)
        return True

    async def _reachable(self) -> str:
        """Wait until database and broker answer, before the worker joins the group; the cluster's id."""
        report = self.health.part
        await until_available(
            self.threads["lease"],
            lambda: self.journal.unpublished([], limit=1),
            part="database",
            report_status=report,
        )
        relay = self.threads["relay"]
        found = await until_available(relay, self._cluster_id, part="broker", report_status=report)
        return found or ""

    def _cluster_id(self) -> str:
        # A wrong configuration ends the worker with the reason.
        shake_hands(self.subscription.connection)
        return cluster_id(self.subscription.connection)


@contextlib.contextmanager
def _threads(*names: str) -> Iterator[dict[str, ThreadPoolExecutor]]:
    pools = {name: ThreadPoolExecutor(1, thread_name_prefix=f"streamer-{name}") for name in names}
    try:
        yield pools
    finally:
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
