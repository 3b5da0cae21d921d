"""The watch raises and lowers audit rates in its own transaction; workers and label queues follow."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from streamer.errors import LeaseLost
from streamer.review.items import Reviewer
from streamer.risk.states import RiskAlarm
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Shown, Traffic

LATER = START + DAY / 4


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the alarm's evidence is, whatever was read; a test changes it."""
    value = [0.0]
    monkeypatch.setattr(RiskAlarm, "known_evidence", property(lambda _: value[0]))
    monkeypatch.setattr("streamer.risk.rounds.audit_rates.YOUNG_DRAWS", 0)
    return value


def look(traffic: Traffic, now: Any = LATER, shown: Shown | None = None) -> None:
    """One round of a recalibrator that has just begun to lead."""
    traffic.watcher(shown).round([traffic.store.gates.get(GATE)], now=now)


def drawing(shown: Shown) -> tuple[float, Any]:
    """What is shown of how often the gate's decisions are drawn."""
    found = shown.reports[GATE].drawing
    return found.probability, found.raised_until


def decide(traffic: Traffic, count: int, *, extra: int = 0, at: Any = START) -> list[Any]:
    """Decide batches as a worker would that has read the newest rate; the first `extra` are drawn by it alone."""
    rate = traffic.store.policies.active()[GATE].rate
    made = []
    for place in range(count):
        fields: dict[str, Any] = {"sampled": place < extra}
        if rate is not None and rate.raises(at):
            fields |= {
                "sampling_probability": traffic.policy.settings.boosted_probability,
                "audit_rate": rate.number,
                "extra_draw": place < extra,
            }
        made += traffic.decide(1, rng=np.random.default_rng(place), start=at + place * MINUTE / 10, **fields)
    return made


def test_evidence_raises_the_rate_and_its_end_lowers_it_on_record(
    new_traffic: Callable[..., Traffic], evidence: list[float]
) -> None:
    traffic, shown = new_traffic(audit_probability=0.2), Shown()
    decide(traffic, 3)
    look(traffic, shown=shown)
    assert traffic.store.monitoring.rate(GATE) == (None, 0)
    assert drawing(shown) == (0.2, None)
    evidence[0] = 0.4
    look(traffic, shown=shown)
    look(traffic, LATER + MINUTE, shown)
    rate = traffic.store.policies.active()[GATE].rate
    assert (rate.boosted, rate.since, rate.evidence) == (True, LATER, 0.4)
    assert drawing(shown) == (0.8, LATER + timedelta(hours=1))
    evidence[0] = 0.01
    look(traffic, LATER + 2 * MINUTE, shown)
    assert not traffic.store.policies.active()[GATE].rate.boosted
    assert drawing(shown) == (0.2, None)
    assert traffic.world.rows("SELECT count(*) FROM audit_rates") == [(2,)]
    sealed = traffic.world.rows("SELECT count(*) FROM control_log WHERE kind = 'audit_rates'")
    assert sealed == [(2,)]


def test_the_cap_of_a_day_lowers_it_until_the_next(
    new_traffic: Callable[..., Traffic], evidence: list[float]
) -> None:
    traffic = new_traffic(audit_probability=0.2, audit_boost_most=5)
    evidence[0] = 0.4
    decide(traffic, 1)
    look(traffic)
    decide(traffic, 8, extra=4, at=LATER)
    look(traffic, LATER + 10 * MINUTE)
    rate, extra = traffic.store.monitoring.rate(GATE)
    assert (rate.boosted, extra) == (True, 4)
    decide(traffic, 8, extra=2, at=LATER + 11 * MINUTE)
    look(traffic, LATER + 20 * MINUTE)
    rate, extra = traffic.store.monitoring.rate(GATE)
    assert (rate.boosted, extra, rate.extra) == (False, 6, 6)
    assert rate.reason == "the 5 extra labels that the gate allows for today are asked for"
    look(traffic, LATER + 60 * MINUTE)
    assert traffic.store.monitoring.rate(GATE)[0] == rate
    decide(traffic, 2, at=START + DAY / 2)
    look(traffic, START + DAY / 2 + MINUTE)
    again, extra = traffic.store.monitoring.rate(GATE)
    assert (again.boosted, extra) == (True, 0)


