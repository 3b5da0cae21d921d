"""Rounds over several gates: what is quiet costs nothing, whatever comes is seen, and nobody waits for a backlog."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer.risk.rounds.watch import ROUND_SECONDS, RiskWatch
from tests.integration.watching.conftest import DAY, GATE, MINUTE, START, Shown, Traffic


def statements(traffic: Traffic, watcher: RiskWatch, now: datetime) -> list[str]:
    """What a round asks of the database and writes."""
    said: list[str] = []
    engine = traffic.store._database.engine

    def listen(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        said.append(statement)

    sa.event.listen(engine, "before_cursor_execute", listen)
    watcher.round(traffic.store.gates.list(), now=now)
    sa.event.remove(engine, "before_cursor_execute", listen)
    return said


def test_what_is_quiet_is_asked_for_once_and_writes_nothing(new_traffic: Callable[..., Traffic]) -> None:
    traffic = new_traffic()
    shown = Shown()
    watcher = traffic.watcher(shown)
    watcher.round(traffic.store.gates.list(), now=START)
    watcher.round(traffic.store.gates.list(), now=START + MINUTE)
    alone = statements(traffic, watcher, START + 2 * MINUTE)
    for name in ("second", "third"):
        traffic.store.gates.create(name, traffic.settings(), by="ana", reason="")
    traffic.label(traffic.decide(10, rng=np.random.default_rng(61), sampled=True), lambda _: 0.0)
    for minutes in (3, 4):
        watcher.round(traffic.store.gates.list(), now=START + minutes * MINUTE)
    together = statements(traffic, watcher, START + 5 * MINUTE)
    assert len(together) == len(alone)
    assert not [one for one in together if one.startswith(("INSERT", "UPDATE"))]
    assert {one.read_through for one in shown.reports.values()} == {START + 5 * MINUTE}
    # News of one gate are read, and of no other.
    traffic.label(traffic.decide(3, rng=np.random.default_rng(62)), lambda _: 0.0)
    watcher.round(traffic.store.gates.list(), now=START + 6 * MINUTE)
    assert len({one.read_through for one in shown.reports.values()}) == 1
    steps = dict(traffic.world.rows("SELECT gate, step FROM monitor_gates"))
    assert steps[GATE] > steps["second"] == steps["third"] == 1


@pytest.mark.parametrize("unit", ["best", "response"])
def test_a_batch_without_an_answer_is_read_like_any(new_traffic: Callable[..., Traffic], unit: str) -> None:
    traffic = new_traffic(unit=unit)
    rng, shown = np.random.default_rng(64), Shown()
    watcher = traffic.watcher(shown)
    traffic.label(traffic.decide(5, rng=rng), lambda _: 0.0)
    traffic.decide(1, rng=rng, actions=(), scores=(), selected=None)
    traffic.label(traffic.decide(5, rng=rng), lambda _: 0.0)
    watcher.round(traffic.store.gates.list(), now=START + MINUTE)
    assert shown.reports[GATE].read_through == START + MINUTE


def test_rounds_miss_nothing_that_a_fresh_look_would_see(light_traffic: Callable[..., Traffic]) -> None:
    """Whatever comes, and in whatever order: decisions, labels, acknowledgements, settings, and only time."""
    rng = np.random.default_rng(63)
    traffic = light_traffic(on_alarm="report", monitor_deadline_seconds=7200.0)
    store, watcher = traffic.store, traffic.watcher()
    now, unlabelled = START, list[Any]()

    def label() -> None:
        for one in unlabelled:  # some never get one, and are overdue some time
            if rng.random() < 0.7:
                traffic.label([one], lambda _: 1.0, at=now)
        unlabelled.clear()

    def acknowledge() -> None:
        for one in store.alerts.list(unacknowledged=True):
            store.alerts.acknowledge(one.alert.alert_id, by="ana", reason="seen")

    def revise() -> None:
        seconds = float(rng.uniform(1800, 14_400))
        store.gates.revise(GATE, {"monitor_deadline_seconds": seconds}, by="ana", reason="")
        traffic.policy = store.policies.newest(GATE)

    def set_clock_back() -> None:
        nonlocal now
        now -= DAY

    def wait() -> None: ...

    actions = [label] * 3 + [acknowledge, revise, set_clock_back] + [wait] * 6
    for _ in range(50):
        if rng.random() < 0.3:
            unlabelled += traffic.decide(4, rng=rng, start=now, every=MINUTE / 60)
        else:
            actions[rng.integers(len(actions))]()
        now += 20 * MINUTE
        watcher.round(store.gates.list(), now=now)
        seen = store.monitoring.watch(GATE)
        traffic.watcher().watch(GATE, now=now)
        fresh = store.monitoring.watch(GATE)
        assert (seen.sequence, seen.alarms, seen.late) == (fresh.sequence, fresh.alarms, fresh.late)
    assert seen.sequence.state.decisions > 20
    assert any(one.acknowledged_by for one in store.alerts.list())


def test_a_backlog_of_others_holds_up_no_alarm(light_traffic: Callable[..., Traffic]) -> None:
    rng = np.random.default_rng(64)
    traffic = light_traffic()
    shipping = traffic.policy
    for other in range(11):
        traffic.store.gates.create(f"a-{other}", traffic.settings(), by="ana", reason="")
        traffic.policy = traffic.store.policies.newest(f"a-{other}")
        traffic.decide(100, rng=rng, sampled=False)
    traffic.policy = shipping
    traffic.label(traffic.decide(80, rng=rng), lambda _: 1.0)
    seconds = iter(range(0, 10**6, int(ROUND_SECONDS) + 1))
    watcher = traffic.watcher(page=24, monotonic=lambda: float(next(seconds)))
    for _ in range(4):  # with twelve gates that wait a page is 20 decisions
        watcher.round(traffic.store.gates.list(), now=START + DAY / 2)
    assert traffic.store.policies.newest(GATE).state == "closed"
    assert traffic.store.monitoring.watch("a-0").read == 80, "it was read beside it, page for page"
