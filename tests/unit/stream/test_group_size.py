"""Groups grow while they are quick and shrink when they are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamer.stream.group_size import GroupSize


def settle(cost: float, *, most: int = 1000, waiting: int = 10_000) -> tuple[GroupSize, list[float]]:
    """Run groups whose records cost `cost` seconds each until the bound has settled; the last groups' seconds."""
    size = GroupSize(most)
    took = []
    for _ in range(40):
        records = min(size.bound, waiting)
        took.append(records * cost)
        size.observe(records, records * cost)
    return size, took[-10:]


def test_cheap_records_reach_the_largest_group() -> None:
    size, _ = settle(0.0001)
    assert size.bound == 1000


def test_dear_records_keep_a_group_near_the_target() -> None:
    _, took = settle(0.05)
    assert max(took) <= 2.0
    assert min(took) >= 0.25


def test_a_record_that_alone_takes_too_long_is_a_group_of_its_own() -> None:
    size, _ = settle(30.0)
    assert size.bound == 1


def test_small_groups_do_not_raise_the_bound() -> None:
    size = GroupSize(1000)
    before = size.bound
    for _ in range(20):
        size.observe(2, 0.001)
    assert size.bound == before


@given(st.integers(1, 500), st.lists(st.tuples(st.integers(1, 500), st.floats(0, 100)), max_size=50))
def test_the_bound_stays_in_range(most: int, groups: list[tuple[int, float]]) -> None:
    size = GroupSize(most)
    for records, seconds in groups:
        size.observe(records, seconds)
        assert 1 <= size.bound <= most