def test_a_held_answer_that_a_raised_rate_alone_drew_is_asked_of_nobody(
    new_traffic: Callable[..., Traffic], evidence: list[float]
) -> None:
    """Its loss is 0 whatever its severity, and nothing else reads it."""
    traffic = new_traffic(audit_probability=0.2)
    evidence[0] = 0.4
    decide(traffic, 1)
    look(traffic)
    rate = traffic.store.policies.active()[GATE].rate
    assert rate is not None

    def drawn(*, extra: bool, shipped: float) -> str:
        fields = {
            "sampled": True,
            "sampling_probability": 0.8,
            "audit_rate": rate.number,
            "extra_draw": extra,
        }
        rng = np.random.default_rng(1)
        (one,) = traffic.decide(1, rng=rng, start=LATER, shipped=shipped, **fields)
        return one.key.batch_id

    asked = {drawn(extra=True, shipped=1.0), drawn(extra=False, shipped=1.0), drawn(extra=False, shipped=0.0)}
    drawn(extra=True, shipped=0.0)
    assert {one.key.batch_id for one in traffic.store.labels.queue(limit=9)} == asked
    look(traffic, LATER + 10 * MINUTE)
    assert traffic.store.monitoring.rate(GATE)[1] == 1, "the day's cap counts what is asked for"


def test_a_raised_rate_is_written_with_its_round_or_not_at_all(
    light_traffic: Callable[..., Traffic], evidence: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = light_traffic(audit_probability=0.2)
    evidence[0] = 0.4
    decide(traffic, 3)
    before = traffic.store.monitoring.watch(GATE)
    with monkeypatch.context() as patched:

        def lost(*_: Any, **__: Any) -> None:
            raise LeaseLost("another leads")

        patched.setattr("streamer.store.risk.audit_rates.control.append", lost)
        with pytest.raises(LeaseLost):
            traffic.watcher().watch(GATE, now=LATER)
    assert traffic.store.monitoring.rate(GATE) == (None, 0)
    assert traffic.store.monitoring.watch(GATE) == before


def test_labels_of_a_gate_in_doubt_come_first_in_the_order_of_its_decisions(
    new_traffic: Callable[..., Traffic], evidence: list[float]
) -> None:
    traffic = new_traffic(audit_probability=0.2)
    store = traffic.store
    other = traffic.world.gate("another-bot", audit_probability=0.2)
    lease = traffic.world.lease(7)
    older = traffic.world.decision(0, "older", number=7, policy=other, at=START - MINUTE)
    traffic.world.commit(traffic.world.slice(lease, older))
    decide(traffic, 1)
    first = decide(traffic, 2, extra=2, at=START + MINUTE)
    evidence[0] = 0.4
    look(traffic)
    second = decide(traffic, 2, extra=2, at=LATER)
    mine = [one.key.batch_id for one in (*first, *second)]

    def order(**options: Any) -> list[tuple[str, bool]]:
        found, page = list[tuple[str, bool]](), store.labels.queue(limit=2, **options)
        while page:
            found += [(one.key.batch_id, one.urgent) for one in page]
            page = store.labels.queue(limit=2, after=page[-1], **options)
        return found

    assert order() == [("older", False), *((name, False) for name in mine)]
    urgent = store.labels.urgent(LATER + MINUTE)
    assert urgent == {GATE}
    assert order(urgent=urgent) == [*((name, True) for name in mine), ("older", False)]
    reviewer = Reviewer(labeller="ana", holder="page")
    gates = ["another-bot", GATE]
    assert store.reviews.next(reviewer, gates, hold=MINUTE, now=LATER + MINUTE).gate == GATE
    later = store.reviews.next(
        replace(reviewer, holder="other page"), gates, hold=MINUTE, now=LATER + timedelta(hours=2)
    )
    assert later.gate == "another-bot", "the rate has ended"


def test_a_gate_that_is_closed_by_its_alarm_draws_at_its_own_rate(
    light_traffic: Callable[..., Traffic], evidence: list[float]
) -> None:
    traffic = light_traffic()
    evidence[0] = 0.4
    made = traffic.decide(10, rng=np.random.default_rng(3))
    traffic.label(made, lambda _: 0.0)
    look(traffic)
    made = traffic.decide(120, rng=np.random.default_rng(11), start=START + 20 * MINUTE)
    traffic.label(made, lambda _: 1.0)
    evidence[0] = 1e9
    look(traffic, LATER + MINUTE)
    look(traffic, LATER + 2 * MINUTE)
    rate, _ = traffic.store.monitoring.rate(GATE)
    assert traffic.store.policies.newest(GATE).state == "closed"
    assert not rate.boosted
