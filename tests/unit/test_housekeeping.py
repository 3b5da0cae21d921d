"""The worker's chores beside deciding: they go on whatever one round of them meets."""

import threading
from collections.abc import Mapping

import pytest

from streamer.errors import Unavailable
from streamer.journal import Partition
from streamer.stream.housekeeping import Housekeeping

HEIGHTS = {Partition("log", "t", 0): 3}


class Database:
    """Answers what it is asked, or raises what it was told to, once each."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)

    def outbox_pending(self) -> int:
        if self.troubles:
            raise self.troubles.pop(0)
        return 7

    def log_sizes(self) -> Mapping[Partition, int]:
        return HEIGHTS


def run_until_shown(database: Database) -> tuple[list[object], int]:
    shown: list[object] = []
    refreshed = [0]
    done = threading.Event()

    def refresh() -> None:
        refreshed[0] += 1

    def show(pending: int, heights: Mapping[Partition, int]) -> None:
        shown.append((pending, heights))
        if len(shown) == 4:
            done.set()

    with Housekeeping(
        refresh_policies=refresh, reports=database, show=show, every_seconds=0.001, policies_every=2
    ):
        assert done.wait(240)
    return shown, refreshed[0]


def test_what_sql_knows_is_shown_each_round_and_policies_are_read_every_few() -> None:
    shown, refreshed = run_until_shown(Database())
    assert shown[0] == (7, HEIGHTS)
    assert len(shown) // 2 <= refreshed <= len(shown) // 2 + 1


def test_a_database_that_is_away_costs_rounds_and_no_word() -> None:
    shown, _ = run_until_shown(Database(Unavailable("away"), Unavailable("away")))
    assert shown[0] == (7, HEIGHTS)


@pytest.mark.expected_errors("stream.housekeeping_failed")
def test_an_error_is_logged_and_the_next_round_comes() -> None:
    shown, _ = run_until_shown(Database(ValueError("a bug")))
    assert shown[0] == (7, HEIGHTS)


@pytest.mark.expected_errors("stream.housekeeping_failed")
def test_a_chore_comes_at_once_and_with_every_round_whatever_becomes_of_the_others() -> None:
    """The keys of the endpoint are trusted for seconds alone."""
    rounds: list[int] = []
    done = threading.Event()

    def chore() -> None:
        rounds.append(1)
        if len(rounds) == 3:
            done.set()

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    troubled = Database(Unavailable("no"))
    with Housekeeping(refresh_policies=fail, reports=troubled, show=fail, chore=chore, every_seconds=3600):
        pass
    assert rounds == [1], "the first round needs no wait"
    rounds.clear()
    with Housekeeping(
        refresh_policies=fail, reports=troubled, show=fail, chore=chore, every_seconds=0.001, policies_every=1
    ):
        assert done.wait(240)
