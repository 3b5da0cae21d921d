"""How far may be read, and how old a decision is: no row below the horizon can appear any more."""

import random
from datetime import UTC, datetime, timedelta

from streamer.risk.rounds.horizon import MOST_MARKS, Probe, Watermark, marked, pruned, settled_number, time_of

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Writers:
    """Transactions that take an id, then numbers, and end in any order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.next_id = 100
        self.next_number = 1
        self.running: dict[int, list[int]] = {}
        self.visible: list[int] = []

    def act(self) -> None:
        what = self.rng.random()
        if what < 0.4 and len(self.running) < 4:
            self.running[self.next_id] = []
            self.next_id += 1
        elif self.running:
            one = self.rng.choice(list(self.running))
            if what < 0.7:
                self.running[one].append(self.next_number)
                self.next_number += 1
            else:
                numbers = self.running.pop(one)
                if what < 0.95:  # else it is rolled back, and its numbers are never there
                    self.visible += numbers

    def probe(self) -> Probe:
        return Probe(max(self.visible, default=0), 0, self.next_id, min(self.running, default=self.next_id))


def test_nothing_appears_below_the_horizon() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        writers, marks, horizon = Writers(rng), (), 0
        below: set[int] = set()
        reached = 0
        for step in range(300):
            writers.act()
            if rng.random() < 0.2:
                probe = writers.probe()
                marks = marked(marks, probe, START + step * MINUTE)
                settled = settled_number(marks, probe)
                if settled is not None and settled.decisions > horizon:
                    horizon = settled.decisions
                    reached += 1
                    below = {number for number in writers.visible if number <= horizon}
                marks = pruned(marks, horizon)
                assert len(marks) <= MOST_MARKS
            assert {number for number in writers.visible if number <= horizon} == below
        assert reached, "and it does move"


def test_an_idle_record_keeps_two_marks_and_settles_at_once() -> None:
    marks: tuple[Watermark, ...] = ()
    for minute in range(50):
        marks = marked(marks, Probe(7, 3, 0, 0), START + minute * MINUTE)
    assert [mark.at for mark in marks] == [START, START + 49 * MINUTE]
    assert settled_number(marks, Probe(7, 3, 0, 0)) == marks[-1]
    assert [mark.at for mark in pruned(marks, 7)] == [START + 49 * MINUTE]


def test_a_transaction_without_end_keeps_few_marks_and_the_oldest_of_them() -> None:
    marks: tuple[Watermark, ...] = ()
    for minute in range(50):
        marks = marked(marks, Probe(minute + 1, 0, 200 + minute, 150), START + minute * MINUTE)
    assert len(marks) <= 10
    assert settled_number(marks, Probe(60, 0, 300, 150)) is None
    assert settled_number(marks, Probe(60, 0, 300, 200)) == marks[0]


def test_a_decision_is_no_older_and_no_younger_than_the_marks_around_it() -> None:
    marks = tuple(Watermark(10 * n, 0, 0, START + n * MINUTE) for n in range(1, 4))
    day = timedelta(days=1)
    assert time_of(5, START - day, marks) == START - day, "before the first mark its own time stands"
    assert time_of(5, START + day, marks) == START + MINUTE
    assert time_of(15, START - day, marks) == START + MINUTE
    assert time_of(15, START + 1.5 * MINUTE, marks) == START + 1.5 * MINUTE
    assert time_of(20, START + day, marks) == START + 2 * MINUTE
    assert time_of(31, START + day, marks) == START + day


def test_a_clock_set_back_and_a_restored_database_take_the_marks_with_them() -> None:
    marks = (Watermark(10, 0, 10**9, START + timedelta(days=30)),)
    after = marked(marks, Probe(12, 0, 50, 50), START)
    assert after == (Watermark(10, 0, 50, START), Watermark(12, 0, 50, START))
    assert settled_number(after, Probe(12, 0, 50, 50)) == after[-1]
