"""A record that nothing can be done with is found by halving, and refused alone; each partition moves on in order."""

import asyncio
import random
from collections.abc import Callable, Collection, Sequence

import pytest

from streamer.errors import BadData, DatabaseFault, Fenced, Unavailable
from streamer.journal import Lease, Partition, Record
from streamer.stream.intake import Run
from streamer.stream.isolation import ContentError, blaming_content, commit_isolating, halves

pytestmark = pytest.mark.expected_errors("record_refused")


def a_run(number: int, offsets: Sequence[int], *, expected: int = 0) -> Run:
    partition = Partition("log", "in", number)
    records = tuple(Record(partition, offset, None, b"v%d" % offset, (), 0) for offset in offsets)
    return Run(Lease(partition, 1, expected), expected, records, 100)


class Books:
    """What was committed and refused; a commit fails as a whole when `poison` has one of its records."""

    def __init__(self, poison: set[tuple[int, int]], *, unkept: Collection[tuple[int, int]] = ()) -> None:
        self.poison = poison
        self.unkept = unkept
        self.progress: dict[int, int] = {}
        self.decided: list[tuple[int, int]] = []
        self.refused: dict[tuple[int, int], tuple[str, bool]] = {}
        self.commits = 0

    async def commit(self, runs: list[Run]) -> None:
        self.commits += 1
        places = [place for run in runs for place in self.places(run)]
        if self.poison & set(places):
            raise ContentError("OverflowError")
        for run in runs:
            self.move(run)
        self.decided += places

    async def refuse(self, run: Run, detail: str, *, withheld: bool) -> None:
        (place,) = self.places(run)
        if place in self.unkept and not withheld:
            raise ContentError("DataError")
        self.move(run)
        self.refused[place] = (detail, withheld)

    def move(self, run: Run) -> None:
        number = run.lease.partition.number
        assert self.progress.get(number, 0) == run.expected_offset
        self.progress[number] = run.next_offset

    @staticmethod
    def places(run: Run) -> list[tuple[int, int]]:
        return [(run.lease.partition.number, record.offset) for record in run.records]


@pytest.mark.parametrize("seed", range(40))
def test_every_record_has_one_outcome_in_order(seed: int) -> None:
    rng = random.Random(seed)
    runs = []
    for number in range(rng.randint(1, 4)):
        offsets = sorted(rng.sample(range(60), rng.randint(1, 30)))  # with holes, as logs have them
        runs.append(a_run(number, offsets))
    everything = [place for run in runs for place in Books.places(run)]
    poison = {place for place in everything if rng.random() < rng.choice((0.0, 0.05, 1.0))}
    books = Books(poison, unkept={place for place in poison if rng.random() < 0.3})
    asyncio.run(commit_isolating(runs, books.commit, books.refuse))
    assert set(books.refused) == poison
    assert sorted([*books.decided, *poison]) == sorted(everything)
    assert books.progress == {run.lease.partition.number: run.next_offset for run in runs}
    for place, (detail, withheld) in books.refused.items():
        assert withheld == (place in books.unkept)
        assert ("sha256" in detail) == withheld


def test_one_record_of_a_thousand_costs_few_commits() -> None:
    books = Books({(0, 617)})
    asyncio.run(commit_isolating([a_run(0, range(1000))], books.commit, books.refuse))
    assert set(books.refused) == {(0, 617)}
    assert books.commits < 30


def test_halves_keep_the_order_and_cut_at_an_offset() -> None:
    first, second = halves([a_run(0, [0, 3]), a_run(1, [5, 7, 9], expected=4), a_run(2, [1])])
    assert [Books.places(run) for run in first] == [[(0, 0), (0, 3)], [(1, 5)]]
    assert [Books.places(run) for run in second] == [[(1, 7), (1, 9)], [(2, 1)]]
    assert (first[1].expected_offset, first[1].next_offset) == (4, 6)
    assert second[0].expected_offset == 6


def test_what_fails_once_is_no_fault_of_the_record() -> None:
    books = Books(set())
    failures = [ContentError("MemoryError")]

    async def commit(runs: list[Run]) -> None:
        if failures:
            raise failures.pop()
        await books.commit(runs)

    asyncio.run(commit_isolating([a_run(0, [0])], commit, books.refuse))
    assert (books.decided, books.refused) == ([(0, 0)], {})


def test_a_record_that_cannot_even_be_refused_without_its_bytes_ends_the_worker() -> None:
    async def refuse(run: Run, detail: str, *, withheld: bool) -> None:
        raise ContentError("the table is read-only")

    with pytest.raises(ContentError, match="read-only"):
        asyncio.run(commit_isolating([a_run(0, [0])], Books({(0, 0)}).commit, refuse))


def raising(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return blaming_content(call)


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (OverflowError("somebody's text"), "OverflowError"),
        (UnicodeEncodeError("utf-8", "somebody's text", 0, 1, "no"), "UnicodeEncodeError"),
        (MemoryError(), "MemoryError"),
        (RecursionError("somebody's text"), "RecursionError"),
        (KeyError("somebody's text"), "KeyError"),
        (BadData("the database refuses a value: DataError"), "the database refuses a value: DataError"),
    ],
)
def test_errors_of_content_are_named_and_not_quoted(error: Exception, detail: str) -> None:
    with pytest.raises(ContentError) as caught:
        raising(error)()
    assert caught.value.detail.startswith(detail)
    assert "somebody" not in str(caught.value)
    assert "streamer/stream/isolation.py" in caught.value.detail or isinstance(error, BadData)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("away"), DatabaseFault("no table"), Fenced("lost"), OSError("no file"), ImportError("no module"),
        KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_errors_that_any_record_could_raise_stay_what_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        raising(error)()
    assert caught.value is error
