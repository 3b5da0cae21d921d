"""Seeded streams through the whole path, record and rounds included: bounds hold and alarms cry wolf no more than promised.

The mathematics has its own simulations, far larger (`tests/validity`); here it is the order, the deadline and the missing
labels as the record has them.
"""

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from streamer.recalibration.run import calibrate_gate
from tests.integration.watching.conftest import DAY, GATE, START, Traffic
from tests.validity.known_risk import most_violations

STREAMS, REFERENCE, LENGTH, PIECE = 24, 60, 240, 40
SETTINGS = {"audit_probability": 0.4, "alpha": 0.05, "monitor_deadline_seconds": 6 * 3600.0, "on_alarm": "report"}  # fmt: skip


def begun(traffic: Traffic, rng: np.random.Generator) -> None:
    """A gate whose policy in force ships everything and came from a run on `REFERENCE` batches."""
    traffic.policy = traffic.store.policies.newest(GATE)
    made = traffic.decide(REFERENCE, rng=rng, sampled=True, sampling_probability=1.0, shipped=0.0,
                          every=timedelta(seconds=1))  # fmt: skip
    traffic.label(made, lambda _: 0.0)
    run = calibrate_gate(
        traffic.store.calibration,
        traffic.store.gates.get(GATE),
        now=START + DAY,
        heads=traffic.store.calibration.heads(),
    )
    found = traffic.store.calibration.record_run(run, by="ana", reason="", now=START + DAY)
    traffic.open_gate(run=found.calibration_run)


@pytest.mark.slow
def test_bounds_hold_at_every_round_and_no_alarm_is_raised_more_often_than_promised(
    light_traffic: Callable[..., Traffic],
) -> None:
    rng = np.random.default_rng(61)
    outside = risk = draws = drift = 0
    for _ in range(STREAMS):
        traffic = light_traffic(**SETTINGS)
        begun(traffic, rng)
        watcher = traffic.watcher()
        losses = [0.0] * REFERENCE
        escaped = False
        for piece in range(LENGTH // PIECE):
            start = START + piece * DAY / 8
            made = traffic.decide(PIECE, rng=rng, start=start)
            severities = {one.key.batch_id: float(rng.beta(0.12, 1.88)) for one in made}
            losses += severities.values()
            # Severe labels go missing more often than others, and they all come in any order.
            kept = [one for one in made if rng.random() > 0.3 * severities[one.key.batch_id]]
            rng.shuffle(kept)  # type: ignore[arg-type]
            traffic.label(kept, severities)
            for moment in (start + DAY / 24, start + DAY / 2):
                report = watcher.watch(GATE, now=moment)
                assert report is not None
                assert report.exposure is not None
                read = report.exposure.decisions
                truth = float(np.mean(losses[:read]))
                escaped |= not report.exposure.lower <= truth <= report.exposure.upper
        assert report.exposure.decisions == REFERENCE + LENGTH
        outside += escaped
        raised = {one.kind for one in report.alarms if one.raised_at is not None}
        risk += "risk" in raised
        draws += "draws" in raised
        drift += bool(raised & {"drift_scores", "drift_cloud"})
    print(f"of {STREAMS}: outside {outside}, risk {risk}, draws {draws}, drift {drift}")
    assert outside <= most_violations(STREAMS, 0.1)
    assert max(risk, draws, drift) <= most_violations(STREAMS, 0.05)


@pytest.mark.slow
def test_three_times_the_budget_is_found(
    light_traffic: Callable[..., Traffic],
) -> None:
    """The same path with risk at three times the budget: it is told, and the gate closes."""
    rng = np.random.default_rng(62)
    traffic = light_traffic(**(SETTINGS | {"on_alarm": "close"}))
    begun(traffic, rng)
    watcher = traffic.watcher()
    for piece in range(12):
        made = traffic.decide(100, rng=rng, start=START + piece * DAY / 8)
        traffic.label(made, lambda _: float(rng.beta(0.3, 1.7)))
        report = watcher.watch(GATE, now=START + piece * DAY / 8 + DAY / 24)
        if report is not None and report.alarm("risk") is not None and report.alarm("risk").raised_at:  # type: ignore[union-attr]
            break
    assert traffic.store.policies.newest(GATE).state == "closed"
    print(f"told after {traffic.offset - REFERENCE} decisions")
