"""The port where the reader (Faust today) ends and we begin: leased partitions, their records in order.

A reader offers every record with the offset that its fetched stream went on from (`Fetched.follows`). The
intake takes a record exactly if that stream had nothing between the last one taken and this one, so an
offset hole (a transaction marker, an aborted or compacted record) is passed and a record lost on the way
is noticed. Nothing here blocks or does I/O; everything runs on the worker's event loop.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from streamer.journal import Lease, Partition, Record

LEAST_SHARE = 8
"""Records of one partition, at least, before a bounded group takes from another one.

The first sizes of a group are 1, 2 and 8: from one partition, they show what a record costs (`GroupSize`). With 4, the
group of 8 came from two partitions, and where each costs seconds the noise of two groups passed for the cost of a record.
"""
RECORD_OVERHEAD = 256
"""Bytes that a record costs beside its key, value and headers; a round figure for the budget."""


Prepare = Callable[["Record"], Future[None] | None]
"""Begins with a record, and tells when it may be decided; None: at once. Does not block, and raises nothing."""


class FetchBudget:
    """Counts records and bytes on their way (fetched, not yet arrived) and held (arrived, not yet
    committed); the bounds are >= 1.

    The fetcher asks `room` before it hands out more; so neither the reader's queues nor ours can
    grow past the bound by more than one fetch. Thread safe: the fetcher lives on a thread of its
    own.
    """

    def __init__(self, *, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._flow = 0
        self._held_records = self._held_bytes = 0
        self._underway_records = self._underway_bytes = 0

    def room(self) -> int:
        """How many records may be fetched now; 0 when a bound is reached."""
        with self._lock:
            if self._held_bytes + self._underway_bytes >= self._max_bytes:
                return 0
            return max(0, self._max_records - self._held_records - self._underway_records)

    def begin_flow(self) -> int:
        """Forget what is on its way (it will be read again) and return the new flow's number."""
        with self._lock:
            self._flow += 1
            self._underway_records = self._underway_bytes = 0
            return self._flow

    def fetched(self, flow: int, records: int, size: int) -> None:
        """Records of a flow have left the fetcher."""
        with self._lock:
            if flow == self._flow:
                self._underway_records += records
                self._underway_bytes += size

    def arrived(self, flow: int, size: int, *, kept: bool) -> None:
        """One record came out of the reader; `kept`: it now waits for its outcome."""
        with self._lock:
            if flow == self._flow:
                self._underway_records -= 1
                self._underway_bytes -= size
            if kept:
                self._held_records += 1
                self._held_bytes += size

    def released(self, records: int, size: int) -> None:
        """Held records were committed or dropped."""
        with self._lock:
            self._held_records -= records
            self._held_bytes -= size


class Fetched(NamedTuple):
    """A record as it left the fetcher: the stream had nothing in [`follows`, `record.offset`)."""

    record: Record
    follows: int
    flow: int
    size: int


class OfferResult(Enum):
    """The fate of an offered record."""

    TAKEN = "taken"
    REPEATED = "repeated"
    """Taken before; dropped."""
    FOREIGN = "foreign"
    """No lease for its partition; dropped."""
    BROKEN = "broken"
    """A record before it never arrived; dropped, and the reader must be set back."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one leased partition, on their way through one group commit."""

    lease: Lease
    expected_offset: int
    records: tuple[Record, ...]
    size: int

    @property
    def next_offset(self) -> int:
        """Where the partition continues after this run."""
        return self.records[-1].offset + 1


class _Waiting(NamedTuple):
    record: Record
    size: int
    prepared: Future[None] | None

    @property
    def ready(self) -> bool:
        return self.prepared is None or self.prepared.done()


@dataclass(slots=True)
class _Slot:
    lease: Lease
    expected: int
    gathered: int
    committed: int
    arrived_at: float
    waiting: deque[_Waiting] = field(default_factory=deque)
    in_commit: int = 0

    @property
    def ready(self) -> bool:
        return bool(self.waiting) and self.waiting[0].ready


