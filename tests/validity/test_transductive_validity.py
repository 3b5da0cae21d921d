"""Does the risk of thresholds that are found batch by batch keep to the budget? Against the CLT bound at 1e-6.

A repetition calibrates on `groups` groups and measures `FRESH` batches of the same world; repetitions are independent.
"""

import functools

import numpy as np
import pytest

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import TransductiveRule, prepare_transductive
from tests.validity.known_risk import assert_over, assert_within, repeats

REPEATS = repeats(700, part=2)
FRESH = 12
WORLDS = ("spread", "all-bad", "fractions")
_NAMES = tuple(f"r{i:03d}" for i in range(100))


def draw(world: str, count: int, rng: np.random.Generator) -> list[LabelledGroup]:
    """Draw groups.

    spread : 2 to 9 items whose severities hang together, score levels of a tenth.
    all-bad : 100 items, every one of severity 1: risk is what ships.
    fractions : 6 items, severities between 0 and 1, capped by 1 - score / 2.
    """
    groups = []
    for g in range(count):
        if world == "all-bad":
            scores, severities = rng.random(100), np.ones(100)
        elif world == "spread":
            size = int(rng.integers(2, 10))
            quality = rng.random()
            scores = np.round(0.6 * quality + 0.4 * rng.random(size), 1)
            severities = (rng.random(size) > 0.2 + 0.75 * quality).astype(float)
        else:
            scores = rng.random(6)
            severities = (1 - scores / 2) * rng.random(6) ** 2
        groups.append(LabelledGroup(f"g{g:03d}", _NAMES[: len(scores)], scores, severities))
    return groups


def some_items(group: LabelledGroup, k: int, rng: np.random.Generator) -> LabelledGroup:
    drawn = rng.permutation(len(group.item_ids))[:k]
    names = tuple(group.item_ids[i] for i in drawn)
    return LabelledGroup(group.id, names, group.scores[drawn], group.severities[drawn])


def exposure(group: LabelledGroup, threshold: float) -> float:
    return float(group.severities @ (group.scores > threshold)) / len(group.item_ids)


@functools.cache
def worlds(world: str, groups: int) -> list[tuple[list[LabelledGroup], list[LabelledGroup]]]:
    rng = np.random.default_rng([20261125, WORLDS.index(world), groups])
    return [(draw(world, groups, rng), draw(world, FRESH, rng)) for _ in range(REPEATS)]


def risks(world, groups, alpha, *, labelled=None, method="mean", capped=False, as_if_mean=False, points=None):
    """Return the mean exposure of each repetition's fresh batches, and how much ships in all."""
    rng = np.random.default_rng(20261126)
    per_repeat, shipped = np.empty(REPEATS), 0.0
    for repeat, (calibration, fresh) in enumerate(worlds(world, groups)):
        seen = [some_items(g, labelled, rng) for g in calibration] if labelled else calibration
        rule = prepare_transductive(seen, alpha=alpha, labelled=labelled, method=method, draws=1, seed=repeat)
        if as_if_mean:  # charge the batch by its mean although its weights are random
            rule = TransductiveRule(
                alpha=alpha, method="mean", groups=groups, labelled=None, levels=rule.levels,
                totals=rule.totals, guarantee="",
            )  # fmt: skip
        if points:
            rule = rule.compressed(points)
        lost = 0.0
        for batch in fresh:
            caps = (1 - batch.scores / 2).tolist() if capped else None
            level = rule.threshold_for(batch.scores.tolist(), caps)
            lost += exposure(batch, level)
            shipped += float((batch.scores > level).mean())
        per_repeat[repeat] = lost / FRESH
    return per_repeat, shipped / FRESH / REPEATS


@pytest.mark.parametrize(("groups", "alpha"), [(8, 0.1), (20, 0.0524), (40, 0.1)])
@pytest.mark.parametrize("world", WORLDS)
def test_risk_keeps_to_the_budget(world, groups, alpha):
    per_repeat, _ = risks(world, groups, alpha)
    assert_within(per_repeat, alpha)
    assert per_repeat.mean() > 0.4 * alpha, "a bound that nothing presses on would prove nothing"


def test_caps_keep_to_the_budget_and_ship_more():
    without, shipped = risks("fractions", 20, 0.0524)
    capped, shipped_capped = risks("fractions", 20, 0.0524, capped=True)
    assert_within(capped, 0.0524)
    assert shipped_capped > shipped
    assert capped.mean() > without.mean()


@pytest.mark.parametrize(
    ("world", "method"), [("spread", "crc"), ("spread", "bb"), ("spread", "rbwa"), ("all-bad", "bb")]
)
def test_random_weights_keep_to_the_budget_when_the_worst_response_is_charged(world, method):
    assert_within(risks(world, 20, 0.0524, method=method)[0], 0.0524)


@pytest.mark.parametrize("labelled", [1, 3])
@pytest.mark.parametrize("world", ["spread", "all-bad"])
def test_partial_labels_keep_to_the_budget_when_the_worst_draw_is_charged(world, labelled):
    assert_within(risks(world, 20, 0.0524, labelled=labelled)[0], 0.0524)


def test_a_compressed_curve_keeps_to_the_budget():
    full, shipped = risks("spread", 40, 0.1)
    small, shipped_small = risks("spread", 40, 0.1, points=4)
    assert_within(small, 0.1)
    assert 0.5 * shipped < shipped_small <= shipped
    assert small.mean() <= full.mean()


def test_control_random_weights_with_the_charge_of_the_mean_law_break_the_budget():
    """One draw of 100 responses, 20 groups, alpha .0524: the risk is about .074."""
    per_repeat, _ = risks("all-bad", 20, 0.0524, method="bb", as_if_mean=True)
    assert_over(per_repeat, 0.0524)


def test_control_one_threshold_kept_for_other_batches_breaks_the_budget():
    """lambda_T of a batch whose low scores bought a low threshold, served to a batch of the population."""
    alpha, groups = 0.05, 8
    rng = np.random.default_rng(20261127)
    kept = np.empty(3 * REPEATS)
    for repeat in range(len(kept)):
        rule = prepare_transductive(draw("all-bad", groups, rng), alpha=alpha, seed=0)
        first, other = rng.random(100) / 2, rng.random(100)
        kept[repeat] = (other > rule.threshold_for(first.tolist())).mean()
    assert_over(kept, alpha)


def test_small_calibrations_ship_where_plain_calibration_cannot():
    """20 groups and alpha .04: plain calibration needs 24."""
    _, shipped = risks("spread", 20, 0.04)
    assert calibrate_groups(worlds("spread", 20)[0][0], alpha=0.04, seed=0).state == "closed"
    assert shipped > 0.05
