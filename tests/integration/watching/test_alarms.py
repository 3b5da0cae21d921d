"""What an alarm does: told once, the gate closed in the same transaction; the next one opens only for a reason."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer.cli.doctor import _gates
from streamer.errors import UsageError
from streamer.events.alerts import decode_alert
from streamer.gates.policy import MONITOR
from streamer.gates.rule import Cut, Segments
from streamer.recalibration.run import NothingToCalibrate, Since, calibrate_gate
from streamer.risk.rounds.alarm_terms import chance_of
from streamer.risk.rounds.store import Written
from streamer.settings.settings import load_settings
from tests.at_once import at_once
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Shown, Traffic
from tests.integration.watching.test_label_alarms import HOUR, calibrated


def raised(traffic: Traffic, **options: Any) -> Shown:
    """Everything that ships is as bad as can be: the alarm is raised."""
    shown = Shown()
    made = traffic.decide(80, rng=np.random.default_rng(11))
    traffic.label(made, lambda _: 1.0)
    traffic.watcher(shown, **options).round([traffic.store.gates.get(GATE)], now=START + DAY / 2)
    return shown


def test_the_alarm_is_told_and_closes_the_gate_in_one_transaction(new_traffic: Callable[..., Traffic]):
    traffic = new_traffic()
    shown = raised(traffic)
    policy = traffic.store.policies.newest(GATE)
    assert (policy.version, policy.state, policy.created_by) == (3, "closed", MONITOR)
    assert policy.calibrated
    assert "expected exposure risk passed 6 % (budget 5 %, tolerance 1 %) within" in policy.reason
    alarm = traffic.store.monitoring.watch(GATE).alarm("risk")
    assert (alarm.closed_policy, alarm.raised_at) == (3, START + DAY / 2)
    kinds = {one.alert.kind: one.alert for one in traffic.store.alerts.list()}
    assert kinds.keys() == {"risk", "gate_closed"}
    assert kinds["risk"].alert_id == alarm.alert_id
    assert (kinds["risk"].level, kinds["risk"].policy_version) == ("page", 2)
    assert kinds["risk"].details["closed_by_policy"] == 3
    assert "The gate was closed (policy 3)" in kinds["risk"].message
    assert shown.alerts == {(GATE, "risk"): 1, (GATE, "gate_closed"): 1}
    assert shown.reports[GATE].alarm("risk") is not None
    waiting = traffic.store.unpublished([], limit=20)
    assert [m.topic for m in waiting][-3:] == ["streamer.thresholds", "streamer.alerts", "streamer.alerts"]
    assert decode_alert(waiting[-2].value) == kinds["risk"]
    assert traffic.store.evidence.log_faults() == []


def test_a_closed_phase_is_in_no_figure_that_an_alarm_tells(light_traffic: Callable[..., Traffic]):
    """600 decisions of a closed gate made the exposure that the alert told an eighth of what it was."""
    traffic = light_traffic()
    rng = np.random.default_rng(11)
    traffic.open_gate(state="closed", calibrated=True, threshold=None)
    traffic.decide(600, rng=rng)
    traffic.open_gate()
    made = traffic.decide(80, rng=rng, start=START + 600 * MINUTE)
    traffic.label(made, lambda _: 1.0, at=START + 680 * MINUTE)
    traffic.watcher().round([traffic.store.gates.get(GATE)], now=START + DAY)
    (risk,) = (one.alert for one in traffic.store.alerts.list() if one.alert.kind == "risk")
    watch = traffic.store.monitoring.watch(GATE)
    assert watch.sequence is not None
    open_time = watch.service.period.open.exposure()
    assert open_time.decisions <= 80
    assert watch.sequence.state.exposure().decisions > 600
    assert risk.details["exposure"] == open_time.estimate
    assert risk.details["exposure_upper"] == open_time.upper
    policy = traffic.store.policies.newest(GATE)
    assert f"Over {open_time.decisions} decisions made while the gate was open" in risk.message
    assert f"Over {open_time.decisions} decisions made while the gate was open" in policy.reason


def test_an_alarm_that_only_reports_says_no_gate_ships_that_another_one_closes(
    light_traffic: Callable[..., Traffic],
):
    traffic = light_traffic(audit_probability=1.0, alpha=0.4, on_alarm="close", on_selective_alarm="report")
    calibrated(traffic)
    made = traffic.decide(80, rng=np.random.default_rng(8))
    traffic.label(made, lambda _: 1.0)
    traffic.watcher().watch(GATE, now=START + DAY / 2)
    closed = traffic.store.policies.newest(GATE)
    assert closed.state == "closed"
    told = {one.alert.kind: one.alert.message for one in traffic.store.alerts.list()}
    assert set(told) == {"risk", "selective", "gate_closed"}
    assert f"The gate was closed (policy {closed.version})" in told["risk"]
    assert f"The gate is closed already (policy {closed.version})" in told["selective"]
    assert "goes on shipping" not in told["selective"]


def test_what_cannot_be_closed_leaves_nothing_half_done(
    new_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
):
    traffic = new_traffic()
    made = traffic.decide(80, rng=np.random.default_rng(11))
    traffic.label(made, lambda _: 1.0)
    before = traffic.store.monitoring.watch(GATE)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the last statement fails")

    with monkeypatch.context() as patched:
        patched.setattr("streamer.store.risk.monitoring_state.raise_alert", broken)
        with pytest.raises(RuntimeError):
            traffic.watcher().watch(GATE, now=START + DAY / 2)
    assert traffic.store.monitoring.watch(GATE) == before
    assert traffic.store.policies.newest(GATE).state == "open"
    traffic.watcher().watch(GATE, now=START + DAY / 2)
    assert traffic.store.policies.newest(GATE).state == "closed"


def test_a_gate_that_is_only_to_report_goes_on_and_is_told_once(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(on_alarm="report")
    raised(traffic, page=20)
    raised(traffic, page=20)
    assert traffic.store.policies.newest(GATE).state == "open"
    (told,) = traffic.store.alerts.list()
    assert "goes on shipping" in told.alert.message


def test_where_nothing_can_be_signed_the_alert_says_that_the_gate_is_still_open(
    light_traffic: Callable[..., Traffic],
):
    traffic = light_traffic()
    writer = traffic.store.monitoring._writer

    def refuses(*_: Any) -> Any:
        raise UsageError("no key to sign with is configured.")

    traffic.store.monitoring._writer = type("Refusing", (), {"lock_to_close": refuses})()  # type: ignore[assignment]
    raised(traffic)
    (told,) = traffic.store.alerts.list()
    assert "could NOT be closed: no key to sign with is configured. Close" in told.alert.message
    # Somebody is woken by this and copies it: the command wants a reason.
    assert f"`streamer threshold close {GATE} --reason " in told.alert.message
    assert traffic.store.policies.newest(GATE).state == "open"
    # What it says of the sample does not depend on keys: nothing from before it is calibrated on any more.
    closure = traffic.store.calibration.alarm_closure(GATE)
    assert closure == Since(3, START + DAY / 2, closed=False)
    with pytest.raises(NothingToCalibrate, match="an alarm should have closed it"):
        calibrate_gate(
            traffic.store.calibration, traffic.store.gates.get(GATE), now=START + DAY, since=closure
        )
    settings = load_settings(database={"url": traffic.world.url})
    assert [one.level for one in _gates(settings) if "an alarm should have closed it on" in one.text] == [
        "fail"
    ]
    traffic.store.monitoring._writer = writer
    traffic.watcher().watch(GATE, now=START + DAY)
    assert traffic.store.policies.newest(GATE).state == "closed", "tried again until it can be done"
    closure = traffic.store.calibration.alarm_closure(GATE)
    assert (closure.version, closure.closed) == (3, True)
    assert {one.alert.kind for one in traffic.store.alerts.list()} == {"risk", "gate_closed"}


@pytest.mark.parametrize("acknowledged", [False, True])
def test_an_alarm_that_is_to_close_the_gate_afterwards_and_cannot_begins_the_sample_anew(
    light_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch, acknowledged: bool
):
    traffic = light_traffic(on_alarm="report")
    store = traffic.store
    raised(traffic)
    (told,) = store.alerts.list()
    if acknowledged:
        store.alerts.acknowledge(told.alert.alert_id, by="ana", reason="a bad prompt", now=START + 0.6 * DAY)
    store.gates.revise(GATE, {"on_alarm": "close"}, by="ana", reason="", now=START + 0.7 * DAY)
    revised = store.policies.newest(GATE)
    assert (revised.version, revised.settings.on_alarm) == (3, "close")

    def refuses(*_: Any) -> Any:
        raise UsageError("no key to sign with is configured.")

    monkeypatch.setattr(store.monitoring, "_writer", type("Refusing", (), {"lock_to_close": refuses})())
    traffic.watcher().watch(GATE, now=START + DAY)
    assert store.policies.newest(GATE).state == "open"
    closure = store.calibration.alarm_closure(GATE)
    assert closure == (None if acknowledged else Since(4, START + DAY / 2, closed=False))


@pytest.mark.parametrize("action", ["report", "close"])
def test_bad_answers_that_nobody_labels_are_told_and_close_the_gate_if_they_are_to(
    light_traffic: Callable[..., Traffic], action: str
):
    """The risk alarm counts what has no label as fine: half of what ships was bad, and it saw none of it."""
    traffic = light_traffic(on_missing=action, alpha=0.1)
    traffic.label(traffic.decide(80, rng=np.random.default_rng(11)), lambda _: 0.0, received=START + HOUR)
    watcher = traffic.watcher()
    later = START + 3 * HOUR
    watcher.watch(GATE, now=later)
    assert traffic.store.monitoring.watch(GATE).alarm("missing").raised_by is None
    made = traffic.decide(160, rng=np.random.default_rng(12), start=later)
    watcher.watch(GATE, now=later + 0.8 * HOUR)
    assert traffic.store.alerts.list() == [], "younger than the label lag of an hour"
    traffic.label(made[::2], lambda _: 0.0, received=later + HOUR)
    watcher.watch(GATE, now=later + 6 * HOUR)
    watch, policy = traffic.store.monitoring.watch(GATE), traffic.store.policies.newest(GATE)
    assert watch.alarm("missing").raised_by is not None
    assert watch.alarm("risk").raised_by is None  # type: ignore[union-attr]
    told = {one.alert.kind: one.alert for one in traffic.store.alerts.list()}
    assert (
        "(budget 10 %, tolerance 2 %), or more than 5 % of prompts ship answers that get no label in time"
        in told["missing"].message
    )
    if action == "report":
        assert (policy.state, set(told)) == ("open", {"missing"})
        assert "(on_missing report)" in told["missing"].message
    else:
        assert (policy.state, set(told)) == ("closed", {"missing", "gate_closed"})
        assert policy.reason.startswith("alarm on missing labels 1:")
        assert traffic.store.calibration.alarm_closure(GATE).closed


def test_opening_the_gate_again_opens_the_next_alarm_on_what_comes_then(
    light_traffic: Callable[..., Traffic],
):
    traffic = light_traffic()
    raised(traffic)
    watcher, monitoring = traffic.watcher(), traffic.store.monitoring
    # Decided before the gate was closed, read after it was opened again: it was told already.
    traffic.label(traffic.decide(30, rng=np.random.default_rng(12)), lambda _: 1.0)
    watcher.watch(GATE, now=START + DAY)
    assert monitoring.watch(GATE).alarm("risk").number == 1
    traffic.label(traffic.decide(30, rng=np.random.default_rng(13)), lambda _: 1.0)
    traffic.open_gate()
    watcher.watch(GATE, now=START + DAY)
    watcher.watch(GATE, now=START + DAY)
    second = monitoring.watch(GATE).alarm("risk")
    assert (second.number, second.state.bets.seen, second.raised_by) == (2, 0, None)
    assert second.state.bets.delta == chance_of(0.05, 2)
    assert traffic.store.policies.newest(GATE).state == "open"
    traffic.label(traffic.decide(80, rng=np.random.default_rng(14)), lambda _: 1.0)
    watcher.watch(GATE, now=START + DAY)
    assert traffic.store.policies.newest(GATE).state == "closed"
    assert len([one for one in traffic.store.alerts.list() if one.alert.kind == "risk"]) == 2


def test_what_shipped_between_two_rounds_is_read_although_the_gate_is_closed_again(
    light_traffic: Callable[..., Traffic],
):
    traffic = light_traffic()
    raised(traffic)
    traffic.open_gate()
    traffic.label(traffic.decide(80, rng=np.random.default_rng(13)), lambda _: 1.0)
    traffic.store.policies.close(GATE, by="ana", reason="complaints")
    traffic.watcher().watch(GATE, now=START + DAY)
    alarm = traffic.store.monitoring.watch(GATE).alarm("risk")
    assert (alarm.number, alarm.raised_by is not None) == (2, True)
    assert len([one for one in traffic.store.alerts.list() if one.alert.kind == "risk"]) == 2


def test_a_gate_of_which_only_some_segments_ship_is_open_again(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(segment_by="language")
    raised(traffic)
    watcher, monitoring = traffic.watcher(), traffic.store.monitoring
    nothing = Segments("language", (("en", Cut("closed", None)),))
    traffic.open_gate(state="closed", threshold=None, rule=nothing)
    watcher.watch(GATE, now=START + DAY)
    assert monitoring.watch(GATE).alarm("risk").number == 1, "it ships nothing"
    # Segments with few groups are held: the policy as a whole says closed, and the gate ships.
    traffic.open_gate(state="closed", threshold=None, rule=Segments("language", (("en", Cut("cut", 0.2)),)))
    traffic.label(
        traffic.decide(80, rng=np.random.default_rng(14), actions=("abstain", "ship")), lambda _: 1.0
    )
    watcher.watch(GATE, now=START + DAY)
    second = monitoring.watch(GATE).alarm("risk")
    assert (second.number, second.raised_by is not None) == (2, True)
    assert traffic.store.policies.newest(GATE).created_by == MONITOR


def test_a_person_who_acknowledges_opens_the_next_alarm_on_later_decisions(
    light_traffic: Callable[..., Traffic],
):
    traffic = light_traffic(on_alarm="report")
    raised(traffic)
    traffic.label(traffic.decide(30, rng=np.random.default_rng(12)), lambda _: 1.0)
    (told,) = traffic.store.alerts.list()
    traffic.store.alerts.acknowledge(told.alert.alert_id, by="ana", reason="a bad template, put right")
    after = traffic.decide(10, rng=np.random.default_rng(12))
    traffic.label(after, lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + DAY)
    alarm = traffic.store.monitoring.watch(GATE).alarm("risk")
    assert alarm is not None
    drawn = sum(one.sampled for one in after)
    assert (alarm.number, alarm.after, alarm.state.bets.seen) == (2, 110, drawn)
    rows = traffic.world.rows("SELECT number, ended FROM monitor_alarms WHERE kind = 'risk' ORDER BY number")
    assert rows == [(1, "acknowledged"), (2, None)]
    with pytest.raises(sa.exc.IntegrityError, match="append-only"):
        traffic.store._database.writing(
            lambda c: c.execute(sa.text("UPDATE monitor_alarms SET state = '{}' WHERE number = 1"))
        )


def test_a_new_policy_alone_opens_no_alarm(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(on_alarm="report")
    raised(traffic)
    traffic.open_gate()
    traffic.label(traffic.decide(10, rng=np.random.default_rng(12)), lambda _: 0.0)
    traffic.watcher().watch(GATE, now=START + DAY)
    alarm = traffic.store.monitoring.watch(GATE).alarm("risk")
    assert (alarm.number, alarm.ended) == (1, None)


def test_all_alarms_of_a_gate_together_spend_no_more_than_one():
    assert math.fsum(chance_of(0.05, number) for number in range(1, 200_000)) < 0.05
    assert chance_of(0.05, 1) == pytest.approx(0.0304, abs=1e-4)


def test_draws_that_are_not_made_as_logged_are_told(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic()
    traffic.decide(60, rng=np.random.default_rng(15), sampled=True, sampling_probability=0.05)
    watcher = traffic.watcher()
    watcher.watch(GATE, now=START)
    (told,) = [one.alert for one in traffic.store.alerts.list()]
    assert (told.kind, told.level) == ("draws", "page")
    assert traffic.store.policies.newest(GATE).state == "open", "no figure holds: none may close a gate"
    traffic.store.alerts.acknowledge(told.alert_id, by="ana", reason="an old worker")
    traffic.decide(20, rng=np.random.default_rng(16))
    watcher.watch(GATE, now=START + MINUTE)
    alarm = traffic.store.monitoring.watch(GATE).alarm("draws")
    assert (alarm.number, alarm.state.bets.seen, alarm.raised_by) == (2, 20, None)


def test_certain_and_not_taken_is_a_wrong_draw_and_no_error(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(audit_probability=1.0)
    traffic.decide(10, rng=np.random.default_rng(15), sampled=False)
    traffic.watcher().watch(GATE, now=START)
    assert [one.alert.kind for one in traffic.store.alerts.list()] == ["draws"]


def test_an_alarm_about_an_older_policy_closes_the_newer_one(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic()
    made = traffic.decide(80, rng=np.random.default_rng(11))
    traffic.open_gate()
    traffic.label(made, lambda _: 1.0)
    traffic.watcher().watch(GATE, now=START)
    newest = traffic.store.policies.newest(GATE)
    assert (newest.version, newest.state) == (4, "closed")


def test_two_at_once_read_everything_once(new_traffic: Callable[..., Traffic]):
    traffic = new_traffic()
    rng = np.random.default_rng(17)
    traffic.label(traffic.decide(120, rng=rng), lambda _: 0.0)
    watchers = [
        type(traffic.watcher())(
            traffic.world.open().monitoring, alerts=traffic.store.alerts, observer=Shown(), page=4, pages=60
        )
        for _ in range(2)
    ]
    at_once(lambda one: one.watch(GATE, now=START + DAY), *watchers)
    traffic.watcher().watch(GATE, now=START + DAY)
    watch = traffic.store.monitoring.watch(GATE)
    assert watch.sequence.state.decisions == 120
    alone = traffic.store.monitoring.decided(GATE, after=0, until=10**9, limit=500)
    assert watch.sequence.state.drawn == sum(one.sampled for one in alone)


def test_the_loser_of_a_race_writes_nothing(new_traffic: Callable[..., Traffic]):
    traffic = new_traffic()
    traffic.label(traffic.decide(10, rng=np.random.default_rng(18)), lambda _: 0.0)
    monitoring = traffic.store.monitoring
    fresh = monitoring.watch(GATE)
    traffic.watcher().watch(GATE, now=START + DAY)
    after = monitoring.watch(GATE)
    written = Written(
        watch=replace(after, read=99), ended=[], close="no", closing=frozenset(), make_alerts=lambda *_: []
    )
    assert monitoring.write(fresh, written) is False, "a first round that comes too late"
    assert monitoring.write(replace(after, step=after.step - 1), written) is False
    assert monitoring.watch(GATE) == after
    assert traffic.store.policies.newest(GATE).state == "open"
