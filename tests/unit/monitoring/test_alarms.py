import json
import math
from bisect import bisect_left
from dataclasses import asdict

import numpy as np
import pytest

from streamer.risk.states import AuditedDecisions, DrawAlarm, DriftAlarm, RestartedBets, RiskAlarm
from streamer.risk.states.drift import _factors
from tests.unit.monitoring.streams import audited, severities


def test_one_number_a_bet_is_the_sum_over_all_restarts():
    rng = np.random.default_rng(1)
    factors = rng.uniform(0.7, 1.35, (100, 3))
    bets = RestartedBets.open(3, delta=1e-300, restart_every=8).after(factors)
    starts = range(0, 100, 8)
    written_out = np.mean(
        [
            sum(6 / (math.pi * (k + 1)) ** 2 * factors[start:, bet].prod() for k, start in enumerate(starts))
            for bet in range(3)
        ]
    )
    assert bets.evidence == pytest.approx(written_out, rel=1e-12)


def test_it_is_raised_at_the_first_decision_that_reaches_one_over_delta_and_then_reads_no_more():
    bets = RestartedBets.open(1, delta=0.1, restart_every=500)
    raised = bets.after(np.full((50, 1), 2.0))
    assert raised.raised_at == raised.seen == 5  # 6/pi^2 2^5 > 10 > 6/pi^2 2^4
    assert raised.after(np.full((50, 1), 2.0)) == raised


def test_factors_that_pass_the_largest_float_still_raise_and_still_go_into_json():
    bets = RestartedBets.open(2, delta=1e-9, restart_every=500).after(np.full((3, 2), 1e200))
    assert bets.raised_at == 1
    endless = RestartedBets.open(2, delta=1e-300, restart_every=500).after(np.full((3, 2), 1e290))
    assert endless.raised_at == 2
    assert json.loads(json.dumps(asdict(endless), allow_nan=False))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"alpha": 1.0}, "alpha"),
        ({"delta": 0.0}, "delta"),
        ({"tolerance": -0.01}, "tolerance"),
        ({"tolerance": 0.95}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"false_every": 0}, "false_every"),
    ],
)
def test_an_alarm_that_cannot_be_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        RiskAlarm.open(**{"alpha": 0.05, "delta": 0.1, **change})


def test_a_tolerance_is_chosen_for_every_budget():
    for alpha in (1e-6, 0.05, 0.5, 0.9, 0.999999):
        assert alpha < RiskAlarm.open(alpha=alpha, delta=0.1).theta < 1


def test_draws_at_another_rate_than_logged_are_found():
    rng = np.random.default_rng(7)
    losses = severities(0.05, 20_000, rng)
    for logged, drawn in ((0.2, 0.1), (0.2, 0.4), (0.05, 0.03)):
        sampled = rng.random(losses.size) < drawn
        decisions = AuditedDecisions.of(
            probability=logged, sampled=sampled, labelled=sampled, loss=np.where(sampled, losses, 0.0)
        )
        assert DrawAlarm.open(delta=0.001).observe(decisions).raised_at is not None


def test_probabilities_of_one_bring_no_evidence():
    decisions = audited(np.zeros(100), 1.0, np.random.default_rng(0))
    assert DrawAlarm.open(delta=0.1).observe(decisions).evidence == pytest.approx(6 / math.pi**2)


def test_ranks_count_ties_and_the_number_itself():
    reference = np.repeat([0.0, 1.0, 2.0, 3.0], 10)
    alarm = DriftAlarm.open(reference, delta=0.1, bins=4)
    assert alarm.edges == (1.0, 2.0, 3.0)
    assert alarm.counts == (10, 5, 5, 0)  # numbers up to 1, up to 2, up to 3, above: twenty are ranked
    after = alarm.observe([2.0], [0.5])
    p = (10 + 0.5 * 6) / 21
    strengths = [(2 * p - 1) * a for a in (-0.9, -0.5, -0.25, 0.25, 0.5, 0.9)]
    strengths += [(6 * p * p - 6 * p + 1) * b for b in (-0.9, -0.45, 0.45, 0.9)]
    assert after.counts == (10, 6, 5, 0)
    assert after.evidence == pytest.approx(6 / math.pi**2 * (1 + np.mean(strengths)))


def test_numbers_that_are_all_the_same_never_alarm():
    alarm = DriftAlarm.open(np.ones(50), delta=0.1)
    assert len(alarm.edges) == 1
    assert alarm.observe(np.ones(3000), np.random.default_rng(8).random(3000)).raised_at is None


@pytest.mark.parametrize(
    ("values", "uniforms", "why"),
    [
        ([math.nan], [0.5], "values must be finite"),
        ([math.inf], [0.5], "values must be finite"),
        ([0.5], [1.5], "uniforms must lie"),
        ([0.5], [math.nan], "uniforms holds NaN"),
        ([0.5, 0.5], [0.5], "2 rows"),
        ([[0.5]], [0.5], "column"),
        (["a"], [0.5], "column"),
    ],
)
def test_numbers_that_cannot_be_ranked_are_refused(values, uniforms, why):
    alarm = DriftAlarm.open(np.arange(40), delta=0.1)
    with pytest.raises(ValueError, match=why):
        alarm.observe(values, uniforms)


@pytest.mark.parametrize(
    ("reference", "change", "why"),
    [
        (np.arange(19), {}, "at least 20"),
        (np.full(40, np.nan), {}, "finite"),
        (np.arange(40), {"bins": 1}, "bins"),
        (np.arange(40), {"delta": 2.0}, "delta"),
    ],
)
def test_a_drift_alarm_that_cannot_be_is_refused(reference, change, why):
    with pytest.raises(ValueError, match=why):
        DriftAlarm.open(reference, **{"delta": 0.1, **change})


def one_by_one(alarm: DriftAlarm, values: np.ndarray, uniforms: np.ndarray) -> DriftAlarm:
    """The formula as it stands: each number among all before it."""
    counts, bets = list(alarm.counts), alarm.bets
    for value, uniform in zip(values.tolist(), uniforms.tolist(), strict=True):
        if bets.raised_at is not None:
            break
        place = bisect_left(alarm.edges, value)
        counts[place] += 1
        p_value = (sum(counts[:place]) + uniform * counts[place]) / sum(counts)
        bets = bets.after(_factors(np.array([p_value])))
    return DriftAlarm(edges=alarm.edges, counts=tuple(counts), bets=bets)


@pytest.mark.parametrize("shift", [0.0, 0.2])
@pytest.mark.parametrize("ties", [False, True])
def test_a_page_at_once_is_its_numbers_one_by_one(shift: float, ties: bool) -> None:
    raised = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        numbers = rng.integers(0, 9, 900) / 9 if ties else rng.random(900)
        reference, values = numbers[:200], numbers[200:] + shift
        uniforms = rng.random(values.size)
        alarm = DriftAlarm.open(reference, delta=0.05, bins=int(rng.choice([2, 64, 300])))
        cut = int(rng.integers(0, values.size))
        found = alarm.observe(values[:cut], uniforms[:cut]).observe(values[cut:], uniforms[cut:])
        assert found.to_json() == one_by_one(alarm, values, uniforms).to_json()
        raised += found.raised_at is not None
    assert (raised > 0) == (shift > 0)
