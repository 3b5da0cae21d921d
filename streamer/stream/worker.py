"""One worker from start to drain: everything in this room, put together from parts that others made."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from streamer.failpoints import disarmed
from streamer.stream.backoff import until_available
from streamer.stream.dead_letter_cap import DeadLetterCap, DeadLetterLimits
from streamer.stream.exits import WorkerExit, WorkerHalted
from streamer.stream.faust_engine import Engine, FaustEngine
from streamer.stream.fetch_budget import FetchBudget
from streamer.stream.group_commit import GroupCommit
from streamer.stream.handshake import shake_hands
from streamer.stream.health import WorkerHealth
from streamer.stream.intake import Intake
from streamer.stream.leasing import Leasing
from streamer.stream.log_limits import limit_client_logs
from streamer.stream.observer import SilentObserver
from streamer.stream.reader_limits import ReaderLimits
from streamer.stream.relay import Relay
from streamer.stream.reports import Reports
from streamer.stream.stop_deadline import StopDeadline
from streamer.stream.threshold_follower import ThresholdFollower
from streamer.stream.topics import cluster_id

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from streamer.failpoints import Failpoint
    from streamer.journal import Journal
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.decider import Decider

log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The worker's bounds; bytes and seconds.

    Attributes
    ----------
    max_commit_records, max_commit_bytes : of one group commit.
    max_output_bytes : the largest message that the relay publishes: an input and why it was refused fit in.
    drain_timeout : how long a stop waits for what was taken.
    stop_timeout : how long a stop may last in all, the drain, the farewells and the end of the process included; then
        the process is ended. Less than the half minute that supervisors give before they kill without a word.
    """

    reader: ReaderLimits = field(default_factory=ReaderLimits)
    dead_letters: DeadLetterLimits = field(default_factory=DeadLetterLimits)
    max_commit_records: int = 1000
    max_commit_bytes: int = 16 * 1024 * 1024
    max_output_bytes: int = (1024 + 64) * 1024
    drain_timeout: float = 10.0
    stop_timeout: float = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds topic, and who wants to know of its messages (see `ThresholdFollower`)."""

    topic: str
    on_message: Callable[[bytes | None, bytes | None], None]


def exit_at_once(status: int) -> None:
    """End the process without another write: no cleanup, no flush of anything but the log."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


