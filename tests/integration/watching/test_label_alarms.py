"""The alarms on labels through the record: before every label has come, and over closed phases."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from streamer.recalibration.run import calibrate_gate
from streamer.risk.rounds.state import LabelAlarmKind, WatchedAlarm
from streamer.risk.states import RiskAlarm, SelectiveAlarm
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Shown, Traffic
from tests.integration.watching.test_reading import audited, fresh_alarm
from tests.unit.monitoring.streams import draws_of

HOUR = timedelta(hours=1)


def alarm_of(traffic: Traffic, kind: LabelAlarmKind = "risk") -> WatchedAlarm:
    alarm = traffic.store.monitoring.watch(GATE).alarm(kind)
    assert alarm is not None
    return alarm


def test_it_is_raised_while_an_early_label_is_still_to_come(new_traffic: Callable[..., Traffic]) -> None:
    traffic = new_traffic(audit_probability=1.0)
    watcher = traffic.watcher()
    made = traffic.decide(40, rng=np.random.default_rng(1))
    watcher.watch(GATE, now=START + HOUR)
    waits = alarm_of(traffic)
    assert (waits.state.bets.seen, len(_pending(waits)), waits.raised_by) == (40, 40, None)
    # All but the first and the last ten, of which nobody knows anything yet.
    traffic.label(made[1:30], lambda _: 1.0, at=START + HOUR)
    report = watcher.watch(GATE, now=START + HOUR)
    raised = alarm_of(traffic)
    assert raised.raised_by is not None
    assert raised.raised_by < 30
    assert traffic.store.policies.newest(GATE).state == "closed"
    assert report.exposure is None, "the interval waits"


def test_no_loss_is_lowered_and_labels_that_come_later_end_in_the_same_bits(
    new_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(2)
    traffic = new_traffic(on_alarm="report", audit_probability=1.0, shape="indicator")
    watcher = traffic.watcher(page=7)
    made = traffic.decide(30, rng=rng, shipped=0.8)
    severities = {one.key.batch_id: float(rng.random() < 0.1) for one in made}
    for piece in (made[20:], made[:10:2], made[1:20:2]):
        watcher.watch(GATE, now=START + HOUR)
        traffic.label(piece, severities, at=START + HOUR)
        watcher.watch(GATE, now=START + HOUR)
        # Taken back at once: too late.
        traffic.label(piece, lambda _: 0.0, at=START + HOUR + MINUTE)
    watcher.watch(GATE, now=START + 2 * DAY)
    rest = made[10:20:2]
    labelled = {one.key.batch_id for one in made} - {one.key.batch_id for one in rest}
    fresh = fresh_alarm(traffic)
    expected = fresh.observe(draws_of(audited(made, severities, labelled), fresh.theta))
    assert alarm_of(traffic).state.evidence == expected.evidence
    report = watcher.watch(GATE, now=START + 2 * DAY)
    found = report.alarm("risk")
    assert (found.read, found.pending, found.pending_since) == (30, 0, None)


def test_labels_that_are_corrected_upwards_reach_the_alarm(new_traffic: Callable[..., Traffic]) -> None:
    traffic = new_traffic(audit_probability=1.0)
    watcher = traffic.watcher()
    made = traffic.decide(60, rng=np.random.default_rng(5))
    traffic.label(made, lambda _: 0.0, at=START + HOUR)
    watcher.watch(GATE, now=START + HOUR)
    quiet = alarm_of(traffic)
    assert (quiet.raised_by, quiet.state.bets.pending) == (None, ())
    # Somebody looks again, and half of what was called fine was not; kinder second looks take nothing back.
    traffic.label(made[20:40], lambda _: 1.0, at=START + 2 * HOUR)
    watcher.watch(GATE, now=START + 2 * HOUR)
    assert alarm_of(traffic).raised_by is not None
    assert traffic.store.policies.newest(GATE).state == "closed"


def test_what_waits_is_shown_with_its_age(light_traffic: Callable[..., Traffic]) -> None:
    traffic = light_traffic(audit_probability=1.0)
    made = traffic.decide(5, rng=np.random.default_rng(3))
    traffic.label(made[:2], lambda _: 0.0, at=START + HOUR)
    shown = Shown()
    traffic.watcher(shown).round([traffic.store.gates.get(GATE)], now=START + HOUR)
    found = shown.reports[GATE].alarm("risk")
    assert (found.read, found.pending, found.pending_since) == (5, 3, START + 2 * MINUTE)
    missing = shown.reports[GATE].alarm("missing")
    assert missing is not None
    assert (missing.pending, missing.pending_since) == (3, START + 2 * MINUTE), "decided then, not due then"
    assert found.limit == pytest.approx(0.06)
    assert found.known_evidence_ratio is not None
    assert found.known_evidence_ratio > found.evidence_ratio * 0.5


@pytest.mark.parametrize("closed", [0, 60])
def test_a_closed_phase_changes_no_bit(light_traffic: Callable[..., Traffic], closed: int) -> None:
    traffic = light_traffic(on_alarm="report")
    rng = np.random.default_rng(4)
    traffic.label(traffic.decide(40, rng=rng), lambda _: 0.0)
    before = alarm_after(traffic)
    traffic.open_gate(state="closed", threshold=None)
    traffic.label(traffic.decide(closed, rng=np.random.default_rng(5)), lambda _: 0.0) if closed else None
    assert alarm_after(traffic) == before
    traffic.open_gate()
    made = traffic.decide(40, rng=np.random.default_rng(6))
    traffic.label(made, lambda _: 0.0)
    after = alarm_after(traffic)
    assert after != before
    assert isinstance(after, RiskAlarm)
    assert after.bets.seen == sum(one.sampled for one in traffic.made[:40] + made)


def alarm_after(traffic: Traffic) -> object:
    traffic.watcher().watch(GATE, now=START + DAY / 2)
    return alarm_of(traffic).state


def calibrated(traffic: Traffic, severity: float = 0.5) -> None:
    """A policy in force that ships everything, from a run on 60 batches of which so many are bad."""
    rng = np.random.default_rng(7)
    traffic.policy = traffic.store.policies.newest(GATE)
    made = traffic.decide(60, rng=rng, sampled=True, sampling_probability=1.0, shipped=0.0,
                          every=timedelta(seconds=1))  # fmt: skip
    traffic.label(made, lambda one: float(int(one.key.batch_id.split("-")[1]) < 60 * severity))
    run = calibrate_gate(
        traffic.store.calibration,
        traffic.store.gates.get(GATE),
        now=START + DAY,
        heads=traffic.store.calibration.heads(),
    )
    found = traffic.store.calibration.record_run(run, by="ana", reason="", now=START + DAY)
    traffic.open_gate(run=found.calibration_run, threshold=None)


@pytest.mark.parametrize("action", ["report", "close"])
def test_what_ships_is_no_better_than_everything(new_traffic: Callable[..., Traffic], action: str) -> None:
    traffic = new_traffic(
        audit_probability=1.0, alpha=0.4, on_alarm="report", on_selective_alarm=action, alarm_tolerance=0.0
    )
    calibrated(traffic)
    assert traffic.store.monitoring.calibrated(1).mean_severity == 0.5
    # A seventh ships, and all of it is bad: exposure is inside the budget.
    made = traffic.decide(300, rng=np.random.default_rng(8), shipped=0.15)
    traffic.label(made, lambda _: 1.0)
    report = traffic.watcher().watch(GATE, now=START + DAY)
    alarm = alarm_of(traffic, "selective")
    assert isinstance(alarm.state, SelectiveAlarm)
    assert alarm.raised_by is not None
    assert alarm_of(traffic).raised_by is None
    policy = traffic.store.policies.newest(GATE)
    told = {one.alert.kind: one.alert for one in traffic.store.alerts.list()}
    assert "no better than if everything shipped" in told["selective"].message
    assert report is not None
    if action == "report":
        assert (policy.state, set(told)) == ("open", {"selective"})
        assert "on_selective_alarm report" in told["selective"].message
        traffic.store.alerts.acknowledge(told["selective"].alert_id, by="ana", reason="seen")
    else:
        assert (policy.state, set(told)) == ("closed", {"selective", "gate_closed"})
        assert alarm.closed_policy == policy.version
        assert alarm_of(traffic).closed_policy is None, "another alarm has not closed it"
        closure = traffic.store.calibration.alarm_closure(GATE)
        assert (closure.version, closure.closed) == (policy.version, True)
        traffic.open_gate(run=1, threshold=None)
    traffic.watcher().watch(GATE, now=START + DAY)
    following = alarm_of(traffic, "selective")
    assert (following.number, following.raised_by, following.state.bets.seen) == (2, None, 0)


def test_a_policy_without_a_run_has_no_selective_alarm(light_traffic: Callable[..., Traffic]) -> None:
    traffic = light_traffic(audit_probability=1.0)
    traffic.label(traffic.decide(10, rng=np.random.default_rng(9)), lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + DAY)
    assert traffic.store.monitoring.watch(GATE).alarm("selective") is None


def test_another_price_of_false_alarms_is_another_alarm(light_traffic: Callable[..., Traffic]) -> None:
    traffic = light_traffic(on_alarm="report", audit_probability=1.0)
    traffic.label(traffic.decide(5, rng=np.random.default_rng(12)), lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + HOUR)
    traffic.store.gates.revise(GATE, {"alarm_false_every": None}, by="ana", reason="")
    traffic.policy = traffic.store.policies.newest(GATE)
    traffic.label(traffic.decide(5, rng=np.random.default_rng(13)), lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + HOUR)
    alarm = alarm_of(traffic)
    assert (alarm.number, alarm.state.bets.seen) == (2, 5)
    assert replace(alarm, ended=None) == alarm


def _pending(alarm: WatchedAlarm) -> tuple[object, ...]:
    assert isinstance(alarm.state, RiskAlarm | SelectiveAlarm)
    return alarm.state.bets.pending
