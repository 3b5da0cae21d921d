"""Thresholds by segment for two kinds of prompt, one of them hard: exact risks, the CLT bound at 1e-6."""

import functools

import numpy as np

from streamer import Threshold, calibrate_groups
from streamer.calibration import calibrate_segments
from tests.validity.known_risk import assert_over, assert_within, single, uniform_share

ALPHA = 0.1
WORST = {"easy": 0.3, "hard": 0.9}


def segment_risk(kind: str, threshold: Threshold) -> float:
    """E[m 1{Q > lambda}] for a uniform score and a severity of 1 with chance WORST (1 - Q)."""
    return WORST[kind] / 2 * uniform_share(threshold) ** 2


@functools.cache
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
        assert_within(runs[name], ALPHA)
        assert runs[name].mean() > 0.8 * ALPHA


def test_control_a_pooled_threshold_breaks_the_budget_of_the_hard_segment():
    runs = segment_runs(69, 29, "pooled")
    assert_over(runs["hard, pooled"], ALPHA)
    assert_within(runs["traffic, pooled"], ALPHA)


def test_the_pooled_fallback_bounds_neither_its_segment_nor_the_traffic_and_the_words_say_so():
    runs = segment_runs(69, 8, "pooled", repeats=2000)
    assert_within(runs["easy"], ALPHA)
    assert_over(runs["hard"], ALPHA)
    assert_over(runs["traffic"], ALPHA)


def test_the_closed_fallback_bounds_both():
    runs = segment_runs(69, 8, "closed")
    for name in ("easy", "hard", "traffic"):
        assert_within(runs[name], ALPHA)
