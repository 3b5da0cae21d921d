"""Where each assigned partition continues: its lease, and what the broker still has of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import structlog

from streamer.errors import Fenced, TopicRecreated
from streamer.journal import DataGap, Journal, Lease, Partition
from streamer.stream.backoff import until_available
from streamer.stream.ending import WorkerExit, WorkerHalted
from streamer.stream.hooks import Hooks
from streamer.stream.intake import Intake
from streamer.stream.topic_identity import recreated

log = structlog.get_logger(__name__)


class Bounds(NamedTuple):
    """What the broker has of a partition: offsets [`earliest`, `end`)."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class _Assignment:
    """What the group has assigned us once; the same partitions assigned again are another assignment."""

    generation: int
    partitions: frozenset[Partition]


@dataclass(eq=False)
class Leasing:
    """Leases each partition once per group generation and installs it in the intake.

    Between `revoke` and the next `begin` nothing is leased: the group may have given the partitions
    to other workers by then, and a lease taken late would fence them. The journal is called in
    `executor`, which has one thread; `bounds` and `topic_ids` ask the broker, and the lease
    compares the ids with the stored ones. Of the failpoints of `hooks` ``after_lease`` is passed.
    """

    journal: Journal
    intake: Intake
    _: KW_ONLY
    executor: Executor
    bounds: Callable[[Collection[Partition]], Awaitable[Mapping[Partition, Bounds]]]
    hooks: Hooks
    topic_ids: Callable[[Collection[str]], Awaitable[Mapping[str, str]]]

    def __post_init__(self) -> None:
        self._lock = asyncio.Lock()
        self._assignment: _Assignment | None = None

    def begin(self, generation: int, partitions: Collection[Partition]) -> None:
        """The group has assigned these partitions: they may be leased now, and no others."""
        self.revoke()
        self._assignment = _Assignment(generation, frozenset(partitions))

    def revoke(self) -> None:
        """The group rebalances: other workers may take what was leased."""
        for partition in self.intake.revoke():
            self.hooks.observer.released(partition.topic, partition.number)
        self._assignment = None

    async def settled(self) -> None:
        """Wait until the database has answered whatever was asked of it: after `revoke`, nothing is leased late."""
        await asyncio.get_running_loop().run_in_executor(self.executor, _nothing)

    async def positions(self) -> dict[Partition, int]:
        """Lease what is assigned and not leased yet, and return where to read each partition on.

        Records that the broker no longer has are recorded as a gap and passed. Empty while the group rebalances.
        Raises `WorkerHalted` when a partition ends before the stored progress, or another worker
        has taken it.
        """
        async with self._lock:
            # Only now: while another call had the lock, the group may have assigned others.
            assignment = self._assignment
            if assignment is None:
                return {}
            missing = sorted(assignment.partitions - set(self.intake.expected()))
            if missing:
                await self._lease(assignment, missing)
            if assignment is not self._assignment:
                return {}
            await self._pass_gaps()
            return self.intake.expected()

    async def _lease(self, assignment: _Assignment, partitions: list[Partition]) -> None:
        began = time.monotonic()
        ids = await self.topic_ids({partition.topic for partition in partitions})
        if assignment is not self._assignment:
            return
        try:
            leases = await until_available(
                self.executor,
                lambda: self.journal.lease(partitions, topic_ids=ids),
                part="database",
                wanted=lambda: assignment is self._assignment,
                report_status=self.hooks.observer.part,
            )
        except TopicRecreated as error:
            raise WorkerHalted(WorkerExit.LOG_RECREATED, recreated(error.topic)) from error
        if leases is None or assignment is not self._assignment:
            return
        self.hooks.failpoint("after_lease")
        self.intake.install(leases.values(), now=time.monotonic())
        self.hooks.observer.stage("lease", time.monotonic() - began)
        log.info(
            "stream.leased",
            generation=assignment.generation,
            leases=[
                {"topic": p.topic, "partition": p.number, "epoch": one.epoch, "next_offset": one.next_offset}
                for p, one in sorted(leases.items())
            ],
        )

    async def _pass_gaps(self) -> None:
        leases = self.intake.leases
        if not leases:
            return
        bounds = await self.bounds(list(leases))
        for partition, lease in leases.items():
            earliest, end = bounds[partition]
            expected = self.intake.expected().get(partition)
            if expected is None:
                continue
            if end < expected:
                raise WorkerHalted(
                    WorkerExit.LOG_RECREATED,
                    f"{partition.topic}[{partition.number}] ends at offset {end}, but outcomes are recorded up "
                    f"to {expected}: the topic was deleted and recreated, or its log was cut. Restore the "
                    "topic, or give the topics a new prefix so that the new log gets its own progress",
                )
            if earliest > expected:
                await self._record_gap(lease, DataGap(partition, expected, earliest))

    async def _record_gap(self, lease: Lease, gap: DataGap) -> None:
        await self.intake.drained([gap.partition])
        if self.intake.leases.get(gap.partition) != lease:
            return
        moved = replace(lease, next_offset=gap.from_offset)
        try:
            await until_available(
                self.executor,
                lambda: self.journal.record_gap(moved, gap),
                part="database",
                wanted=lambda: self.intake.leases.get(gap.partition) == lease,
                report_status=self.hooks.observer.part,
            )
        except Fenced as error:
            if self.intake.leases.get(gap.partition) == lease:
                raise WorkerHalted(WorkerExit.FENCED, str(error)) from error
            return
        if self.intake.leases.get(gap.partition) != lease:
            return
        self.intake.move_past(gap.partition, gap.to_offset)
        self.hooks.observer.gap(gap)
        log.error(
            "stream.data_gap",
            topic=gap.partition.topic,
            partition=gap.partition.number,
            from_offset=gap.from_offset,
            to_offset=gap.to_offset,
        )


def _nothing() -> None:
    pass
