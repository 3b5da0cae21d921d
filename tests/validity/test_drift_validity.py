"""Weights by age when severity rises over time, whatever the score: exact risks, the CLT bound at 1e-6."""

import functools

import numpy as np
import pytest

from streamer.calibration import calibrate_by_age
from streamer.calibration.calibrators.age import age_weights
from tests.validity.known_risk import assert_over, assert_within, single, uniform_share

ALPHA = 0.1
COUNT = 150
CHANCES = np.linspace(0.2, 0.5, COUNT + 1)  # the last one is the fresh group's
AGES = {f"g{g:03d}": float(COUNT - g) for g in range(COUNT)}


@functools.cache
def drift_risks(drifting: bool, rho: float, repeats: int = 700) -> np.ndarray:
    chances = CHANCES if drifting else np.full(COUNT + 1, 0.4)
    rng = np.random.default_rng([20261128, int(1000 * rho)])
    risks = np.empty(repeats)
    for repeat in range(repeats):
        bad = rng.random(COUNT) < chances[:-1]
        groups = [single(name, rng.random(), bad[g]) for g, name in enumerate(AGES)]
        found = calibrate_by_age(groups, alpha=ALPHA, ages=AGES, rho=rho)
        risks[repeat] = chances[-1] * uniform_share(found)
    return risks


@pytest.mark.parametrize("rho", [1.0, 0.99, 0.95])
def test_drift_costs_no_more_than_the_term_that_the_bound_names(rho):
    """Exchanging two independent groups moves the data by |p_g - p| in total variation here."""
    weights = age_weights(list(AGES.values()), rho)
    term = float(weights @ np.abs(CHANCES[:-1] - CHANCES[-1]) / (1 + weights.sum()))
    assert_within(drift_risks(True, rho), ALPHA + term)


def test_fading_weights_cost_less_under_drift_and_nothing_without():
    even, faded = drift_risks(True, 1.0), drift_risks(True, 0.95)
    assert_over(even, ALPHA)
    assert_over(even - faded, 0.0)
    assert_within(drift_risks(False, 0.95), ALPHA)


def test_control_weights_that_follow_labels_break_the_budget():
    rng = np.random.default_rng(20261129)
    risks = np.empty(200)
    for repeat in range(len(risks)):
        bad = rng.random(COUNT) < 0.4
        groups = [single(name, rng.random(), bad[g]) for g, name in enumerate(AGES)]
        ages = {group.id: 20.0 * float(group.severities[0]) for group in groups}
        risks[repeat] = 0.4 * uniform_share(calibrate_by_age(groups, alpha=ALPHA, ages=ages, rho=0.95))
    assert_over(risks, ALPHA)
