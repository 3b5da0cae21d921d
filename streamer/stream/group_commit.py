"""One scoring call and one transaction for everything that waits; no timer.

While one group is scored and committed the next gathers, so groups grow with the load and latency stays
low without it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import structlog

from streamer.errors import Fenced, Outdated
from streamer.events import codes
from streamer.journal import Decision, Journal, Slice
from streamer.stream.backoff import until_available
from streamer.stream.exits import WorkerExit, WorkerHalted
from streamer.stream.group_size import GroupSize
from streamer.stream.isolation import blaming_content, commit_isolating, without_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from streamer.journal import Outcome, OutcomeKind, Record
    from streamer.stream.dead_letter_cap import DeadLetterCap
    from streamer.stream.decider import Decider
    from streamer.stream.hooks import Hooks
    from streamer.stream.intake import Intake, Run

log = structlog.get_logger(__name__)
T = TypeVar("T")


class GroupCommit:
    """The flusher: takes runs from the intake, has them decided, commits them, until cancelled.

    Parameters
    ----------
    executor : one thread; `Decider.outcomes` and `Journal.commit` block there.
    max_records, max_bytes : bounds of one group; fewer records make one when they take long (`GroupSize`).
    on_commit : called after each commit (the relay has work).
    hooks : of its failpoints ``while_scoring`` is passed in `executor`, and ``after_score``, ``before_commit`` and
        ``after_commit``.
    """

    def __init__(
        self,
        intake: Intake,
        decider: Decider,
        journal: Journal,
        *,
        executor: Executor,
        max_records: int,
        max_bytes: int,
        cap: DeadLetterCap,
        hooks: Hooks,
        on_commit: Callable[[], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._intake = intake
        self._decider = decider
        self._journal = journal
        self._executor = executor
        self._size = GroupSize(max_records)
        self._max_bytes = max_bytes
        self._cap = cap
        self._hooks = hooks
        self._on_commit = on_commit
        self._clock = clock
        self._decided_again = self._policies_keep_coming = False

    async def run(self) -> None:
        """Commit until cancelled.

        Raises
        ------
        WorkerHalted
            When the lease was lost to another worker while it was ours by all we knew (a zombie), or when
            more was refused than the cap allows.
        """
        while True:
            runs = await self._intake.gather(max_records=self._size.bound, max_bytes=self._max_bytes)
            began = time.monotonic()
            try:
                self._decided_again = False
                if await commit_isolating(runs, self._commit, self._refuse) and not self._decided_again:
                    self._size.observe(
                        sum(len(run.records) for run in runs), time.monotonic() - began, partitions=len(runs)
                    )
            finally:
                self._intake.release(runs)

    async def _commit(self, runs: list[Run]) -> None:
        """Decide and commit a group; while a gate's policy changes before the commit, decide its batches again."""
        records = [record for run in runs for record in run.records]
        outcomes = await self._decide(runs, records)
        firm = self._policies_keep_coming  # then each group would be written twice
        self._policies_keep_coming = False
        while outcomes is not None:
            self._hooks.failpoint("after_score")
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
            if isinstance(one, Decision) and one.key.gate in error.gates
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
        await self._record([run], [self._decider.dead_letter(kept, codes.INTERNAL_ERROR, detail)])

    async def _record(self, runs: list[Run], outcomes: Sequence[Outcome], *, firm: bool = False) -> None:
        slices = _slices(runs, outcomes)
        self._hooks.failpoint("before_commit")
        began = time.monotonic()
        try:
            kinds = await self._while_held(
                runs, lambda: self._journal.commit(slices, now=self._clock(), firm=firm), part="database"
            )
        except Fenced as error:
            if self._all_held(runs):
                raise WorkerHalted(WorkerExit.FENCED, f"another worker holds the lease: {error}") from error
            kinds = None
        if kinds is None:
            self._stale(runs)
            return
        self._hooks.failpoint("after_commit")
        self._hooks.observer.stage("commit", time.monotonic() - began)
        self._observe(slices, kinds)

    async def _decide(
        self, runs: list[Run], records: Sequence[Record], outdated: Sequence[Outcome] = ()
    ) -> list[Outcome] | None:
        began = time.monotonic()

        def decide() -> list[Outcome]:
            self._hooks.failpoint("while_scoring")
            return self._decider.outcomes(records, outdated)

        outcomes = await self._while_held(runs, decide, part="decider")
        if outcomes is None:
            return None
        if len(outcomes) != len(records) or any(
            outcome.record is not record for outcome, record in zip(outcomes, records, strict=True)
        ):
            raise RuntimeError("the decider must return one outcome for each record, in order")
        self._hooks.observer.stage("score", time.monotonic() - began)
        return outcomes

    def _observe(self, slices: Sequence[Slice], kinds: Sequence[Sequence[OutcomeKind]]) -> None:
        outcomes = [outcome for one in slices for outcome in one.outcomes]
        became = [kind for group in kinds for kind in group]
        for outcome in outcomes:
            if isinstance(outcome, Decision):
                self._hooks.ledger.remember(outcome.action, outcome.record.timestamp_ms)
        self._hooks.observer.committed(outcomes, became)
        self._on_commit()
        reason = self._cap.passed(became)
        if reason is not None:
            raise WorkerHalted(
                WorkerExit.DEAD_LETTER_CAP,
                f"{reason}; look at `streamer dead-letters list`, then start the worker again",
            )

    def _all_held(self, runs: Sequence[Run]) -> bool:
        return all(self._intake.holds(run) for run in runs)

    async def _while_held(self, runs: Sequence[Run], call: Callable[[], T], *, part: str) -> T | None:
        return await until_available(
            self._executor,
            blaming_content(call),
            part=part,
            wanted=lambda: self._all_held(runs),
            report_status=self._hooks.observer.part,
        )

    @staticmethod
    def _stale(runs: Sequence[Run]) -> None:
        log.info("stream.stale_group_dropped", records=sum(len(run.records) for run in runs))


def _slices(runs: Sequence[Run], outcomes: Sequence[Outcome]) -> list[Slice]:
    slices: list[Slice] = []
    start = 0
    for run in runs:
        end = start + len(run.records)
        slices.append(Slice(run.lease, run.expected_offset, run.next_offset, tuple(outcomes[start:end])))
        start = end
    return slices
