"""Killed at any point, rows that commit late, clocks that are a day off: each decision is read once, in one order."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamer.recalibration.one_gate import recalibrate_by_hand
from streamer.store import open_store
from streamer.store.calibration import calibration_runs
from tests.integration.store.conftest import World, dead_letter_message, policy_message
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Shown, Traffic
from tests.integration.watching.test_reading import audited, fresh_alarm, fresh_sequence, some_severities
from tests.unit.monitoring.streams import draws_of


@pytest.mark.slow
def test_killed_in_and_between_rounds_nothing_is_lost_or_counted_twice(
    new_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(21)
    traffic = new_traffic()
    traffic.decide(60, rng=rng)
    severities = some_severities(traffic, rng)
    traffic.label(traffic.made, severities)
    now = START + DAY / 2
    for point in ("in_transaction=kill@2", "after_transaction=kill@1"):
        command = [sys.executable, "-m", "tests.integration.watching.watch_process"]
        ended = subprocess.run(
            [*command, traffic.world.url, now.isoformat(), "10"],
            env=os.environ | {"STREAMER_FAILPOINTS": point},
            capture_output=True,
            timeout=240,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    # One round was committed by each: the second process died right after it.
    watch = traffic.store.monitoring.watch(GATE)
    assert (watch.step, watch.read) == (2, 20)
    traffic.watcher().watch(GATE, now=now)
    watch = traffic.store.monitoring.watch(GATE)
    assert watch.sequence is not None
    expected = audited(traffic.made, severities)
    assert watch.sequence.state == fresh_sequence(traffic).observe(expected)
    alarm = watch.alarm("risk")
    assert alarm is not None
    fresh = fresh_alarm(traffic)
    assert alarm.state.evidence == fresh.observe(draws_of(expected, fresh.theta)).evidence


def test_told_to_stop_it_begins_no_page_more_and_the_next_one_goes_on(
    light_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(23)
    traffic = light_traffic()
    traffic.decide(30, rng=rng)
    severities = some_severities(traffic, rng)
    traffic.label(traffic.made, severities)
    gate, now = traffic.store.gates.get(GATE), START + DAY / 2
    told = iter([False, True])  # asked before the gate, and before its second page
    traffic.watcher(page=10, stopping=lambda: next(told)).round([gate], now=now)
    assert traffic.store.monitoring.watch(GATE).read == 10
    traffic.watcher(page=10, stopping=lambda: True).round([gate], now=now)
    assert traffic.store.monitoring.watch(GATE).read == 10, "no gate is begun any more"
    traffic.watcher(page=10).round([gate], now=now)
    watch = traffic.store.monitoring.watch(GATE)
    assert watch.read == 30
    assert watch.sequence.state == fresh_sequence(traffic).observe(audited(traffic.made, severities))


@pytest.mark.postgres
def test_a_row_that_commits_late_is_neither_skipped_nor_read_out_of_order(migrated_postgres_url: str) -> None:
    world = World(migrated_postgres_url)
    traffic = Traffic(world, audit_probability=1.0)
    traffic.open_gate()
    rng = np.random.default_rng(22)
    severities: dict[str, float] = {}

    written, go_on = threading.Event(), threading.Event()

    def wait(point: str) -> None:
        if point == "in_transaction" and threading.current_thread() is late:
            written.set()
            assert go_on.wait(240)

    slow = open_store(
        migrated_postgres_url, clock=world.clock, policy_message=policy_message,
        dead_letter_message=dead_letter_message, failpoint=wait,
    )  # fmt: skip
    watcher = traffic.watcher()
    first = world.decision(0, "early", number=1, actions=("abstain", "ship"), sampling_probability=1.0,
                           policy=traffic.policy)  # fmt: skip
    lease = world.lease(1)
    late = threading.Thread(
        target=lambda: slow.commit([world.slice(lease, first, expected=0)], now=START), daemon=True
    )
    try:
        late.start()
        assert written.wait(240)
        # Its number is taken and it is not there yet, while ten with larger numbers are.
        made = traffic.decide(10, rng=rng)
        severities = {one.key.batch_id: 0.0 for one in made} | {"early": 1.0}
        traffic.label([first, *made], severities)
        for _ in range(3):
            report = watcher.watch(GATE, now=START + MINUTE)
            assert report.exposure is None
        assert (
            traffic.store.monitoring.watch(GATE).read
            < traffic.store.monitoring.standing(GATE).probe.decisions
        )  # type: ignore[union-attr]
    finally:
        go_on.set()
        late.join(240)
    watcher.watch(GATE, now=START + MINUTE)
    report = watcher.watch(GATE, now=START + MINUTE)
    assert report.exposure is not None
    numbers = [one.batch_id for one in traffic.store.monitoring.decided(GATE, after=0, until=99, limit=99)]
    assert numbers[0] == "early"
    expected = fresh_sequence(traffic).observe(audited([first, *made], severities))
    assert report.exposure == expected.exposure()
    slow.close()
    world.close()


@pytest.mark.postgres
def test_a_run_that_is_being_written_holds_up_no_reading(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(migrated_postgres_url)
    traffic = Traffic(world)
    traffic.open_gate()
    rng = np.random.default_rng(25)
    traffic.label(traffic.decide(20, rng=rng), lambda _: 0.0)
    written, go_on = threading.Event(), threading.Event()

    write = calibration_runs.write_run

    def takes_long(*arguments: Any, **options: Any) -> int:
        number = write(*arguments, **options)
        written.set()
        assert go_on.wait(240)
        return number

    monkeypatch.setattr(calibration_runs, "write_run", takes_long)
    store = traffic.store
    run = threading.Thread(
        target=recalibrate_by_hand,
        args=(store.calibration, store.policies, store.gates.get(GATE)),
        kwargs={"clock": lambda: START + DAY, "by": "ana", "reason": "", "propose": True},
    )
    run.start()
    try:
        assert written.wait(240)
        traffic.label(traffic.decide(10, rng=rng), lambda _: 0.0)
        report = traffic.watcher().watch(GATE, now=START + DAY)
    finally:
        go_on.set()
        run.join(240)
    assert report.exposure.decisions == 30
    world.close()


def test_a_worker_whose_clock_is_a_day_off_neither_loses_labels_nor_holds_up_the_rest(
    light_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(23)
    traffic = light_traffic(audit_probability=1.0)
    watcher = traffic.watcher()
    watcher.watch(GATE, now=START)
    behind = traffic.decide(5, rng=rng, start=START - 2 * DAY)
    ahead = traffic.decide(5, rng=rng, start=START + 2 * DAY)
    watcher.watch(GATE, now=START + MINUTE)
    report = watcher.watch(GATE, now=START + 2 * MINUTE)
    assert report.exposure is None, "the first of those behind is not overdue: it is a minute old"
    traffic.label(behind, lambda _: 0.0)
    report = watcher.watch(GATE, now=START + DAY)
    assert (report.exposure.decisions, report.exposure.overdue) == (5, 0)
    report = watcher.watch(GATE, now=START + DAY + MINUTE)
    assert (report.exposure.decisions, report.exposure.overdue) == (10, len(ahead)), "a day later they are"


def test_a_gate_that_was_quiet_for_long_takes_no_wrong_clock_at_its_word(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic(audit_probability=1.0)
    shown = Shown()
    watcher = traffic.watcher(shown)
    gates = traffic.store.gates.list()
    for hours in range(20):
        watcher.round(gates, now=START + hours * 60 * MINUTE)
    # Made after twenty quiet hours, of which nothing was written, by a worker that is two days behind.
    traffic.decide(5, rng=np.random.default_rng(26), start=START - 2 * DAY)
    for hours, overdue in ((20, None), (42, None), (45, 5)):
        watcher.round(gates, now=START + hours * 60 * MINUTE)
        exposure = shown.reports[GATE].exposure
        assert (None if exposure is None else exposure.overdue) == overdue


def test_our_own_clock_set_back_holds_nothing_up(light_traffic: Callable[..., Traffic]) -> None:
    traffic = light_traffic(audit_probability=1.0)
    shown = Shown()
    watcher = traffic.watcher(shown)
    gates = traffic.store.gates.list()
    watcher.round(gates, now=START + 30 * DAY)
    traffic.decide(5, rng=np.random.default_rng(24))
    for now in (START + 30 * DAY, START + MINUTE, START + MINUTE + DAY):
        watcher.round(gates, now=now)
    assert shown.reports[GATE].exposure.overdue == 5
