"""The verifier replays the risk alarms of real monitoring from the record: none is missing, and none is made up."""

import copy
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Traffic, replayed

WEEK = timedelta(days=7)


def watched(traffic: Traffic, at: Any) -> None:
    traffic.watcher().round([traffic.store.gates.get(GATE)], now=at)


def spoilt(traffic: Traffic, severity: float = 1.0, count: int = 80, start: Any = START) -> None:
    """Decisions with their labels an hour later."""
    made = traffic.decide(count, rng=np.random.default_rng(traffic.offset), start=start)
    traffic.label(made, lambda _: severity, at=start + count * MINUTE)


def later(traffic: Traffic, at: Any) -> None:
    """Something is recorded long afterwards, so that the record says how late it is."""
    traffic.world.clock.now = at
    traffic.decide(1, rng=np.random.default_rng(1), start=at, sampled=False)


@pytest.mark.parametrize("action", ["report", "close"])
def test_what_monitoring_raised_is_replayed(new_traffic: Callable[..., Traffic], action: str):
    """Raised, acknowledged or reopened, raised again, over two partitions, with labels that wait."""
    traffic = new_traffic(on_alarm=action, alarm_false_every=None)
    store = traffic.store
    for round_ in range(3):
        start = START + round_ * DAY
        traffic.policy = store.policies.newest(GATE)
        if traffic.policy.state == "closed":
            traffic.open_gate()
        made = traffic.decide(60, rng=np.random.default_rng(round_), start=start)
        watched(traffic, start + 61 * MINUTE)
        traffic.label(made, lambda _: 1.0, at=start + 62 * MINUTE)
        watched(traffic, start + 63 * MINUTE)
        assert store.alerts.counts()[GATE, "risk"] == round_ + 1
        if action == "report":
            (alert,) = store.alerts.list(GATE, unacknowledged=True)
            store.alerts.acknowledge(alert.alert.alert_id, by="ana", reason="seen", now=start + 64 * MINUTE)
    later(traffic, START + WEEK)
    assert replayed(store) == []


def test_the_first_wrong_claim_of_an_answer_decides_what_it_loses(new_traffic: Callable[..., Traffic]):
    """No label of the claims below it is waited for; a half-wrong one leaves the loss open."""
    traffic = new_traffic(unit="claim", scorer="support", encoder="none", alarm_false_every=None)
    store, rng = traffic.store, np.random.default_rng(3)
    waiting = 0
    for severity, raised in ((0.5, 0), (1.0, 1)):
        made = traffic.decide(60, rng=rng, actions=("ship", "ship"), drawn=(0, 1), scores=(0.9, 0.4))
        first = [replace(one, responses=one.responses[:1]) for one in made]
        traffic.label(first, lambda _, given=severity: given, at=START + DAY / 2)
        watched(traffic, START + DAY - MINUTE)
        assert store.alerts.counts().get((GATE, "risk"), 0) == raised
        drawn = sum(one.sampled for one in made)
        waiting += drawn if severity < 1 else 0
        assert len(store.labels.queue(limit=1000)) == waiting
    later(traffic, START + WEEK)
    assert replayed(store) == []


def test_an_alarm_that_is_missing_is_named(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(alarm_false_every=None)
    spoilt(traffic)
    later(traffic, START + timedelta(hours=20))
    assert replayed(traffic.store) == [], "monitoring may come yet"
    later(traffic, START + WEEK)
    (said,) = replayed(traffic.store)
    assert "no such alarm is on record: it was suppressed, or nobody monitored the gate" in said
    watched(traffic, START + WEEK)
    assert replayed(traffic.store) == []
    (said,) = replayed(traffic.store, control=without("alerts"))
    assert "it was suppressed" in said


@pytest.mark.parametrize(
    "change",
    [{"labels": "revised"}, {"severity": 0.06}, {"labellers": ("bob",)}, {"shipped": 0.0}],
    ids=lambda change: next(iter(change)),
)
def test_no_alarm_is_missed_that_monitoring_need_not_have_raised(
    light_traffic: Callable[..., Traffic], change: dict[str, Any]
):
    """Labels that were corrected, losses inside the tolerance, labels that the gate does not read."""
    traffic = light_traffic(**{name: change[name] for name in ("labellers",) if name in change})
    made = traffic.decide(80, rng=np.random.default_rng(1), shipped=change.get("shipped", 1.0))
    first = 0.0 if change.get("labels") == "revised" else change.get("severity", 1.0)
    at = START + MINUTE * 90
    traffic.label(made, lambda _: first, at=at)
    watched(traffic, START + 4 * DAY)
    if change.get("labels") == "revised":
        traffic.label(made, lambda _: 1.0, at=at + MINUTE)
    assert (GATE, "risk") not in traffic.store.alerts.counts()
    later(traffic, START + WEEK)
    assert replayed(traffic.store) == []


def test_an_alarm_that_labels_cannot_have_raised_is_named(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic()
    spoilt(traffic)
    watched(traffic, START + DAY / 2)

    def said(**change: Any) -> str:
        (fault,) = replayed(traffic.store, control=changed("alerts", **change))
        return fault

    (row,) = [one for one in traffic.store.alerts.list() if one.alert.kind == "risk"]
    batch, details = row.alert.details["batch"], dict(row.alert.details)
    assert isinstance(batch, int)
    assert "an evidence of" in said(details=details | {"batch": earlier(traffic, batch)})
    assert "bets on the batch" in said(details=details | {"batch": 10_000})
    assert "may spend" in said(details=details | {"delta": 0.5})
    assert "by the record 1" in said(details=details | {"alarm": 2})
    assert "an evidence of" in said(raised_at=(START - DAY).isoformat(timespec="microseconds"))


def test_a_raised_rate_that_no_alarm_stands_behind_is_named(light_traffic: Callable[..., Traffic]):
    traffic = light_traffic(audit_probability=0.2, audit_boost=4.0)
    spoilt(traffic, severity=0.06, count=200)
    watched(traffic, START + DAY / 2)
    assert replayed(traffic.store) == []
    rates = changed("audit_rates", evidence=1e9)
    (said,) = replayed(traffic.store, control=rates)
    assert "an evidence of" in said
    assert said.endswith("not 1e+09")


def earlier(traffic: Traffic, number: int) -> int:
    """The number of the draw before one."""
    with traffic.store._database.reading() as connection:
        found = connection.exec_driver_sql(
            f"SELECT max(batch) FROM decisions WHERE sampled AND batch < {number}"
        ).scalar_one()
    assert isinstance(found, int)
    return found


def without(kind: str) -> Callable[[Iterable[dict[str, Any]]], Iterator[dict[str, Any]]]:
    """A control log that lacks all rows of a kind."""
    return lambda lines: (line for line in lines if line["kind"] != kind)


def changed(kind: str, **values: Any) -> Callable[[Iterable[dict[str, Any]]], Iterator[dict[str, Any]]]:
    """A control log that has other values in its rows of a kind."""

    def change(line: dict[str, Any]) -> dict[str, Any]:
        if line["kind"] != kind:
            return line
        other = copy.deepcopy(line)
        other["row"] |= values
        return other

    return lambda lines: map(change, lines)
