"""How often do the alarms of monitoring cry wolf, and how long do they take when there is one? Seeded streams."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.gates.settings import GateSettings
from streamer.risk.rounds.reading import chance_of
from streamer.risk.states import AuditedDecisions, DrawAlarm, DriftAlarm, RestartedBets, RiskAlarm
from tests.unit.monitoring.streams import audited, severities
from tests.validity.known_risk import most_violations

ALPHA, DELTA, P = 0.05, 0.1, 0.2
STREAMS, LENGTH = 400, 5000
BOUND = most_violations(STREAMS, DELTA)
TOLERANCE = 0.01
NEVER = 10**9


def armed() -> RiskAlarm:
    return RiskAlarm.open(alpha=ALPHA, tolerance=TOLERANCE, delta=DELTA)


def _edge(rng: np.random.Generator) -> np.ndarray:
    return severities(ALPHA + TOLERANCE, LENGTH, rng)


def _edge_zero_one(rng: np.random.Generator) -> np.ndarray:
    return (rng.random(LENGTH) < ALPHA + TOLERANCE).astype(float)


def _up_and_down(rng: np.random.Generator) -> np.ndarray:
    risk = (ALPHA + TOLERANCE) * (np.arange(LENGTH) % 1000 < 500)
    return (rng.random(LENGTH) < risk).astype(float)


@pytest.mark.parametrize("stream", [_edge, _edge_zero_one, _up_and_down])
def test_a_stable_stream_raises_it_no_more_often_than_promised(stream):
    """400 streams of 5,000 decisions whose expected loss is never above alpha + tolerance, and mostly just that."""
    rng = np.random.default_rng(41)
    raised = sum(armed().observe(audited(stream(rng), P, rng)).raised_at is not None for _ in range(STREAMS))
    print(f"{stream.__name__}: {raised} of {STREAMS} raised")
    assert raised <= BOUND


def test_control_an_estimate_above_the_budget():
    """The same kind of stream, with risk alpha: its estimate is above alpha at one time or another, after 500."""
    rng = np.random.default_rng(43)
    above = 0
    for _ in range(STREAMS):
        decisions = audited(severities(ALPHA, LENGTH, rng), P, rng)
        estimates = np.cumsum(decisions.weight * decisions.loss) / np.arange(1, LENGTH + 1)
        above += bool((estimates[500:] > ALPHA).any())
    print(f"estimate above alpha: {above} of {STREAMS}")
    assert above > BOUND


def delays(quiet: int, after: int, streams: int, rng: np.random.Generator) -> tuple[float, float, int]:
    """Return the median delay with and without restarts, in decisions, and how many were raised in the quiet."""
    with_restarts, without, early = [], [], 0
    strengths = 0.27 * 2.0 ** -np.arange(7) / (ALPHA + TOLERANCE)
    for _ in range(streams):
        losses = np.concatenate([severities(ALPHA, quiet, rng), severities(2 * ALPHA, after, rng)])
        decisions = audited(losses, P, rng)
        raised = armed().observe(decisions).raised_at or NEVER
        early += raised <= quiet
        with_restarts.append(raised - quiet)
        steps = 1 + np.multiply.outer(decisions.weight * decisions.loss - ALPHA - TOLERANCE, strengths)
        evidence = np.exp(np.cumsum(np.log(steps), axis=0)).mean(axis=1)
        reached = evidence >= 1 / DELTA
        without.append(int(reached.argmax()) + 1 - quiet if reached.any() else NEVER)
    return float(np.median(with_restarts)), float(np.median(without)), early


def test_a_jump_at_once_is_seen_after_about_ninety_labels():
    """From the first decision on twice the budget; -rP prints the medians."""
    found, _, _ = delays(0, 3000, 200, np.random.default_rng(47))
    print(f"at once: {found * P:.0f} labels, {found:.0f} decisions")
    assert found * P == pytest.approx(88, rel=0.25)


def test_a_jump_after_long_quiet_is_seen_far_sooner_with_restarts():
    """Twice the budget after 4,000 quiet decisions; -rP prints the medians."""
    found, without, early = delays(4000, 5000, 200, np.random.default_rng(53))
    print(f"late: {found:.0f} decisions, {without:.0f} without restarts, {early} of 200 raised before")
    assert found == pytest.approx(998, rel=0.25)
    assert without > 2 * found


# What a gate is given unless it says otherwise: alarm_delta .05, of which the first alarm may spend 6/pi^2, and
# alarm_tolerance .2.
GATE = GateSettings(encoder="any", alpha=ALPHA)
FIRST = chance_of(GATE.alarm_delta, 1)


def as_a_gate() -> RiskAlarm:
    return RiskAlarm.open(alpha=ALPHA, tolerance=GATE.alarm_tolerance * ALPHA, delta=FIRST)


@pytest.mark.parametrize("stream", [_edge, _edge_zero_one, _up_and_down])
def test_a_gates_first_alarm_in_a_stable_stream(stream):
    """400 streams of 5,000 decisions at the edge, with the settings that gates are given."""
    rng = np.random.default_rng(71)
    raised = sum(
        as_a_gate().observe(audited(stream(rng), P, rng)).raised_at is not None for _ in range(STREAMS)
    )
    print(f"{stream.__name__}: {raised} of {STREAMS} raised, {most_violations(STREAMS, FIRST)} allowed")
    assert raised <= most_violations(STREAMS, FIRST)


def test_a_gates_alarms_one_after_the_other_stay_below_its_alarm_delta():
    """Whoever opens the next one at once gets smaller ones: streams of 10,000 decisions, five alarms at most."""
    rng = np.random.default_rng(73)
    ever = 0
    for _ in range(STREAMS // 2):
        decisions = audited((rng.random(2 * LENGTH) < ALPHA + TOLERANCE).astype(float), P, rng)
        ever += as_a_gate().observe(decisions).raised_at is not None
        for number in range(2, 6):
            late = RiskAlarm.open(alpha=ALPHA, tolerance=TOLERANCE, delta=chance_of(GATE.alarm_delta, number))
            ever += late.observe(audited(_edge_zero_one(rng), P, rng)).raised_at is not None
    print(f"{ever} false alarms in {STREAMS // 2} gates")
    # Each gate's expected number of false alarms is at most alarm_delta; a sum of Bernoullis, bounded as a binomial.
    assert ever <= most_violations(5 * STREAMS // 2, GATE.alarm_delta / 5)


def test_a_gates_alarm_after_a_jump_early_and_late():
    """From alpha to twice alpha at once and after 4,000 quiet decisions; -rP prints the medians."""
    rng = np.random.default_rng(79)
    for quiet, after, most in ((0, 4000, 700), (4000, 6000, 2000)):
        found, early = [], 0
        for _ in range(200):
            losses = np.concatenate([severities(ALPHA, quiet, rng), severities(2 * ALPHA, after, rng)])
            raised = as_a_gate().observe(audited(losses, P, rng)).raised_at or NEVER
            early += raised <= quiet
            found.append(raised - quiet)
        median = float(np.median(found))
        print(f"after {quiet}: {median:.0f} decisions, {median * P:.0f} labels; {early} of 200 raised before")
        assert median < most
        assert early <= most_violations(200, FIRST)


def test_right_probabilities_raise_the_draw_alarm_no_more_often_than_promised():
    rng = np.random.default_rng(59)
    raised = 0
    for _ in range(STREAMS):
        probability = rng.uniform(0.01, 0.5, 3000)
        raised += (
            DrawAlarm.open(delta=DELTA).observe(audited(np.zeros(3000), probability, rng)).raised_at
            is not None
        )
    assert raised <= BOUND


def test_a_wrong_probability_is_found_in_a_thousand_decisions():
    rng = np.random.default_rng(61)
    found = []
    for _ in range(100):
        sampled = rng.random(5000) < P / 2
        decisions = AuditedDecisions.of(probability=P, sampled=sampled, labelled=sampled, loss=np.zeros(5000))
        found.append(DrawAlarm.open(delta=DELTA).observe(decisions).raised_at or NEVER)
    print(f"half the logged draws: {np.median(found):.0f} decisions")
    assert np.median(found) < 1000


def _smooth(size: int, rng: np.random.Generator) -> np.ndarray:
    return rng.beta(8, 2, size)


def _few_levels(size: int, rng: np.random.Generator) -> np.ndarray:
    return np.round(4 * rng.beta(8, 2, size)) / 4


@pytest.mark.parametrize("numbers", [_smooth, _few_levels])
@pytest.mark.parametrize("reference", [20, 200])
def test_numbers_that_do_not_move_raise_the_drift_alarm_no_more_often_than_promised(numbers, reference):
    rng = np.random.default_rng([67, reference])
    raised = 0
    for _ in range(STREAMS):
        alarm = DriftAlarm.open(numbers(reference, rng), delta=DELTA, bins=32)
        raised += alarm.observe(numbers(2000, rng), rng.random(2000)).raised_at is not None
    print(f"{numbers.__name__}, {reference} references: {raised} of {STREAMS} raised")
    assert raised <= BOUND


def test_control_ranks_against_calibration_alone():
    """The same bets on p-values that all share one calibration sample: it is found out, and nothing had moved."""
    rng = np.random.default_rng(71)
    raised = 0
    for _ in range(200):
        reference, values = np.sort(rng.random(100)), rng.random(10_000)
        p_values = (np.searchsorted(reference, values) + rng.random(values.size)) / 101
        factors = 1 + np.multiply.outer(2 * p_values - 1, np.array([-0.9, -0.5, -0.25, 0.25, 0.5, 0.9]))
        bets = RestartedBets.open(6, delta=DELTA, restart_every=500).after(factors)
        raised += bets.raised_at is not None
    print(f"ranks against calibration alone: {raised} of 200 raised")
    assert raised > most_violations(200, DELTA)


@pytest.mark.parametrize(
    ("quiet", "shift", "spread", "most"), [(0, -1.0, 1.0, 60), (2000, -1.0, 1.0, 150), (2000, 0.0, 2.0, 250)]
)
def test_a_shift_is_seen_soon(quiet, shift, spread, most):
    """In standard deviations, with 500 references; -rP prints the median delay."""
    rng = np.random.default_rng([73, quiet, int(spread)])
    found = []
    for _ in range(60):
        alarm = DriftAlarm.open(rng.normal(size=500), delta=DELTA)
        values = np.concatenate([rng.normal(size=quiet), rng.normal(shift, spread, 1500)])
        found.append((alarm.observe(values, rng.random(values.size)).raised_at or NEVER) - quiet)
    print(f"shift {shift}, spread {spread}, after {quiet}: {np.median(found):.0f} decisions")
    assert np.median(found) <= most
