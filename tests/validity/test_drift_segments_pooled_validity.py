"""Weights by age, segments, and risk for each response: exact risks of seeded calibrations, the CLT bound at 1e-6."""

from __future__ import annotations

import numpy as np
import pytest

from streamer import LabelledGroup, Threshold, calibrate_groups
from streamer.calibration import calibrate_by_age, calibrate_pooled, calibrate_segments
from streamer.calibration.drift import age_weights
from tests.validity.known_risk import standard_error, z_bound

ALPHA = 0.1
NAMES = tuple(f"r{i:02d}" for i in range(12))


def assert_within(risks: np.ndarray, bound: float = ALPHA) -> None:
    assert risks.mean() <= bound + z_bound() * standard_error(risks)


def assert_over(risks: np.ndarray, bound: float = ALPHA) -> None:
    assert risks.mean() > bound + z_bound() * standard_error(risks)


def single(name: str, score: float, severity: float) -> LabelledGroup:
    return LabelledGroup(name, NAMES[:1], np.array([score]), np.array([severity]))


def shipped(threshold: Threshold) -> float:
    """P(Q > lambda) for a uniform score."""
    return 1 - min(1.0, max(0.0, threshold.value))


# ---- drift: severity is 1 with a chance that rises over time, whatever the score

COUNT = 150
CHANCES = np.linspace(0.2, 0.5, COUNT + 1)  # the last one is the fresh group's
AGES = {f"g{g:03d}": float(COUNT - g) for g in range(COUNT)}


def drift_risks(chances: np.ndarray, rho: float, repeats: int = 700) -> np.ndarray:
    rng = np.random.default_rng([20261128, int(1000 * rho)])
    risks = np.empty(repeats)
    for repeat in range(repeats):
        bad = rng.random(COUNT) < chances[:-1]
        groups = [single(name, rng.random(), bad[g]) for g, name in enumerate(AGES)]
        found = calibrate_by_age(groups, alpha=ALPHA, ages=AGES, rho=rho)
        risks[repeat] = chances[-1] * shipped(found)
    return risks


@pytest.mark.parametrize("rho", [1.0, 0.99, 0.95])
def test_drift_costs_no_more_than_the_term_that_the_bound_names(rho):
    """Exchanging two independent groups moves the data by |p_g - p| in total variation here."""
    weights = age_weights(list(AGES.values()), rho)
    term = float(weights @ np.abs(CHANCES[:-1] - CHANCES[-1]) / (1 + weights.sum()))
    assert_within(drift_risks(CHANCES, rho), ALPHA + term)


def test_fading_weights_cost_less_under_drift_and_nothing_without():
    even, faded = drift_risks(CHANCES, 1.0), drift_risks(CHANCES, 0.95)
    assert_over(even)
    assert faded.mean() + z_bound() * standard_error(faded) < even.mean()
    assert_within(drift_risks(np.full(COUNT + 1, 0.4), 0.95))


def test_control_weights_that_follow_labels_break_the_budget():
    rng = np.random.default_rng(20261129)
    risks = np.empty(200)
    for repeat in range(len(risks)):
        bad = rng.random(COUNT) < 0.4
        groups = [single(name, rng.random(), bad[g]) for g, name in enumerate(AGES)]
        ages = {group.id: 20.0 * float(group.severities[0]) for group in groups}
        risks[repeat] = 0.4 * shipped(calibrate_by_age(groups, alpha=ALPHA, ages=ages, rho=0.95))
    assert_over(risks)


# ---- segments: two kinds of prompt, of which one is hard

WORST = {"easy": 0.3, "hard": 0.9}


def segment_risk(kind: str, threshold: Threshold) -> float:
    """E[m 1{Q > lambda}] for a uniform score and a severity of 1 with chance WORST (1 - Q)."""
    return WORST[kind] / 2 * shipped(threshold) ** 2


def segment_runs(easy: int, hard: int, fallback: str, repeats: int = 700) -> dict[str, np.ndarray]:
    """Return each kind's risk, the risk of the traffic, and each kind's risk under the pooled threshold alone."""
    rng = np.random.default_rng([20261130, easy, hard])
    kinds = ["easy"] * easy + ["hard"] * hard
    of = {f"g{g:03d}": kind for g, kind in enumerate(kinds)}
    runs = {
        name: np.empty(repeats) for name in ("easy", "hard", "traffic", "hard, pooled", "traffic, pooled")
    }
    share = hard / len(kinds)
    for repeat in range(repeats):
        scores = rng.random(len(kinds))
        bad = rng.random(len(kinds)) < np.array([WORST[kind] for kind in kinds]) * (1 - scores)
        groups = [single(name, scores[g], bad[g]) for g, name in enumerate(of)]
        found = calibrate_segments(groups, segments=of, alpha=ALPHA, fallback=fallback, seed=0)
        pooled = calibrate_groups(groups, alpha=ALPHA, seed=0)
        for kind in WORST:
            runs[kind][repeat] = segment_risk(kind, found.threshold_for(kind))
        runs["traffic"][repeat] = (1 - share) * runs["easy"][repeat] + share * runs["hard"][repeat]
        runs["hard, pooled"][repeat] = segment_risk("hard", pooled)
        runs["traffic, pooled"][repeat] = (1 - share) * segment_risk("easy", pooled) + share * segment_risk(
            "hard", pooled
        )
    return runs


def test_each_segment_with_groups_enough_keeps_to_the_budget():
    runs = segment_runs(69, 29, "pooled")
    for name in ("easy", "hard", "traffic"):
        assert_within(runs[name])
        assert runs[name].mean() > 0.8 * ALPHA


def test_control_a_pooled_threshold_breaks_the_budget_of_the_hard_segment():
    runs = segment_runs(69, 29, "pooled")
    assert_over(runs["hard, pooled"])
    assert_within(runs["traffic, pooled"])


def test_the_pooled_fallback_bounds_neither_its_segment_nor_the_traffic_and_the_words_say_so():
    runs = segment_runs(69, 8, "pooled", repeats=2000)
    assert_within(runs["easy"])
    assert_over(runs["hard"])
    assert_over(runs["traffic"])


def test_the_closed_fallback_bounds_both():
    runs = segment_runs(69, 8, "closed")
    for name in ("easy", "hard", "traffic"):
        assert_within(runs[name])


# ---- pooled risk: half the groups have one response, the others 1 to 12, and the large ones are worse


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
