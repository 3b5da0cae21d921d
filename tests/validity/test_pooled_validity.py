"""Risk for each response: half the groups have one response, the others 1 to 12, and the large ones are worse."""

import numpy as np

from streamer import LabelledGroup, Threshold, calibrate_groups
from streamer.calibration import calibrate_pooled
from tests.validity.known_risk import assert_over, assert_within

ALPHA = 0.1
NAMES = tuple(f"r{i:02d}" for i in range(12))


def responses(count: int, rng: np.random.Generator) -> list[LabelledGroup]:
    groups = []
    for g in range(count):
        size = int(rng.integers(1, 13)) if rng.random() < 0.5 else 1
        scores = np.round(0.5 * rng.random() + 0.5 * rng.random(size), 2)
        severities = (rng.random(size) < 0.9 * size / 12 * (1.1 - scores)).astype(float)
        groups.append(LabelledGroup(f"g{g:03d}", NAMES[:size], scores, severities))
    return groups


def excess(groups: list[LabelledGroup], threshold: Threshold) -> float:
    """The mean of sum_i (m 1{Q > lambda} - alpha): at most 0 on average is what the bound says."""
    return float(
        np.mean([g.severities @ (g.scores > threshold.value) - ALPHA * len(g.scores) for g in groups])
    )


def test_risk_for_each_response_keeps_to_the_budget_and_risk_by_groups_does_not():
    rng = np.random.default_rng(20261201)
    by_response, by_group = np.empty(800), np.empty(800)
    for repeat in range(800):
        groups, fresh = responses(60, rng), responses(30, rng)
        by_response[repeat] = excess(fresh, calibrate_pooled(groups, alpha=ALPHA, largest_group=12))
        by_group[repeat] = excess(fresh, calibrate_groups(groups, alpha=ALPHA, seed=0))
    assert_within(by_response, 0.0)
    assert by_response.mean() > -0.5 * ALPHA * 3.75, "a bound that nothing presses on would prove nothing"
    assert_over(by_group, 0.0)
