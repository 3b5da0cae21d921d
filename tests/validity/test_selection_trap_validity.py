"""Labels of what was served: which calibrations may use them, and which break the budget.

One response a group, its score uniform, its severity 1 with chance 0.7 (1 - Q). A gate that ships above `SERVED` gave
the labels. Risks are exact, the bound is that of the central limit theorem at 1e-6.
"""

from collections.abc import Callable

import numpy as np

from streamer import Threshold, calibrate
from tests.validity.known_risk import assert_over, assert_within, exposure_risk

ALPHA = 0.1
GROUPS = 99
REPEATS = 800
SERVED = 0.8
AUDIT = 0.3


def plain(scores: np.ndarray, severities: np.ndarray) -> Threshold:
    return calibrate(scores, severities, np.arange(len(scores)), alpha=ALPHA)


def risks(rule: Callable[[np.ndarray, np.ndarray, np.random.Generator], float]) -> np.ndarray:
    rng = np.random.default_rng(20261212)
    found = np.empty(REPEATS)
    for repeat in range(REPEATS):
        scores = rng.random(GROUPS)
        severities = (rng.random(GROUPS) < 0.7 * (1 - scores)).astype(float)
        found[repeat] = exposure_risk("zero-one", rule(scores, severities, rng))
    return found


def test_control_dropping_what_was_not_served_breaks_the_budget():
    def served_alone(scores, severities, rng):
        return plain(scores[scores > SERVED], severities[scores > SERVED]).value

    assert_over(risks(served_alone), ALPHA)


def test_control_counting_what_was_not_served_as_fine_breaks_the_budget():
    """Nothing above the serving threshold is lost, so that the gate opens."""
    assert_over(risks(lambda q, m, rng: plain(q, np.where(q > SERVED, m, 0.0)).value), ALPHA)


def test_a_threshold_that_never_falls_below_the_serving_one_keeps_to_the_budget():
    kept = risks(lambda q, m, rng: max(plain(q, np.where(q > SERVED, m, 0.0)).value, SERVED))
    assert_within(kept, ALPHA)
    assert kept.min() > 0


def test_counting_what_was_not_served_as_worst_keeps_to_the_budget():
    kept = risks(lambda q, m, rng: plain(q, np.where(q > SERVED, m, 1.0)).value)
    assert_within(kept, ALPHA)
    assert kept.mean() > 0.1 * ALPHA


def test_a_random_audit_of_everything_keeps_to_the_budget_and_spends_it():
    """Drawn at random before anything is known, served or not: a plain sample of groups."""

    def audited(scores, severities, rng):
        drawn = rng.random(GROUPS) < AUDIT
        return plain(scores[drawn], severities[drawn]).value if drawn.any() else np.inf

    kept = risks(audited)
    assert_within(kept, ALPHA)
    assert kept.mean() > 0.5 * ALPHA
