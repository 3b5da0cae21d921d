"""Groups are as large as throughput wants and time allows, whatever a commit and a record cost."""

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.stream.group_size import GroupSize, seconds_for_records
from streamer.stream.intake import LEAST_SHARE

MOST = 1000
FIXED = (0.0, 0.3, 1.1, 3.0)
MARGINAL = (0.0001, 0.001, 0.01, 0.1, 1.0)
GROUPS_TO_SETTLE = 70
"""More than a group is remembered for: whatever was learned before is forgotten by then."""


@dataclass
class Database:
    """What groups cost: a part for the commit and a part for each record, each with noise of its own."""

    fixed: float
    marginal: float
    random: random.Random
    noise: float = 0.2
    locked: float = 0.0

    def seconds(self, records: int) -> float:
        fixed = self.fixed * math.exp(self.random.gauss(0, self.noise))
        marginal = self.marginal * records * math.exp(self.random.gauss(0, self.noise))
        waited = 10.0 if self.random.random() < self.locked else 0.0
        return fixed + marginal + waited

    def best(self) -> tuple[int, float]:
        """The best fixed size under the same bound on a group's time, and its records a second without noise."""
        records = max(1, min(MOST, int(seconds_for_records(self.fixed) / self.marginal)))
        return records, self.pace(records)

    def pace(self, records: int) -> float:
        return records / (self.fixed + self.marginal * records)

    def run(self, size: GroupSize, groups: int, *, waiting: int = MOST) -> float:
        """Run groups, and return the records a second that the sizes chosen reach without noise."""
        records = [0] * groups
        for at in range(groups):
            records[at] = min(size.bound, waiting)
            size.observe(records[at], self.seconds(records[at]))
        return sum(records) / sum(one / self.pace(one) for one in records)


@pytest.mark.parametrize("marginal", MARGINAL)
@pytest.mark.parametrize("fixed", FIXED)
def test_reaches_four_fifths_of_the_best_fixed_size(fixed: float, marginal: float) -> None:
    for seed in range(3):
        database = Database(fixed, marginal, random.Random(seed))
        size = GroupSize(MOST)
        database.run(size, 12)
        assert database.run(size, 60) >= 0.8 * database.best()[1], seed


@pytest.mark.parametrize("after", [(0.0, 0.0001), (0.0, 1.0), (3.0, 0.0001), (1.1, 0.01), (0.3, 0.1)])
@pytest.mark.parametrize("before", [(0.0, 0.0001), (0.0, 1.0), (3.0, 0.0001), (1.1, 0.01), (0.3, 0.1)])
def test_comes_back_from_every_state(before: tuple[float, float], after: tuple[float, float]) -> None:
    for seed, trickle in ((1, 0), (2, 100)):
        size = GroupSize(MOST)
        Database(*before, random.Random(seed)).run(size, 60)
        database = Database(*after, random.Random(seed))
        if trickle:
            database.run(size, trickle, waiting=1)
        database.run(size, GROUPS_TO_SETTLE)
        assert database.run(size, 40) >= 0.8 * database.best()[1]


def test_a_higher_fixed_cost_never_makes_smaller_groups() -> None:
    costs = [0.01 * step for step in range(4000)]
    allowed = [seconds_for_records(fixed) for fixed in costs]
    assert allowed == sorted(allowed)
    assert all(records >= fixed for fixed, records in zip(costs, allowed, strict=True))


def test_waiting_for_a_lock_now_and_then_changes_little() -> None:
    database = Database(0.01, 0.001, random.Random(5), locked=0.03)
    size = GroupSize(MOST)
    database.run(size, 20)
    assert database.run(size, 300) >= 0.8 * database.best()[1]


def test_a_group_that_was_slow_but_short_leaves_room_for_a_second_of_records() -> None:
    size, noise = GroupSize(MOST), random.Random(5)
    for _ in range(40):
        size.observe(min(size.bound, 200), 0.01)
    for _ in range(400):
        before, records = size.bound, min(size.bound, noise.randint(1, 12))
        seconds = 0.005 * math.exp(noise.gauss(0.5, 0.8))
        size.observe(records, seconds)
        assert size.bound >= min(before, int(records / seconds))


def test_a_slow_trickle_does_not_hold_back_what_comes_after_it() -> None:
    database = Database(1.1, 0.0005, random.Random(3))
    size = GroupSize(MOST)
    database.run(size, 20)
    database.run(size, 500, waiting=1)
    assert database.run(size, 20) >= 0.8 * database.best()[1]


@pytest.mark.parametrize("marginal", MARGINAL)
def test_a_group_of_quick_commits_lasts_about_a_second(marginal: float) -> None:
    database = Database(0.002, marginal, random.Random(1), noise=0.0)
    size = GroupSize(MOST)
    database.run(size, 20)
    for _ in range(40):
        seconds = database.seconds(size.bound)
        assert seconds <= 2.1
        size.observe(size.bound, seconds)


def test_a_record_that_alone_takes_too_long_is_a_group_of_its_own() -> None:
    database = Database(0.0, 30.0, random.Random(1))
    size = GroupSize(MOST)
    database.run(size, 40)
    bounds = []
    for _ in range(32):
        bounds.append(size.bound)
        size.observe(size.bound, database.seconds(size.bound))
    assert bounds.count(1) >= 24
    assert max(bounds) == 2


@given(st.integers(1, 500), st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1e6)), max_size=80))
def test_the_bound_stays_in_range(most: int, groups: list[tuple[int, float]]) -> None:
    size = GroupSize(most)
    for records, seconds in groups:
        size.observe(records, seconds)
        assert 1 <= size.bound <= most


@pytest.mark.parametrize("first", [1, 16])
@pytest.mark.parametrize("record", [0.0001, 0.01, 1.0])
@pytest.mark.parametrize("partition", [0.0, 0.3, 1.1, 3.0])
@pytest.mark.parametrize("partitions", [1, 4, 12])
def test_what_each_partition_costs_makes_no_small_groups(
    partitions: int, partition: float, record: float, first: int
) -> None:
    """A commit has statements of its own for each partition; small groups are taken from few of them."""

    def cost(records: int) -> tuple[int, float]:
        taken_from = min(partitions, max(1, records // LEAST_SHARE))
        return taken_from, 0.05 + partition * taken_from + record * records

    size, rng = GroupSize(1000), random.Random(first)
    done, took = 0, 0.0
    for turn in range(200):
        records = size.bound if turn else first
        of, seconds = cost(records)
        seconds *= rng.uniform(0.9, 1.1)
        size.observe(records, seconds, of)
        if turn >= 60:
            done, took = done + records, took + seconds
    best = max(n / cost(n)[1] for n in range(1, 1001) if n == 1 or cost(n)[1] <= 15)
    assert done / took >= 0.75 * best
