"""When a gate is due, also by clocks that are a day off and jump."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from streamer.gates.settings import GateSettings
from streamer.recalibration.gate_status import GateStatus, LastRun
from streamer.recalibration.runner import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, Schedule
from tests.made import a_policy, a_revision

NOW = datetime(2026, 11, 20, tzinfo=UTC)
DAY = 86_400.0


class Time:
    """A monotonic clock, and a time of day that a test may set as wrong as it likes."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall = NOW

    def __call__(self) -> float:
        return self.seconds

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)


def status(
    *,
    name: str = "g",
    run: int | None = 1,
    age: float = 0.0,
    new: int = 0,
    raised: int = 0,
    usable: bool = True,
    missing_key: str | None = None,
    **settings: Any,
) -> GateStatus:
    chosen = replace(GateSettings(encoder="e@1"), **settings)
    gate = a_revision(chosen, gate=name)
    policy = a_policy(chosen, gate=name, state="closed", calibrated=False)
    last = None
    if run is not None:
        last = LastRun(
            run=run, finished_at=NOW - timedelta(seconds=age), groups=9, usable=usable, candidates=()
        )
    return GateStatus(
        gate=gate, policy=policy, last=last, new_groups=new, raised_groups=raised, proposed=False,
        missing_key=missing_key,
    )  # fmt: skip


def due(schedule: Schedule, time: Time, one: GateStatus) -> bool:
    return schedule.due(one, now=time.wall) is not None


def test_by_time_and_by_new_groups():
    time = Time()
    schedule = Schedule(time)
    assert not due(schedule, time, status(age=DAY - 10))
    time.pass_(10)
    assert due(schedule, time, status(age=DAY - 10))
    for new, raised, expected in ((99, 0, False), (100, 0, True), (60, 39, False), (60, 40, True)):
        assert due(Schedule(time), time, status(new=new, raised=raised)) == expected


def test_what_is_switched_off_brings_nothing_about():
    time = Time()
    assert not due(Schedule(time), time, status(age=5 * DAY, recalibrate_every_seconds=None))
    assert not due(Schedule(time), time, status(new=10_000, recalibrate_after_groups=None))
    assert not due(Schedule(time), time, status(age=5 * DAY, new=10_000, recalibrate="manual"))


def test_a_gate_that_was_never_run_waits_for_as_many_groups_as_could_open_it():
    time = Time()
    for alpha, attempts, least in ((0.05, 1, 19), (0.1, 1, 9), (0.1, 3, 29), (0.9, 1, 1)):
        for new in (least - 1, least):
            asked = status(run=None, new=new, alpha=alpha, max_attempts=attempts)
            assert bool(due(Schedule(time), time, asked)) == (new == least)
    assert due(Schedule(time), time, status(usable=False, new=19)), "nor was it for its present settings"
    assert not due(Schedule(time), time, status(usable=False, age=9 * DAY))


def test_a_clock_that_jumps_ahead_does_not_double_a_run():
    time = Time()
    schedule = Schedule(time)
    assert not due(schedule, time, status(age=60))
    time.wall += timedelta(days=1)
    assert not due(schedule, time, status(age=60))
    # It runs when the time has really passed, dates the run a day ahead, and then waits again.
    time.pass_(DAY)
    assert due(schedule, time, status(age=60))
    schedule.done("g", 0.1)
    time.pass_(5)
    assert not due(schedule, time, status(run=2, age=-2 * DAY))


def test_a_clock_that_falls_behind_puts_nothing_off():
    time = Time()
    schedule = Schedule(time)
    assert not due(schedule, time, status(age=60))
    time.wall -= timedelta(days=1)
    time.pass_(DAY - 61)
    assert not due(schedule, time, status(age=60))
    time.pass_(1)
    assert due(schedule, time, status(age=60))


def test_a_process_whose_clock_is_behind_waits_one_period_and_no_more():
    time = Time()
    time.wall = NOW - timedelta(days=1)
    schedule = Schedule(time)
    assert not due(schedule, time, status(age=0.0))
    time.pass_(DAY)
    assert due(schedule, time, status(age=0.0))


def test_a_run_by_hand_puts_the_next_one_off():
    time = Time()
    schedule = Schedule(time)
    assert not due(schedule, time, status(age=DAY - 5))
    time.pass_(6)
    assert not due(schedule, time, status(run=2, age=-6))


def test_after_a_failure_each_try_waits_twice_as_long():
    time = Time()
    schedule = Schedule(time)
    ready = status(new=500)
    waits = []
    for _ in range(10):
        assert due(schedule, time, ready)
        schedule.failed("g")
        waited = 0.0
        while not due(schedule, time, ready):
            time.pass_(1)
            waited += 1
        waits.append(waited)
    assert waits[:3] == [FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS]
    assert waits[-1] == LAST_RETRY_SECONDS
    schedule.done("g", 0.0)
    assert due(schedule, time, ready)


def test_long_runs_leave_room_for_everything_else():
    time = Time()
    schedule = Schedule(time)
    assert due(schedule, time, status(new=500))
    schedule.done("g", 3.0)
    assert not due(schedule, time, status(run=2, new=500))
    time.pass_(30)
    assert due(schedule, time, status(run=2, new=500))


def opened(one: GateStatus, labels: int) -> GateStatus:
    policy = replace(one.policy, state="cut", threshold=0.5, calibrated=True)
    return replace(one, policy=policy, labels=labels)


def test_between_runs_every_ten_labels_the_newest_groups_are_looked_at():
    time = Time()
    schedule = Schedule(time)

    def look(labels: int, **settings: Any) -> bool:
        one = opened(status(**settings), labels)
        assert schedule.due(one, now=time.wall) is None
        return schedule.look_due(one) is not None

    assert not look(500), "what came before this process began was looked at, or a run will"
    assert not look(509)
    assert look(510)
    schedule.looked(opened(status(), 510))
    schedule.done("g", 2.0)
    assert not look(525), "it rests"
    time.pass_(21)
    assert look(525)
    assert not look(525, recalibrate="manual")
    assert schedule.look_due(replace(status(), labels=600)) is None, "it ships nothing"


def test_when_a_looser_threshold_has_waited_it_is_tested_again():
    time = Time()
    schedule = Schedule(time)
    one = replace(status(), held_until=NOW + timedelta(hours=6))
    assert schedule.due(one, now=NOW + timedelta(hours=5)) is None
    found = schedule.due(one, now=NOW + timedelta(hours=6))
    assert found == "a looser threshold has waited for one label lag"
