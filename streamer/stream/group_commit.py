"""One scoring call and one transaction for everything that waits. The next group is decided while one commits.

Two groups are under way at most: one is being committed in one thread, and meanwhile the next one is gathered and decided, its
texts encoded, in another. Only then does a third one gather, so groups grow with the load and latency stays low without it;
a lone event waits for nothing. A group that is decided sooner than the one before it is committed is gathered later, to be decided
just when its turn comes: what arrives until then comes with it and need not wait for one more commit. What holds:

- Groups are committed one after the other, in the order in which they were gathered, so each partition moves on offset by
  offset. A group that is refused record by record is done before the next one begins.
- Nothing that was decided ahead counts before its own commit, which checks lease, progress, policies and deadlines then, as
  it does for any group: one that waited for long is decided again, without another encoding. A batch that is in both groups
  is found by the commit of the second one.
- An error of the group ahead is raised, or blamed on its records, in its turn: after the one before it was committed.
- The decider is called by one thread at a time, also when something is decided again.
- Whoever ends the worker loses what was decided ahead: it is not recorded, so the next owner reads it again.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from streamer.errors import Fenced, Outdated
from streamer.events import codes
from streamer.journal import BatchDecision, Commit, Outcome, OutcomeKind, Record, Slice
from streamer.stream.backoff import until_available
from streamer.stream.ending import WorkerExit, WorkerHalted
from streamer.stream.group_size import GroupSize
from streamer.stream.hooks import Decider, Hooks
from streamer.stream.intake import Intake, Run
from streamer.stream.isolation import (
    ContentError,
    DeadLetterCap,
    blaming_content,
    commit_isolating,
    without_bytes,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")

_LATELY = 8
"""Groups from which `_Pace` knows how long the next ones take."""


@dataclass(frozen=True, slots=True)
class _CommitGroup:
    """Runs that were decided ahead; `outcomes` None: they became stale. `seconds` is what deciding took."""

    runs: list[Run]
    outcomes: list[Outcome] | ContentError | None
    seconds: float


class _Pace:
    """How long deciding and committing took lately; a group gathered too late costs throughput, so the doubt goes to early."""

    def __init__(self) -> None:
        self.deciding: deque[float] = deque(maxlen=_LATELY)
        self.committing: deque[float] = deque(maxlen=_LATELY)

    @property
    def spare_seconds(self) -> float:
        """For how long after a commit began the next group may still gather; 0 or less: decide at once."""
        return min(self.committing, default=0.0) - max(self.deciding, default=0.0)


@dataclass(eq=False)
class GroupCommit:
    """The flusher: takes runs from the intake, has them decided, commits them, until cancelled.

    `Decider.outcomes` blocks in `score_executor`, `commit` in `executor`, of one thread each. `max_records` and `max_bytes` bound one group; fewer records make one when they take long
    (`GroupSize`). `on_commit` is called after each commit: the relay has work. Of the failpoints of
    `hooks`, ``while_scoring`` is passed in `score_executor`; then come ``after_score``,
    ``before_commit`` and ``after_commit``.
    """

    intake: Intake
    decider: Decider
    commit: Commit
    _: KW_ONLY
    score_executor: Executor
    executor: Executor
    max_records: int
    max_bytes: int
    cap: DeadLetterCap
    hooks: Hooks
    on_commit: Callable[[], None]

    def __post_init__(self) -> None:
        self._size = GroupSize(self.max_records)
        self._pace = _Pace()
        self._committed = asyncio.Event()
        self._decided_again = self._policies_keep_coming = False

    async def run(self) -> None:
        """Commit until cancelled.

        Raises `WorkerHalted` when the lease was lost to another worker while it was ours by all we
        knew (a zombie), or when more was refused than the cap allows.
        """
        ahead = asyncio.create_task(self._decide_next(), name="stream-decide-ahead")
        try:
            while True:
                group = await ahead
                self._committed.clear()
                ahead = asyncio.create_task(
                    self._decide_next(self._pace.spare_seconds), name="stream-decide-ahead"
                )
                await self._finish(group)
                self._committed.set()
        finally:
            ahead.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await ahead

    async def _decide_next(self, spare_seconds: float = 0.0) -> _CommitGroup:
        if spare_seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(spare_seconds):
                    await self._committed.wait()
        runs = await self.intake.gather(max_records=self._size.bound, max_bytes=self.max_bytes)
        began = time.monotonic()
        outcomes: list[Outcome] | ContentError | None
        try:
            outcomes = await self._decide(runs, _records(runs))
        except ContentError as error:
            outcomes = error
        return _CommitGroup(runs, outcomes, time.monotonic() - began)

    async def _finish(self, group: _CommitGroup) -> None:
        """Commit a group, with those of its records refused that cannot be."""
        runs = group.runs
        began = time.monotonic()
        ahead = [group.outcomes]

        async def commit(some: list[Run]) -> None:
            outcomes = ahead.pop() if ahead else await self._decide(some, _records(some))
            if isinstance(outcomes, ContentError):
                raise outcomes
            await self._commit(some, outcomes)

        try:
            self._decided_again = False
            if await commit_isolating(runs, commit, self._refuse) and not self._decided_again:
                self._size.observe(
                    sum(len(run.records) for run in runs),
                    group.seconds + time.monotonic() - began,
                    partitions=len(runs),
                )
        finally:
            self.intake.release(runs)

    async def _commit(self, runs: list[Run], outcomes: list[Outcome] | None) -> None:
        """Commit a decided group; while a gate's policy changes before the commit, decide its batches again."""
        firm = self._policies_keep_coming  # then each group would be written twice
        self._policies_keep_coming = False
        while outcomes is not None:
            self.hooks.failpoint("after_score")
            try:
                await self._record(runs, outcomes, firm=firm)
            except Outdated as error:
                self._decided_again = self._policies_keep_coming = firm = True
                outcomes = await self._decide_outdated(runs, outcomes, error)
            else:
                return
        self._stale(runs)

    async def _decide_outdated(
        self, runs: list[Run], outcomes: list[Outcome], error: Outdated
    ) -> list[Outcome] | None:
        """Decide the batches of the gates that `error` names again, and leave everything else as it is."""
        again = {
            place: one
            for place, one in enumerate(outcomes)
            if isinstance(one, BatchDecision) and one.key.gate in error.gates
        }
        log.info("stream.decided_again", records=len(again), of=len(outcomes), reason=str(error))
        repeated = await self._decide(runs, [one.record for one in again.values()], list(again.values()))
        if repeated is None:
            return None
        decided = list(outcomes)
        for place, outcome in zip(again, repeated, strict=True):
            decided[place] = outcome
        return decided

    async def _refuse(self, run: Run, detail: str, *, withheld: bool) -> None:
        """Record that the run's only record is refused; `withheld`: without its bytes."""
        record = run.records[0]
        kept = without_bytes(record) if withheld else record
        await self._record([run], [self.decider.dead_letter(kept, codes.INTERNAL_ERROR, detail)])

    async def _record(self, runs: list[Run], outcomes: Sequence[Outcome], *, firm: bool = False) -> None:
        slices = _slices(runs, outcomes)
        self.hooks.failpoint("before_commit")
        began = time.monotonic()
        try:
            kinds = await self._while_held(
                self.executor,
                runs,
                lambda: self.commit(slices, now=datetime.now(UTC), firm=firm),
                part="database",
            )
        except Fenced as error:
            if self._all_held(runs):
                raise WorkerHalted(WorkerExit.FENCED, f"another worker holds the lease: {error}") from error
            kinds = None
        if kinds is None:
            self._stale(runs)
            return
        self.hooks.failpoint("after_commit")
        seconds = time.monotonic() - began
        self._pace.committing.append(seconds)
        self.hooks.observer.stage("commit", seconds)
        self._observe(slices, kinds, seconds)

    async def _decide(
        self, runs: list[Run], records: Sequence[Record], outdated: Sequence[Outcome] = ()
    ) -> list[Outcome] | None:
        began = time.monotonic()

        def decide() -> list[Outcome]:
            self.hooks.failpoint("while_scoring")
            return self.decider.outcomes(records, outdated)

        outcomes = await self._while_held(self.score_executor, runs, decide, part="decider")
        if outcomes is None:
            return None
        if len(outcomes) != len(records) or any(
            outcome.record is not record for outcome, record in zip(outcomes, records, strict=True)
        ):
            raise RuntimeError("the decider must return one outcome for each record, in order")
        seconds = time.monotonic() - began
        self._pace.deciding.append(seconds)
        self.hooks.observer.stage("score", seconds)
        return outcomes

    def _observe(
        self, slices: Sequence[Slice], kinds: Sequence[Sequence[OutcomeKind]], seconds: float
    ) -> None:
        outcomes = [outcome for one in slices for outcome in one.outcomes]
        became = [kind for group in kinds for kind in group]
        for outcome in outcomes:
            if isinstance(outcome, BatchDecision):
                self.hooks.ledger.remember(outcome.action, outcome.record.timestamp_ms)
        self.hooks.observer.committed(outcomes, became)
        self.hooks.tracing.committed(outcomes, became, seconds=seconds)
        self.on_commit()
        reason = self.cap.passed(became)
        if reason is not None:
            raise WorkerHalted(
                WorkerExit.DEAD_LETTER_CAP,
                f"{reason}; look at `streamer dead-letters list`, then start the worker again",
            )

    def _all_held(self, runs: Sequence[Run]) -> bool:
        return all(self.intake.holds(run) for run in runs)

    async def _while_held(
        self, executor: Executor, runs: Sequence[Run], call: Callable[[], T], *, part: str
    ) -> T | None:
        return await until_available(
            executor,
            blaming_content(call),
            part=part,
            wanted=lambda: self._all_held(runs),
            report_status=self.hooks.observer.part,
        )

    def _stale(self, runs: Sequence[Run]) -> None:
        records = _records(runs)
        self.hooks.tracing.dropped(records)
        log.info("stream.stale_group_dropped", records=len(records))


def _records(runs: Sequence[Run]) -> list[Record]:
    return [record for run in runs for record in run.records]


def _slices(runs: Sequence[Run], outcomes: Sequence[Outcome]) -> list[Slice]:
    slices: list[Slice] = []
    start = 0
    for run in runs:
        end = start + len(run.records)
        slices.append(Slice(run.lease, run.expected_offset, run.next_offset, tuple(outcomes[start:end])))
        start = end
    return slices