async def run_worker(
    *,
    connection: KafkaConnection,
    topics: Sequence[str],
    group_id: str,
    journal: Journal,
    decider: Decider,
    log_id: str | None = None,
    thresholds: Thresholds | None = None,
    limits: WorkerLimits | None = None,
    health: WorkerHealth | None = None,
    stop: asyncio.Event | None = None,
    failpoint: Failpoint = disarmed,
    terminate: Callable[[int], None] = exit_at_once,
    deadline: StopDeadline | None = None,
) -> None:
    """Read `topics`, decide, record and publish, until SIGTERM, SIGINT or `stop`; then drain and return.

    Parameters
    ----------
    connection : how to reach the broker.
    topics : the topics whose records go to `decider`; responses and labels alike. Whoever reads partition 0 of the
        first also publishes what commands left in the outbox.
    group_id : the consumer group; workers of one group share the partitions.
    journal : called on three threads of ours, one call at a time on each.
    decider : called on one of these threads.
    log_id : identity of the log, part of the stored progress; by default the cluster's id.
    thresholds : the thresholds topic and who follows it; None follows nothing.
    limits : bounds and timeouts.
    stop : set it to end the worker as SIGTERM does.
    health : is told everything, and tells whether the worker is ready; give it the observer.
    failpoint : called with the name of each step passed (`streamer.failpoints.POINTS`).
    terminate : ends the process of a zombie at once with the status; must not return outside tests.
    deadline : begins when the worker does to stop, for whatever reason, and is the caller's to call off; by default
        one of `limits.stop_timeout` that is called off on return.

    Raises
    ------
    WorkerHalted
        When the worker cannot or must not go on; it has the exit status for the process.
    """
    stopping = stop or asyncio.Event()
    limits = limits or WorkerLimits()
    ending = deadline or StopDeadline(limits.stop_timeout, terminate)
    limit_client_logs()
    with (
        _signals_set(stopping),
        _threads("commit", "lease", "relay", "follow") as threads,
        contextlib.ExitStack() as stack,
    ):
        if deadline is None:
            stack.callback(ending.call_off)
        told = asyncio.create_task(_begin_when(stopping, ending), name="stream-stop-deadline")
        stack.callback(told.cancel)
        told_to = health or WorkerHealth(SilentObserver())
        worker = _Worker(
            connection=connection,
            topics=topics,
            group_id=group_id,
            journal=journal,
            decider=decider,
            thresholds=thresholds,
            limits=limits,
            health=told_to,
            reports=Reports(observer=told_to, tell=told_to.part, failpoint=failpoint),
            ending=_Ending(stopping, ending, terminate),
            threads=threads,
        )
        try:
            await worker.run(log_id)
        except WorkerHalted as halted:
            if halted.status is not WorkerExit.FENCED:
                log.error("stream.worker_halted", status=halted.status.name.lower(), reason=str(halted))
            raise


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a worker ends: when it is asked to, by when at the latest, and at once."""

    asked: asyncio.Event
    deadline: StopDeadline
    terminate: Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """The parts that `run_worker` is given, and how they work together."""

    connection: KafkaConnection
    topics: Sequence[str]
    group_id: str
    journal: Journal
    decider: Decider
    thresholds: Thresholds | None
    limits: WorkerLimits
    health: WorkerHealth
    reports: Reports
    ending: _Ending
    threads: dict[str, ThreadPoolExecutor]

    async def run(self, log_id: str | None) -> None:
        found = await self._unless_stopped(self._wait_for_parts())
        if found is None:
            return
        self.health.log_id = log_id or found
        budget = FetchBudget(
            max_records=self.limits.reader.max_buffered_records,
            max_bytes=self.limits.reader.max_buffered_bytes,
        )
        intake = Intake(budget)
        engine = FaustEngine(
            self.connection,
            topics=self.topics,
            group_id=self.group_id,
            log_id=self.health.log_id,
            intake=intake,
            budget=budget,
            limits=self.limits.reader,
            observer=self.health,
            tell=self.health.part,
        )
        leasing = Leasing(
            self.journal,
            intake,
            executor=self.threads["lease"],
            bounds=engine.bounds,
            reports=self.reports,
            topic_ids=engine.topic_ids,
        )
        await self._read(engine, leasing, intake)

    async def _read(self, engine: Engine, leasing: Leasing, intake: Intake) -> None:
        first = self.topics[0]
        relay = Relay(
            self.connection,
            self.journal,
            executor=self.threads["relay"],
            sources=lambda: intake.leases,
            takes_ownerless=lambda: any(p.topic == first and p.number == 0 for p in tuple(intake.leases)),
            max_request_size=self.limits.max_output_bytes,
            reports=self.reports,
        )
        commits = GroupCommit(
            intake,
            self.decider,
            self.journal,
            executor=self.threads["commit"],
            max_records=self.limits.max_commit_records,
            max_bytes=self.limits.max_commit_bytes,
            cap=DeadLetterCap(self.limits.dead_letters),
            reports=self.reports,
            on_commit=relay.wake,
        )
        relaying = asyncio.create_task(relay.run(), name="stream-relay")
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(commits.run(), name="stream-group-commit"),
            relaying,
        ]
        if self.thresholds is not None:
            follower = ThresholdFollower(
                self.connection,
                self.thresholds.topic,
                self.thresholds.on_message,
                executor=self.threads["follow"],
                tell=self.health.part,
            )
            tasks.append(asyncio.create_task(follower.run(), name="stream-threshold-follower"))
        try:
            if await self._unless_stopped(self._started(engine, leasing)) is not None:
                limit_client_logs()  # the loggers that the clients have made since
                tasks.append(asyncio.create_task(engine.failed(), name="stream-reader"))
                tasks.append(asyncio.create_task(self.ending.asked.wait(), name="stream-stop"))
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                self.health.stopping = "draining"
                for task in done:
                    task.result()
                await self._drain(engine, intake, relay, relaying)
        except BaseException as error:
            self.health.stopping = str(error) or type(error).__name__
            self.ending.deadline.begin(
                int(error.status if isinstance(error, WorkerHalted) else WorkerExit.CRASHED)
            )
            if isinstance(error, WorkerHalted) and error.status is WorkerExit.FENCED:
                log.error("stream.worker_halted", status="fenced", reason=str(error))
                self.ending.terminate(int(error.status))  # before anything else: a farewell would be a write
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.stop()

    async def _drain(
        self, engine: Engine, intake: Intake, relay: Relay, relaying: asyncio.Task[None]
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

    async def _started(self, engine: Engine, leasing: Leasing) -> bool:
        await engine.start(leasing)
        self.health.joined = lambda: engine.joined
        log.info("stream.worker_started", topics=list(self.topics), group_id=self.group_id)
        return True

    async def _wait_for_parts(self) -> str:
        """Wait until database and broker answer, before the group counts on us; the cluster's id."""
        await until_available(
            self.threads["lease"],
            lambda: self.journal.unpublished([], limit=1),
            part="database",
            tell=self.health.part,
        )
        found = await until_available(
            self.threads["relay"],
            self._cluster_id,
            part="broker",
            tell=self.health.part,
        )
        return found or ""

    def _cluster_id(self) -> str:
        shake_hands(self.connection)  # what is configured wrongly ends the worker with the reason
        return cluster_id(self.connection)

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T | None:
        """The result of `work`; None, and `work` is cancelled, once a stop is asked for."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self.ending.asked.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _begin_when(stopping: asyncio.Event, deadline: StopDeadline) -> None:
    await stopping.wait()
    deadline.begin(int(WorkerExit.STOP_OVERDUE))


@contextlib.contextmanager
def _signals_set(stopping: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask for a drain; only where a signal can be handled, on the main thread."""
    signals = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, stopping.set)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _threads(*names: str) -> Iterator[dict[str, ThreadPoolExecutor]]:
    pools = {name: ThreadPoolExecutor(1, thread_name_prefix=f"streamer-{name}") for name in names}
    try:
        yield pools
    finally:
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
