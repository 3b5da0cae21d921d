"""An early warning holds its gate on a judge's marks, asks people about the newest answers, and lets go when they clear it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamer.errors import UsageError
from streamer.gates.policy import MONITOR, WARNING
from streamer.gates.rule import Needed
from streamer.risk.states import EarlyWarning
from streamer.risk.states.early import URGENT
from streamer.scoring.signals.signal_list import SignalList
from streamer.wording.verdicts import sentence
from tests.integration.watching.conftest import DAY, GATE, START, Traffic
from tests.integration.watching.test_drift import calibrated as calibrated_scores
from tests.integration.watching.test_drift import scored
from tests.integration.watching.test_label_alarms import HOUR


def marked(traffic: Traffic, count: int, bad: float, *, seed: int, **changes: Any) -> list[Any]:
    """Answers that ship, a share of which a judge calls wrong."""
    made = traffic.decide(count, rng=np.random.default_rng(seed), **changes)
    wrong = np.random.default_rng(seed + 1).random(count) < bad
    said = {one.key.batch_id: float(it) for one, it in zip(made, wrong, strict=True)}
    traffic.label(made, said, kind="judge", labeller="judge", everyone=True)
    return made


def held(traffic: Traffic) -> list[Any]:
    """A gate that an early warning holds, though nobody has labelled anything; its newest answers."""
    watcher = traffic.watcher()
    marked(traffic, 100, 0.1, seed=1)
    watcher.watch(GATE, now=START + 3 * HOUR)
    alarm = traffic.store.monitoring.watch(GATE).alarm("early")
    assert isinstance(alarm.state, EarlyWarning)
    assert (alarm.state.bets.known, alarm.raised_by) == (100, None)
    made = marked(traffic, 60, 0.6, seed=5)
    watcher.watch(GATE, now=START + 4 * HOUR)
    policy = traffic.store.policies.newest(GATE)
    assert (policy.version, policy.created_by, policy.held_early) == (3, WARNING, True)
    traffic.policy = policy
    return made[-URGENT:]


def test_a_judge_that_calls_more_answers_wrong_holds_the_gate_and_people_let_it_go(
    new_traffic: Callable[..., Traffic],
):
    traffic = new_traffic(alpha=0.1, judge_kind="judge", early="judge", audit_probability=0.2)
    newest, store = held(traffic), traffic.store
    (told,) = store.alerts.list()
    assert (told.alert.kind, told.alert.level) == ("early", "page")
    assert told.alert.details["closed_by_policy"] == 3
    assert "It says nothing of the budget. The gate is held (policy 3)" in told.alert.message
    report = store.monitoring.judged(GATE, now=START + 4 * HOUR)
    assert report is not None
    assert sentence(report).startswith(f"{GATE}: ALARM: early warning, since")
    # All that shipped last is asked for, drawn or not, before other gates' answers.
    asked = {one.key.batch_id for one in store.labels.queue(GATE)}
    assert {one.key.batch_id for one in newest} <= asked
    assert GATE in store.labels.urgent(START + 4 * HOUR)
    closure = store.calibration.alarm_closure(GATE)
    assert closure is None, "what shipped before a warning is calibrated on as ever"
    watcher = traffic.watcher()
    shipped = [one for one in newest if one.selected is not None]
    for part, state in ((shipped[:20], "closed"), (shipped[20:], "open")):
        for one in part:
            (ships,) = [each for each in one.responses if each.action == "ship"]
            traffic.label([one], lambda _: 0.0, everyone=True, response_id=ships.id)
        watcher.watch(GATE, now=START + 5 * HOUR)
        assert store.policies.newest(GATE).state == state
    opened = store.policies.newest(GATE)
    assert (opened.version, opened.created_by) == (4, WARNING)
    assert "labels of the newest 40 answers that shipped clear it" in opened.reason
    (told,) = store.alerts.list()
    assert told.acknowledged_by == WARNING
    traffic.policy = opened
    marked(traffic, 5, 0.0, seed=9)
    watcher.watch(GATE, now=START + 6 * HOUR)
    following = store.monitoring.watch(GATE).alarm("early")
    assert (following.number, following.after_policy, following.raised_by) == (2, 3, None)


def test_a_gate_that_cannot_be_let_go_is_watched_on(
    light_traffic: Callable[..., Traffic], monkeypatch: pytest.MonkeyPatch
):
    traffic = light_traffic(alpha=0.1, judge_kind="judge", early="judge", audit_probability=0.2)
    traffic.label(held(traffic), lambda _: 0.0, everyone=True)
    monitoring = traffic.store.monitoring
    before = monitoring.watch(GATE).labels

    def refuses(*_: Any) -> Any:
        raise UsageError("no key to sign with is configured.")

    with monkeypatch.context() as patched:
        patched.setattr(monitoring._writer, "restored", refuses)
        traffic.watcher().watch(GATE, now=START + 5 * HOUR)
        assert traffic.store.policies.newest(GATE).held_early
        assert monitoring.watch(GATE).labels > before
    traffic.watcher().watch(GATE, now=START + 6 * HOUR)
    assert traffic.store.policies.newest(GATE).state == "open"


@pytest.mark.parametrize("answer", ["nobody", "wrong", "acknowledged"])
def test_a_held_gate_stays_so_until_labels_or_a_person_let_it_go(
    light_traffic: Callable[..., Traffic], answer: str
):
    """Where people call the newest answers wrong, the risk alarm closes the gate for good."""
    traffic = light_traffic(alpha=0.1, judge_kind="judge", early="judge", audit_probability=0.2)
    newest = held(traffic)
    if answer == "wrong":
        traffic.label(newest, lambda _: 1.0, everyone=True)
    elif answer == "acknowledged":
        (told,) = traffic.store.alerts.list()
        traffic.store.alerts.acknowledge(told.alert.alert_id, by="ana", reason="a new rubric")
    traffic.watcher().watch(GATE, now=START + 5 * HOUR)
    policy = traffic.store.policies.newest(GATE)
    assert (policy.state, policy.created_by) == {
        "nobody": ("closed", WARNING), "wrong": ("closed", MONITOR), "acknowledged": ("open", WARNING),
    }[answer]  # fmt: skip


def test_a_drift_alarm_holds_the_gate_where_it_is_to(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(early="drift")
    calibrated_scores(traffic)
    scored(traffic, np.random.default_rng(3).beta(8, 1, 120))
    traffic.watcher().watch(GATE, now=START + DAY)
    policy = traffic.store.policies.newest(GATE)
    assert (policy.created_by, policy.held_early) == (WARNING, True)
    assert "what comes has drifted since calibration run 1" in policy.reason
    (told,) = [one.alert for one in traffic.store.alerts.list() if one.alert.kind == "drift_scores"]
    assert f"The gate is held (policy {policy.version})" in told.message


def test_answers_that_use_over_half_of_the_budget_are_the_signal_of_all_signals(
    light_traffic: Callable[..., Traffic],
):
    traffic = light_traffic(
        method="full", scorer="choice", signals=SignalList().text, alpha=0.1, early="signals"
    )
    watcher = traffic.watcher()
    for seed, near in ((1, 5), (3, 9)):
        for _ in range(2):
            traffic.decide(50, rng=np.random.default_rng(seed), needed=Needed(near, 99))
        watcher.watch(GATE, now=START + seed * HOUR)
    policy = traffic.store.policies.newest(GATE)
    assert policy.held_early
    assert (
        "100 % of the last 10 marks of answers that shipped are bad (signals), and 0 % of the 100 before"
        in policy.reason
    )
