"""Which partitions a process records its requests in: a slot that it leases, with a number that nobody else has meanwhile."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from typing import TypeVar

import structlog

from streamer.errors import Unavailable
from streamer.events.topics import HTTP, HTTP_LABELS, HTTP_LATE, HTTP_LOG
from streamer.journal import Journal, Lease, Partition
from streamer.store.db.leases import ProcessLease
from streamer.stream.ending import WorkerExit, WorkerHalted

log = structlog.get_logger(__name__)

T = TypeVar("T")

_LOOK_SECONDS = 1.0
_LOOKS_TO_ADOPT = 5


def partitions_of(number: int) -> tuple[Partition, Partition, Partition]:
    """Where a slot's batches, late batches and severities are numbered."""
    batches, late, labels = (Partition(HTTP_LOG, topic, number) for topic in (HTTP, HTTP_LATE, HTTP_LABELS))
    return batches, late, labels


class Slots:
    """The slot of this process (`number`, `own`), and those of processes that died and left
    messages unpublished.

    `lease` makes the lease of another slot. `waiting` gives the numbers of the slots with messages
    to publish, None where nothing is published; it blocks, as `journal` does, in `executor` of one
    thread. `wake` is called when there is something of another slot's to publish.
    """

    def __init__(
        self,
        number: int,
        own: ProcessLease,
        *,
        lease: Callable[[int], ProcessLease],
        waiting: Callable[[], Collection[int]] | None,
        journal: Journal,
        executor: Executor,
        wake: Callable[[], None],
    ) -> None:
        self.number = number
        self._own = own
        self._lease = lease
        self._waiting = waiting
        self._journal = journal
        self._executor = executor
        self._wake = wake
        self._adopted: dict[int, tuple[ProcessLease, Mapping[Partition, Lease]]] = {}

    def mine(self) -> bool:
        """Report, without asking the database, whether nobody else can have this process's slot."""
        return self._own.certain()

    def adopted(self) -> dict[Partition, Lease]:
        """The leases of partitions of others, whose messages this process publishes."""
        held = [leases for lease, leases in self._adopted.values() if lease.certain()]
        return {partition: one for leases in held for partition, one in leases.items()}

    async def keep(self) -> None:
        """Look after the slots until cancelled. Raises `WorkerHalted` when another process took
        this one's slot: it was stopped, or cut off from the database, for too long."""
        looks = 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            looks += 1
            try:
                if not self.mine() and not await self._asking(self._own.renewed):
                    raise WorkerHalted(
                        WorkerExit.FENCED,
                        f"another process took slot {self.number}: this one stood still, or was cut off from the database, too long",
                    )
                if self._waiting is not None and looks % _LOOKS_TO_ADOPT == 0:
                    await self._asking(self._adopt)
            except Unavailable:
                continue
            if self._adopted:
                self._wake()

    def release(self) -> None:
        """Let others have every slot."""
        for lease in (self._own, *(lease for lease, _ in self._adopted.values())):
            lease.release()

    async def _asking(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _adopt(self) -> None:
        """Take the free slots that have messages to publish, and give back those that have none any more."""
        assert self._waiting is not None
        waiting = set(self._waiting()) - {self.number}
        for number, (lease, _) in list(self._adopted.items()):
            if (
                number not in waiting or not lease.certain()
            ):  # what was lost may be free again, and is taken anew below
                del self._adopted[number]
                lease.release()
        for number in waiting - self._adopted.keys():
            lease = self._lease(number)
            if lease.held():
                self._adopted[number] = (lease, self._journal.lease(partitions_of(number)))
                log.info(
                    "serving.slot_adopted", slot=number, reason="messages of a process that is gone wait"
                )
