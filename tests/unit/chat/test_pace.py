"""Turns by a clock of the test's own: never more a minute than granted, and no waiting that is not needed."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from streamer.labels.llm.pace import Pace


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def starts(time: Time, pace: Pace, tokens: list[int]) -> list[float]:
    async def run() -> list[float]:
        found = []
        for one in tokens:
            await pace.turn(one)
            found.append(time.now - 100.0)
        return found

    return asyncio.run(run())


def test_requests_are_evenly_spread() -> None:
    time = Time()
    pace = Pace(requests_per_minute=75, clock=time.clock, sleep=time.sleep)
    assert [round(start, 9) for start in starts(time, pace, [0] * 4)] == [0.0, 0.8, 1.6, 2.4]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30), st.integers(1, 100_000))
def test_tokens_of_all_before_have_had_their_time(tokens: list[int], granted: int) -> None:
    time = Time()
    pace = Pace(tokens_per_minute=granted, clock=time.clock, sleep=time.sleep)
    found = starts(time, pace, tokens)
    for i, start in enumerate(found):
        assert start * granted / 60.0 >= sum(tokens[:i]) - 1e-6


def test_an_estimate_is_corrected_by_what_was_used() -> None:
    time = Time()
    pace = Pace(tokens_per_minute=600, clock=time.clock, sleep=time.sleep)
    starts(time, pace, [10])
    pace.used(10, 40)
    assert starts(time, pace, [0]) == [4.0]


def test_everybody_waits_where_the_endpoint_asked_for_it() -> None:
    time = Time()
    pace = Pace(clock=time.clock, sleep=time.sleep)
    assert starts(time, pace, [5, 5]) == [0.0, 0.0]
    pace.hold(7.0)
    pace.hold(2.0)
    assert starts(time, pace, [5]) == [7.0]
