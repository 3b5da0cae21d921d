"""The service from its leases to its end: the components of this package and of the stream, connected."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import structlog

from streamer.journal import Journal
from streamer.serving.deadline import GRACE_SECONDS
from streamer.serving.lane import PendingAnswers, ServiceHealth
from streamer.serving.request_log import RequestLog
from streamer.serving.slots import Slots
from streamer.stream.backoff import until_available
from streamer.stream.ending import Ending, WorkerExit, WorkerHalted, signals_set
from streamer.stream.hooks import Hooks
from streamer.stream.relay import Relay
from streamer.web.server import Server

log = structlog.get_logger(__name__)

STOP_SECONDS = 15
"""What requests that are under way may take once it ends; the rest of the stop is for recording and publishing."""

CUT_OFF_SECONDS = 12.0
"""When those are told to hold that will not be answered by then."""

_DRAIN_SECONDS = 10.0
_PUBLISH_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What it is made of. The server does not run yet. `relay` publishes what the requests'
    partitions leave in the queue; None where nothing goes to Kafka. `executor` has one thread,
    for leases. `cut_off` is called some time after the end began, when there is still time to
    tell those who wait that they get no answer."""

    request_log: RequestLog
    journal: Journal
    slots: Slots
    answers: PendingAnswers
    server: Server
    relay: Relay | None
    health: ServiceHealth
    hooks: Hooks
    ending: Ending
    executor: Executor
    cut_off: Callable[[], None]

    async def run(self, sockets: list[Any]) -> None:
        """Lease, serve and record until `ending.asked`; then answer what was taken, and return.
        Raises `WorkerHalted` when another process took the slot; whoever waits is told that
        nothing is known."""
        with signals_set(self.ending.asked):
            if await self.ending.unless_asked(self._lease()) is not None:
                await self._serve(sockets)

    async def _serve(self, sockets: list[Any]) -> None:
        recording = [
            asyncio.create_task(lane.run(), name=f"serving-{name}")
            for name, lane in (("main", self.request_log.main), ("side", self.request_log.side))
        ]
        recording.append(asyncio.create_task(self.slots.keep(), name="serving-slots"))
        if self.relay is not None:
            recording.append(asyncio.create_task(self.relay.run(), name="serving-relay"))
        serving = asyncio.create_task(self.server.serve(sockets=sockets), name="serving-http")
        stop = asyncio.create_task(self.ending.asked.wait(), name="serving-stop")
        try:
            done, _ = await asyncio.wait([*recording, serving, stop], return_when=asyncio.FIRST_COMPLETED)
            self.health.stopping = "stopping"
            failed = [task for task in done if task in recording]
            status = WorkerExit.CRASHED if failed else WorkerExit.STOP_OVERDUE
            self.ending.deadline.begin(int(status))
            self.server.should_exit = True
            cutting = asyncio.get_running_loop().call_later(CUT_OFF_SECONDS, self.cut_off)
            if failed:
                await self._let_others_finish(recording)
                self.answers.end()
            await serving
            cutting.cancel()
            for task in failed:
                task.result()
            await self._drain(recording)
        except WorkerHalted as halted:
            log.error("serving.halted", status=halted.status.name.lower(), reason=str(halted))
            raise
        finally:
            for task in (*recording, serving, stop):
                task.cancel()
            await asyncio.gather(*recording, serving, stop, return_exceptions=True)

    async def _lease(self) -> bool:
        partitions = self.request_log.partitions
        leases = await until_available(
            self.executor,
            lambda: self.journal.lease(partitions),
            part="database",
            report_status=self.hooks.observer.part,
        )
        assert leases is not None  # it is wanted until then
        self.hooks.failpoint("after_lease")
        batches, late, labels = partitions
        self.request_log.main.install([leases[batches]])
        self.request_log.side.install([leases[late], leases[labels]])
        self.health.joined = self.slots.mine
        for partition in partitions:
            self.health.lag(partition.topic, partition.number, 0)
        log.info("serving.started", slot=self.slots.number, next_offset=leases[batches].next_offset)
        return True

    async def _let_others_finish(self, recording: list[asyncio.Task[None]]) -> None:
        """A lane that goes on may be committing what would otherwise be told to hold."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                for lane, task in zip(
                    (self.request_log.main, self.request_log.side), recording, strict=False
                ):
                    if not task.done():
                        await lane.intake.drained()

    async def _drain(self, recording: list[asyncio.Task[None]]) -> None:
        """Record what nobody waits for any more, and publish."""
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                for lane in (self.request_log.main, self.request_log.side):
                    await lane.intake.drained()
        except TimeoutError:
            log.warning("serving.drain_incomplete", detail="nobody waits for it, and it is not recorded")
            return
        if self.relay is not None:
            self.relay.finish()
            await asyncio.wait(recording[-1:], timeout=_PUBLISH_SECONDS)
        log.info("serving.drained")
