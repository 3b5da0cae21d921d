"""Requests on their way through a group commit: each becomes the next record of a leased partition."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from streamer.events.receipts import receipt
from streamer.journal import Headers, Lease, Outcome, OutcomeKind, Partition, Record
from streamer.store.store import Store
from streamer.stream.group_commit import GroupCommit
from streamer.stream.health import WorkerHealth
from streamer.stream.hooks import Decider, Hooks, StreamObserver
from streamer.stream.intake import FetchBudget, Fetched, Intake, Prepare
from streamer.stream.isolation import DeadLetterCap, DeadLetterLimits

_NO_FLOW: Final = -1
"""Records that no fetcher brought."""

_NEVER: Final = DeadLetterLimits(run=sys.maxsize, ratio=1.0, window=1)
"""Whoever sent a request that is refused is told so; to halt would deny the others."""


class Recorded(NamedTuple):
    """What became of a request, and the receipt of its own record; None where that is not known here."""

    outcome: Outcome
    kind: OutcomeKind
    receipt: str | None


class Ended(Exception):
    """The service ends, and what became of the request will not be known here."""


class PendingAnswers:
    """Who waits for what becomes of which record, and how many records of each partition are not
    committed yet. Used on the event loop alone, but for `linked`."""

    def __init__(self) -> None:
        self.waiting: Final[Counter[Partition]] = Counter()
        self._waiting: dict[tuple[Partition, int], asyncio.Future[Recorded]] = {}
        self._receipts: dict[tuple[Partition, int], str] = {}
        self._ended = False

    def linked(self, record: Record, index: int, leaf: bytes, root: bytes) -> None:
        """Take down the leaf that a record becomes if it is committed. From any thread."""
        self._receipts[record.partition, record.offset] = receipt(record.partition, index, leaf, root)

    def expect(self, partition: Partition, offset: int) -> asyncio.Future[Recorded]:
        """Give what will be known once the record is committed; it raises `Ended` when it never will be."""
        answer = asyncio.get_running_loop().create_future()
        if self._ended:
            answer.set_exception(Ended())
        else:
            self._waiting[partition, offset] = answer
            self.waiting[partition] += 1
        return answer

    def give(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """These are committed."""
        for outcome, kind in zip(outcomes, kinds, strict=True):
            if outcome.record is not None:
                partition = outcome.record.partition
                place = partition, outcome.record.offset
                given = self._receipts.pop(place, None)
                answer = self._waiting.pop(place, None)
                if answer is not None:
                    self.waiting[partition] -= 1
                    answer.set_result(Recorded(outcome, kind, given))

    def end(self) -> None:
        """Nothing more will be committed."""
        self._ended = True
        for answer in self._waiting.values():
            answer.set_exception(Ended())
            answer.exception()  # whoever asked may be gone
        self._waiting.clear()


class ServiceHealth(WorkerHealth):
    """The health of a service of requests, which gives them their answers when their records are committed."""

    def __init__(
        self, answers: PendingAnswers, observer: StreamObserver, *, essential: Collection[str]
    ) -> None:
        super().__init__(observer, dependencies=["database"], essential=essential)
        self.unjoined = "its slot is not leased, or not any more"
        self._answers = answers

    def submitted(self, partition: Partition) -> None:
        """Expect progress from now on."""
        if self._answers.waiting[partition] == 1:
            self.lag(partition.topic, partition.number, 0)  # nothing was late until now
        self.lag(partition.topic, partition.number, self._answers.waiting[partition])

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """Give the answers."""
        super().committed(outcomes, kinds)
        self._answers.give(outcomes, kinds)
        for partition, waiting in self._answers.waiting.items():
            self.lag(partition.topic, partition.number, waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Bounds of one lane: requests and bytes that wait, and what one transaction takes of them."""

    max_waiting: int
    max_waiting_bytes: int
    max_commit_records: int
    max_commit_bytes: int


class Lane:
    """Some partitions of the log `http`, and the group commit that decides and records what is
    submitted to them. The executors have one thread each, for the decider and for the database;
    `prepare` begins with each request (see `Intake`)."""

    def __init__(
        self,
        decider: Decider,
        journal: Store,
        *,
        score_executor: Executor,
        executor: Executor,
        limits: LaneLimits,
        hooks: Hooks,
        answers: PendingAnswers,
        health: ServiceHealth,
        on_commit: Callable[[], None],
        prepare: Prepare | None = None,
    ) -> None:
        self._budget = FetchBudget(max_records=limits.max_waiting, max_bytes=limits.max_waiting_bytes)
        self.intake: Final = Intake(self._budget, prepare)
        self._answers = answers
        self._health = health
        self._commits = GroupCommit(
            self.intake,
            decider,
            # What was told last of a record counts, once a commit returns.
            partial(journal.commit, linked=answers.linked),
            score_executor=score_executor,
            executor=executor,
            max_records=limits.max_commit_records,
            max_bytes=limits.max_commit_bytes,
            cap=DeadLetterCap(_NEVER),
            hooks=hooks,
            on_commit=on_commit,
        )

    def install(self, leases: Iterable[Lease]) -> None:
        """Number requests on from where these leases are."""
        self.intake.install(leases, now=time.monotonic())

    def room(self) -> int:
        """How many more requests may be submitted now."""
        return self._budget.room()

    def submit(
        self,
        partition: Partition,
        value: bytes,
        *,
        key: bytes,
        headers: Headers,
        timestamp_ms: int,
        deadline_ms: int | None = None,
    ) -> asyncio.Future[Recorded]:
        """Put a request into the next group, and give what becomes of it."""
        offset = self.intake.expected()[partition]
        record = Record(partition, offset, key, value, headers, timestamp_ms, deadline_ms)
        answer = self._answers.expect(partition, offset)
        self._health.submitted(partition)
        self.intake.offer(Fetched(record, offset, _NO_FLOW, len(value)), now=time.monotonic())
        return answer

    async def run(self) -> None:
        """Decide and record until cancelled; see `GroupCommit.run` for what it raises."""
        await self._commits.run()
