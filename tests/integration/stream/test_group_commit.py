"""The next group is decided while one commits: in order, each error in its turn, and nothing counts before its own commit."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamer.errors import DatabaseFault, Outdated
from streamer.journal import Outcome, Partition, Record
from streamer.stream.group_commit import GroupCommit
from streamer.stream.hooks import Hooks
from streamer.stream.intake import FetchBudget, Fetched, Intake
from streamer.stream.isolation import DeadLetterCap, DeadLetterLimits
from tests.integration.stream.deciders import EchoDecider
from tests.integration.stream.memory_journal import MemoryJournal

PARTITIONS = [Partition("log", "topic", number) for number in range(2)]
GROUP = 4
COUNT = 10 * GROUP
VALUES = [b"ok-%d" % number for number in range(COUNT)]
ROOM = 10**6
PATIENCE = 240.0


class OneAtATime(EchoDecider):
    """A decider that fails the test when it is called twice at once."""

    def __init__(self, before: Callable[[Sequence[Record]], None] = lambda _records: None) -> None:
        super().__init__(before=before)
        self.again: list[int] = []
        self._free = threading.Lock()

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        assert self._free.acquire(blocking=False), "two calls at once"
        try:
            if outdated:
                self.again.append(len(records))
            return super().outcomes(records, outdated)
        finally:
            self._free.release()


class Site:
    """One worker's intake and commits over a journal that outlives it."""

    def __init__(self, journal: MemoryJournal, decider: OneAtATime) -> None:
        self.journal, self.decider = journal, decider
        self.budget = FetchBudget(max_records=ROOM, max_bytes=10**9)
        self.intake = Intake(self.budget)

    def read(self) -> None:
        """Lease both partitions anew and offer all that is not recorded yet."""
        self.intake.revoke()
        leases = self.journal.lease(PARTITIONS)
        self.intake.install(leases.values(), now=0.0)
        flow = self.budget.begin_flow()
        for place, value in enumerate(VALUES):
            offset, number = divmod(place, len(PARTITIONS))
            if offset >= leases[PARTITIONS[number]].next_offset:
                record = Record(PARTITIONS[number], offset, None, value, (), 0)
                self.budget.fetched(flow, 1, 100)
                self.intake.offer(Fetched(record, offset, flow, 100), now=0.0)

    def run(self) -> None:
        """Commit everything in groups of `GROUP`; raises what ends the commits before that."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.read()
        with ThreadPoolExecutor(1) as scoring, ThreadPoolExecutor(1) as committing:
            running = asyncio.create_task(self._commits(scoring, committing).run())
            drained = asyncio.create_task(self.intake.drained())
            done, _ = await asyncio.wait(
                [running, drained], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
            for task in (running, drained):
                task.cancel()
            await asyncio.gather(running, drained, return_exceptions=True)
        if running in done:
            running.result()
        assert drained in done

    async def one_by_one(self, records: Sequence[Record]) -> None:
        """Offer each record once the one before is committed."""
        leases = self.journal.lease(PARTITIONS)
        self.intake.install(leases.values(), now=0.0)
        flow = self.budget.begin_flow()
        with ThreadPoolExecutor(1) as scoring, ThreadPoolExecutor(1) as committing:
            running = asyncio.create_task(self._commits(scoring, committing).run())
            for record in records:
                self.budget.fetched(flow, 1, 100)
                self.intake.offer(Fetched(record, record.offset, flow, 100), now=0.0)
                await self.intake.drained()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _commits(self, scoring: ThreadPoolExecutor, committing: ThreadPoolExecutor) -> GroupCommit:
        return GroupCommit(
            self.intake,
            self.decider,
            self.journal.commit,
            score_executor=scoring,
            executor=committing,
            max_records=GROUP,
            max_bytes=2**30,
            cap=DeadLetterCap(DeadLetterLimits()),
            hooks=Hooks(),
            on_commit=lambda: None,
        )

    def has_each_once(self) -> bool:
        each = list(range(COUNT // len(PARTITIONS)))
        return self.journal.offsets() == {one.number: each for one in PARTITIONS}


class StoppedClock(asyncio.SelectorEventLoop):
    """An event loop for which no time passes: what waits for a timer waits for ever."""

    def time(self) -> float:
        return 0.0


@pytest.mark.parametrize("slow", ["", "score", "commit"])
def test_a_lone_event_waits_for_no_timer(slow: str) -> None:
    def pause(name: str) -> None:
        if name == slow:
            time.sleep(0.01)

    site = Site(MemoryJournal(before=pause), OneAtATime(before=lambda _: pause("score")))
    records = [Record(PARTITIONS[0], offset, None, VALUES[offset], (), 0) for offset in range(GROUP)]
    with asyncio.Runner(loop_factory=StoppedClock) as runner:
        loop = runner.get_loop()
        task = loop.create_task(site.one_by_one(records))
        # The loop's own timers are what is tested, so another clock ends a wait for one.
        late = threading.Timer(PATIENCE / 8, lambda: loop.call_soon_threadsafe(task.cancel))
        late.start()
        try:
            loop.run_until_complete(task)
        finally:
            late.cancel()
    assert site.journal.offsets()[PARTITIONS[0].number] == list(range(GROUP))
    assert site.decider.calls == [1] * GROUP


def test_each_group_is_decided_while_the_one_before_commits_and_no_further_one() -> None:
    """Both take as long as the slower one: whichever comes first to this barrier waits."""
    together = threading.Barrier(2)
    groups = COUNT // GROUP
    begun: list[Sequence[Record]] = []
    at_commits: list[int] = []

    def deciding(records: Sequence[Record]) -> None:
        begun.append(records)
        if len(begun) > 1:
            together.wait(PATIENCE)

    def committing(operation: str) -> None:
        if operation == "commit":
            if len(at_commits) + 1 < groups:
                together.wait(PATIENCE)
                time.sleep(0.02)  # a third one would have begun by now
            at_commits.append(len(begun))

    site = Site(MemoryJournal(before=committing), OneAtATime(before=deciding))
    site.run()
    assert at_commits == [*range(2, groups + 1), groups]
    assert site.has_each_once()


@pytest.mark.expected_errors("record_refused")
def test_a_record_that_cannot_be_decided_while_another_group_commits_is_refused_alone() -> None:
    failed = threading.Event()
    bad = VALUES[GROUP + 1]

    def before(records: Sequence[Record]) -> None:
        if any(record.value == bad for record in records):
            failed.set()
            raise ValueError("an encoder that chokes")

    def waiting(operation: str) -> None:
        if operation == "commit":
            assert failed.wait(PATIENCE)

    site = Site(MemoryJournal(before=waiting), OneAtATime(before=before))
    site.run()
    assert site.has_each_once()
    kinds = [kind for rows in site.journal.recorded.values() for _, kind in rows]
    assert (kinds.count("decision"), kinds.count("dead_letter")) == (COUNT - 1, 1)
    (refused,) = (row for row in site.journal.outbox.values() if ("refused", b"1") in row.message.headers)
    assert refused.message.value == bad


def test_an_end_between_deciding_and_committing_loses_nothing_and_doubles_nothing() -> None:
    """The group before is committed first, whatever became of the one ahead."""
    failed = threading.Event()

    def before(records: Sequence[Record]) -> None:
        if any(record.value == VALUES[GROUP] for record in records):
            failed.set()
            raise DatabaseFault("a table is missing")

    def waiting(operation: str) -> None:
        if operation == "commit":
            assert failed.wait(PATIENCE)

    journal = MemoryJournal(before=waiting)
    with pytest.raises(DatabaseFault):
        Site(journal, OneAtATime(before=before)).run()
    assert journal.total() == GROUP

    decided = threading.Event()

    def broken(operation: str) -> None:
        if operation == "commit":
            assert decided.wait(PATIENCE)
            raise DatabaseFault("a table is missing")

    journal.before = broken
    with pytest.raises(DatabaseFault):
        Site(journal, OneAtATime(before=lambda records: len(records) and decided.set())).run()
    assert journal.total() == GROUP

    journal.before = lambda _operation: None
    last = Site(journal, OneAtATime())
    last.run()
    assert last.has_each_once()
    assert set(journal.decided) == set(journal.actions)
    assert len(journal.decided) == COUNT


def test_what_became_outdated_is_decided_again_in_its_turn_and_by_one_call_at_a_time() -> None:
    decider = OneAtATime()
    left = 3

    def before(operation: str) -> None:
        nonlocal left
        if operation == "commit" and left:
            left -= 1
            raise Outdated("a newer policy", {"tests": "a newer policy"})

    site = Site(MemoryJournal(before=before), decider)
    site.run()
    assert decider.again == [GROUP] * 3
    assert site.has_each_once()


def test_both_groups_under_way_are_stale_when_their_partitions_are_taken() -> None:
    taken = threading.Event()

    def before(operation: str) -> None:
        if operation == "commit" and not taken.is_set():
            deadline = time.monotonic() + PATIENCE
            while len(site.decider.calls) < 2 and time.monotonic() < deadline:
                time.sleep(0.001)
            taken.set()
            asyncio.run_coroutine_threadsafe(again(), site.loop).result(PATIENCE)

    async def again() -> None:
        site.read()

    site = Site(MemoryJournal(before=before), OneAtATime())
    site.run()
    assert site.has_each_once()
    assert {epoch for epoch, _ in site.journal.progress.values()} == {2}
    assert site.budget.room() == ROOM
