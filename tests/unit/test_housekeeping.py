"""The chores beside deciding: they go on whatever one round of them meets."""

import threading

import pytest

from streamer.errors import Unavailable
from streamer.stream.housekeeping import Housekeeping


def rounds_in_spite_of(*troubles: Exception) -> tuple[int, int]:
    """How often a chore, which raises these at first, and what is seldom done went well until the chore had four times."""
    due, did, seldom, done = list(troubles), [0], [0], threading.Event()

    def chore() -> None:
        if due:
            raise due.pop(0)
        did[0] += 1
        if did[0] == 4:
            done.set()

    def rarely() -> None:
        seldom[0] += 1

    with Housekeeping(chore, seldom=rarely, every_seconds=0.001, seldom_every=2):
        assert done.wait(240)
    return did[0], seldom[0]


def test_a_chore_comes_with_each_round_and_what_is_seldom_with_every_few() -> None:
    did, seldom = rounds_in_spite_of()
    assert did // 2 <= seldom <= did // 2 + 1


def test_a_database_that_is_away_costs_rounds_and_no_word() -> None:
    rounds_in_spite_of(Unavailable("away"), Unavailable("away"))


@pytest.mark.expected_errors("stream.housekeeping_failed")
def test_an_error_is_logged_and_the_next_round_comes() -> None:
    rounds_in_spite_of(ValueError("a bug"))


@pytest.mark.expected_errors("stream.housekeeping_failed")
def test_a_chore_comes_at_once_and_with_every_round_whatever_becomes_of_the_others() -> None:
    """The keys of the endpoint are trusted for seconds alone."""
    rounds: list[int] = []
    done = threading.Event()

    def chore() -> None:
        rounds.append(1)
        if len(rounds) == 3:
            done.set()

    def fail() -> None:
        raise ValueError("a bug")

    with Housekeeping(fail, chore, seldom=fail, every_seconds=3600):
        pass
    assert rounds == [1], "the first round needs no wait"
    rounds.clear()
    with Housekeeping(fail, chore, seldom=fail, every_seconds=0.001, seldom_every=1):
        assert done.wait(240)
