"""Drift of scores and of the embedding cloud against what the policy in force was calibrated on, without labels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamer.gates.uniforms import keyed_bits
from streamer.recalibration.run import calibrate_gate
from streamer.risk.states import DriftAlarm
from streamer.scoring.cloud import STATISTICS
from tests.integration.watching.conftest import DAY, GATE, NEWEST, START, Shown, Traffic

NOTHING_SHIPS = ("abstain", "abstain")


def scored(traffic: Traffic, scores: np.ndarray, clouds: np.ndarray | None = None, **changes: Any) -> None:
    """Decide one batch for each score: that of the best answer."""
    rng = np.random.default_rng(31)
    p = traffic.policy.settings.audit_probability
    lease = traffic._leases.setdefault(0, traffic._leases.get(0) or traffic.world.lease())
    batch = [
        traffic.world.decision(
            traffic.offset + place, actions=NOTHING_SHIPS, scores=(0.0, round(float(score), 6)),
            sampled=bool(rng.random() < p), sampling_probability=p, policy=traffic.policy,
            newest_seen=NEWEST, cloud=None if clouds is None else tuple(clouds[place].tolist()),
            **changes,
        )
        for place, score in enumerate(scores)
    ]  # fmt: skip
    traffic.world.commit(traffic.world.slice(lease, *batch, expected=traffic.offset))
    traffic.offset += len(batch)
    traffic.made += batch


def calibrated(traffic: Traffic, size: int = 200, *, clouds: bool = True) -> int:
    """Calibrate on `size` batches that scored uniformly, and put that in force; returns the run."""
    rng = np.random.default_rng(32)
    scored(traffic, rng.random(size), rng.normal(0, 0.1, (size, len(STATISTICS))) if clouds else None)
    traffic.label(traffic.made, lambda _: 0.0)
    gate = traffic.store.gates.get(GATE)
    run = calibrate_gate(
        traffic.store.calibration, gate, now=START + DAY, heads=traffic.store.calibration.heads()
    )
    policy = traffic.store.calibration.record_run(run, by="ana", reason="", now=START + DAY)
    traffic.policy = traffic.store.policies.newest(GATE)
    assert policy.calibration_run is not None
    return policy.calibration_run


def alarms(traffic: Traffic) -> dict[str, Any]:
    traffic.watcher().watch(GATE, now=START + DAY)
    return {
        one.statistic: one
        for one in traffic.store.monitoring.watch(GATE).alarms
        if one.kind in ("drift_scores", "drift_cloud")
    }


def test_the_state_is_that_of_the_mathematics_and_a_shift_is_told_early(
    new_traffic: Callable[..., Traffic],
) -> None:
    traffic = new_traffic(audit_probability=1.0, alpha=0.2)
    run = calibrated(traffic)
    rng = np.random.default_rng(33)
    steady = rng.random(60)
    scored(traffic, steady, rng.normal(0, 0.1, (60, len(STATISTICS))))
    found = alarms(traffic)
    assert found.keys() == {"score", *STATISTICS}
    reference = [one.responses[1].score for one in traffic.made[:200]]
    salt = traffic.store.policies.active()[GATE].audit_salt
    stream = np.random.Philox(key=keyed_bits(salt, "drift", GATE, "drift_scores", "score", "1"))
    uniforms = np.random.Generator(stream).random(60)
    expected = DriftAlarm.open(np.array(reference, dtype=float), delta=0.025).observe(
        [round(float(score), 6) for score in steady], uniforms
    )
    assert found["score"].state == expected
    assert {one.run for one in found.values()} == {run}
    assert sum(one.state.bets.delta for one in found.values()) == pytest.approx(0.05)

    shown = Shown()
    scored(traffic, 0.8 + 0.2 * rng.random(60), rng.normal(0, 0.1, (60, len(STATISTICS))))
    traffic.watcher(shown).round([traffic.store.gates.get(GATE)], now=START + DAY)
    (told,) = [one.alert for one in traffic.store.alerts.list()]
    assert (told.kind, told.level, told.details["run"]) == ("drift_scores", "ticket", run)
    assert shown.reports[GATE].exposure is not None, "labels of these are not there yet; drift does not wait"
    assert shown.reports[GATE].alarm("drift_scores").raised_at == START + DAY


def test_a_cloud_that_moves_is_told_though_scores_stay(light_traffic: Callable[..., Traffic]) -> None:
    traffic = light_traffic(audit_probability=1.0, alpha=0.2)
    calibrated(traffic)
    rng = np.random.default_rng(34)
    clouds = rng.normal(0, 0.1, (80, len(STATISTICS)))
    clouds[:, 2] += 0.3
    scored(traffic, rng.random(80), clouds)
    alarms(traffic)
    told = [one.alert for one in traffic.store.alerts.list()]
    assert [(one.kind, one.details["statistic"]) for one in told] == [("drift_cloud", "direction_2")]
    assert "what the answers are about" in told[0].message


def test_a_raised_alarm_outlasts_a_run_on_the_same_batches_and_ends_when_it_is_acknowledged(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic(audit_probability=1.0, alpha=0.2)
    first = calibrated(traffic)
    rng = np.random.default_rng(35)
    scored(traffic, 0.9 + 0.1 * rng.random(40))
    assert alarms(traffic)["score"].raised_by is not None
    traffic.store.policies.close(GATE, by="ana", reason="")
    old = traffic.policy
    traffic.policy = traffic.store.policies.newest(GATE)
    scored(traffic, rng.random(20), reason="closed")
    assert alarms(traffic)["score"].run == first
    second = calibrated(traffic, 100)  # on what came before the alarm, too
    scored(traffic, rng.random(30))
    assert (alarms(traffic)["score"].run, alarms(traffic)["score"].ended) == (first, None)
    alert = traffic.store.alerts.list()[0].alert.alert_id
    traffic.store.alerts.acknowledge(alert, by="ana", reason="another campaign", now=START + DAY)
    assert alarms(traffic)["score"].ended == "acknowledged"
    scored(traffic, rng.random(30))
    found = alarms(traffic)
    assert (found["score"].run, found["score"].number, found["score"].raised_by) == (second, 2, None)
    seen = found["score"].state.bets.seen
    traffic.policy = old  # a worker that refuses the newer policy
    scored(traffic, np.full(5, 0.99))
    assert alarms(traffic)["score"].state.bets.seen == seen
    assert [one.alert.kind for one in traffic.store.alerts.list()] == ["drift_scores"]


def test_old_decisions_without_numbers_of_the_cloud_leave_the_scores_alone_to_watch(
    light_traffic: Callable[..., Traffic],
) -> None:
    traffic = light_traffic(audit_probability=1.0, alpha=0.2)
    calibrated(traffic, clouds=False)
    scored(traffic, np.random.default_rng(36).random(10))
    assert alarms(traffic).keys() == {"score"}
