"""How often do the alarms of monitoring cry wolf, and how long do they take when there is one? Seeded streams."""

import numpy as np
import pytest

from streamer.gates.settings import GateSettings
from streamer.risk.rounds.alarm_terms import chance_of
from streamer.risk.states import AuditedDecisions, DrawAlarm, DriftAlarm, RestartedBets, RiskAlarm
from tests.unit.monitoring.streams import audited, severities
from tests.validity.known_risk import most_violations

ALPHA, DELTA, P = 0.05, 0.1, 0.2
STREAMS, LENGTH = 400, 5000
BOUND = most_violations(STREAMS, DELTA)
TOLERANCE = 0.01
NEVER = 10**9


def test_control_an_estimate_above_the_budget():
    """In a stable stream with risk alpha the estimate is above alpha at one time or another, after 500 decisions."""
    rng = np.random.default_rng(43)
    above = 0
    for _ in range(STREAMS):
        decisions = audited(severities(ALPHA, LENGTH, rng), P, rng)
        estimates = np.cumsum(decisions.weight * decisions.loss) / np.arange(1, LENGTH + 1)
        above += bool((estimates[500:] > ALPHA).any())
    print(f"estimate above alpha: {above} of {STREAMS}")
    assert above > BOUND


# What a gate is given unless it says otherwise: alarm_delta .05, of which the first alarm may spend 6/pi^2, alarm_tolerance
# .2, and one false alarm more in 100,000 draws.
GATE = GateSettings(encoder="any", alpha=ALPHA)


def as_a_gate(number: int = 1) -> RiskAlarm:
    return RiskAlarm.open(
        alpha=ALPHA,
        tolerance=GATE.alarm_tolerance * ALPHA,
        delta=chance_of(GATE.alarm_delta, number),
        false_every=GATE.alarm_false_every,
    )


def raised_at(alarm: RiskAlarm, losses: np.ndarray) -> int | None:
    """The draw at which these losses raise it."""
    return alarm.observe(alarm.draw(n, float(loss)) for n, loss in enumerate(losses)).raised_at


@pytest.mark.parametrize("stream", ["severities", "zero or one", "up and down"])
def test_a_gates_first_alarm_in_a_stable_stream(stream):
    """400 streams of 1,000 draws at the edge, with the settings that gates are given."""
    rng = np.random.default_rng(71)
    draws, theta = int(P * LENGTH), ALPHA + TOLERANCE
    raised = 0
    for _ in range(STREAMS):
        if stream == "severities":
            losses = severities(theta, draws, rng)
        else:
            on = 1 if stream == "zero or one" else np.arange(draws) % 200 < 100
            losses = (rng.random(draws) < theta * on).astype(float)
        raised += raised_at(as_a_gate(), losses) is not None
    allowed = most_violations(STREAMS, as_a_gate().bets.chance(draws))
    print(f"{stream}: {raised} of {STREAMS} raised, {allowed} allowed")
    assert raised <= allowed


def test_a_gates_alarms_one_after_the_other_keep_to_delta_and_one_in_so_many_draws():
    """Whoever opens the next one at once gets smaller ones: five alarms at most, of 400 draws each, in 200 gates."""
    rng = np.random.default_rng(73)
    gates, draws, alarms = 200, 400, 5
    ever = sum(
        raised_at(as_a_gate(number), (rng.random(draws) < ALPHA + TOLERANCE).astype(float)) is not None
        for _ in range(gates)
        for number in range(1, alarms + 1)
    )
    promised = GATE.alarm_delta + alarms * draws / GATE.alarm_false_every
    print(f"{ever} false alarms in {gates} gates, {promised:.3f} a gate promised")
    # A sum of Bernoullis with this mean, bounded as a binomial.
    assert ever <= most_violations(alarms * gates, promised / alarms)


def test_a_gates_alarm_after_a_jump_early_and_late():
    """From alpha to three times alpha at once and after 800 quiet draws: about as soon; -rP prints the medians."""
    rng = np.random.default_rng(79)
    medians = []
    for quiet in (0, 800):
        found = []
        for _ in range(100):
            losses = np.concatenate([severities(ALPHA, quiet, rng), severities(3 * ALPHA, 600, rng)])
            found.append((raised_at(as_a_gate(), losses) or NEVER) - quiet)
        medians.append(float(np.median(found)))
        print(f"after {quiet} draws: {medians[-1]:.0f} draws")
    assert medians[1] < 2 * medians[0]
    assert medians[0] < 120


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