class Intake:
    """The leased partitions of one group generation and what waits in them. `budget` counts
    every record that comes and goes; a record that is taken waits until what `prepare` returns
    for it is done."""

    def __init__(self, budget: FetchBudget, prepare: Prepare | None = None) -> None:
        self._budget = budget
        self._prepare = prepare
        self._slots: dict[Partition, _Slot] = {}
        self._waiting = asyncio.Event()
        self._changed = asyncio.Event()
        self._turn = 0

    def install(self, leases: Iterable[Lease], *, now: float) -> None:
        """Begin (or begin again) with fresh leases; `now` is monotonic seconds."""
        for lease in leases:
            self._drop(lease.partition)
            start = lease.next_offset
            self._slots[lease.partition] = _Slot(lease, start, start, start, now)

    def revoke(self) -> list[Partition]:
        """Give up every partition and whatever waits; what is being committed becomes stale."""
        gone = list(self._slots)
        for partition in gone:
            self._drop(partition)
        self._wake()
        return gone

    def offer(self, fetched: Fetched, *, now: float) -> OfferResult:
        """Take the record if it is the next one of a leased partition."""
        record = fetched.record
        slot = self._slots.get(record.partition)
        if slot is None:
            verdict = OfferResult.FOREIGN
        elif record.offset < slot.expected:
            verdict = OfferResult.REPEATED
        elif fetched.follows > slot.expected:
            verdict = OfferResult.BROKEN
        else:
            verdict = OfferResult.TAKEN
            prepared = None if self._prepare is None else self._prepare(record)
            slot.waiting.append(_Waiting(record, fetched.size, prepared))
            slot.expected = record.offset + 1
            slot.arrived_at = now
            if prepared is None:
                self._waiting.set()
            else:
                prepared.add_done_callback(self._wake_from(asyncio.get_running_loop()))
        self._budget.arrived(fetched.flow, fetched.size, kept=verdict is OfferResult.TAKEN)
        return verdict

    async def gather(self, *, max_records: int, max_bytes: int) -> list[Run]:
        """Wait until something is ready, then take all that is, within the bounds, and every partition its share.

        Cancellation safe: nothing is taken before the return.
        """
        while True:
            runs = self._gather(max_records, max_bytes)
            if runs:
                return runs
            self._waiting.clear()
            await self._waiting.wait()

    def _gather(self, max_records: int, max_bytes: int) -> list[Run]:
        busy = [slot for slot in self._slots.values() if slot.ready]
        if not busy:
            return []
        self._turn += 1
        first = self._turn % len(busy)
        # A partition costs a commit something of its own: a small group is taken from few of them, in turn.
        chosen = (busy[first:] + busy[:first])[: max(1, max_records // LEAST_SHARE)]
        runs: list[Run] = []
        for place, slot in enumerate(chosen):
            share = len(chosen) - place  # what the earlier ones left over is shared by those that follow
            run = self._take(slot, max(1, max_records // share), max_bytes // share)
            runs.append(run)
            max_records -= len(run.records)
            max_bytes -= run.size
            if max_records <= 0 or max_bytes <= 0:
                break
        return runs

    @staticmethod
    def _take(slot: _Slot, max_records: int, max_bytes: int) -> Run:
        records: list[Record] = []
        size = 0
        while slot.ready and len(records) < max_records:
            record, weight, _ = slot.waiting[0]
            if records and size + weight > max_bytes:
                break
            slot.waiting.popleft()
            records.append(record)
            size += weight
        run = Run(slot.lease, slot.gathered, tuple(records), size)
        slot.gathered = run.next_offset
        slot.in_commit += len(records)
        return run

    def holds(self, run: Run) -> bool:
        """Whether the run's lease is still the one that we have."""
        slot = self._slots.get(run.lease.partition)
        return slot is not None and slot.lease == run.lease

    def release(self, runs: Iterable[Run]) -> None:
        """These runs are committed, or dropped because they were stale."""
        for run in runs:
            self._budget.released(len(run.records), run.size)
            if self.holds(run):
                slot = self._slots[run.lease.partition]
                slot.committed = run.next_offset
                slot.in_commit -= len(run.records)
        self._wake()

    def move_past(self, partition: Partition, offset: int) -> None:
        """A recorded gap moved the stored progress of an idle partition to `offset`."""
        slot = self._slots[partition]
        slot.expected = max(slot.expected, offset)
        slot.gathered = slot.committed = offset

    async def drained(self, partitions: Iterable[Partition] | None = None) -> None:
        """Wait until nothing of these (or of all) partitions waits or is being committed."""
        wanted = None if partitions is None else set(partitions)
        while any(
            slot.waiting or slot.in_commit
            for partition, slot in self._slots.items()
            if wanted is None or partition in wanted
        ):
            self._changed.clear()
            await self._changed.wait()

    @property
    def leases(self) -> Mapping[Partition, Lease]:
        """The present leases."""
        return {partition: slot.lease for partition, slot in self._slots.items()}

    def expected(self) -> dict[Partition, int]:
        """For each leased partition the offset that the reader has to continue from."""
        return {partition: slot.expected for partition, slot in self._slots.items()}

    def committed(self) -> dict[Partition, int]:
        """For each leased partition the stored progress, as far as we know it."""
        return {partition: slot.committed for partition, slot in self._slots.items()}

    def idle_since(self, partition: Partition) -> float | None:
        """When the last record arrived (monotonic); None while records wait or without a lease."""
        slot = self._slots.get(partition)
        return None if slot is None or slot.waiting or slot.in_commit else slot.arrived_at

    def touch(self, partition: Partition, now: float) -> None:
        """Restart the wait of `idle_since`."""
        if partition in self._slots:
            self._slots[partition].arrived_at = now

    def _drop(self, partition: Partition) -> None:
        slot = self._slots.pop(partition, None)
        if slot is not None:
            # What is being committed is released by `release`, whatever happens to it.
            self._budget.released(len(slot.waiting), sum(one.size for one in slot.waiting))
            for one in slot.waiting:
                if one.prepared is not None:
                    one.prepared.cancel()

    def _wake_from(self, loop: asyncio.AbstractEventLoop) -> Callable[[object], None]:
        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._waiting.set)

        return wake

    def _wake(self) -> None:
        self._changed.set()
