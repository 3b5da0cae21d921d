"""Thresholds of single batches against their definition, in exact arithmetic, and the compressed curve."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import prepare_transductive
from tests.unit.calibration.named_groups import shuffled, some_groups

EIGHTHS = st.integers(0, 8).map(lambda k: Fraction(k, 8))


def largest_charge(shipped: list[Fraction], count: int, labelled: int | None, method: str) -> Fraction:
    """The largest loss that the weighting scheme can give to a batch of `count`, by going through its draws."""
    if method == "mean" and labelled is None:
        return sum(shipped, Fraction(0)) / count
    most = 1 if method != "mean" else min(labelled, count)
    padded = shipped + [Fraction(0)] * (count - len(shipped))
    return max(sum(drawn, Fraction(0)) / most for drawn in itertools.combinations(padded, most))


def by_definition(groups, batch, caps, alpha, labelled=None, method="mean"):
    """lambda_T = min{ l : S(l) + c(l) <= alpha (G + 1) } over -inf and all scores, word for word."""
    levels = {-math.inf, *batch, *(q for group in groups for q, _ in group)}
    admissible = []
    for level in levels:
        lost = sum(
            (sum((m for q, m in group if q > level), Fraction(0)) / len(group) for group in groups),
            Fraction(0),
        )
        shipped = [u for q, u in zip(batch, caps, strict=True) if q > level]
        if lost + largest_charge(shipped, len(batch), labelled, method) <= alpha * (len(groups) + 1):
            admissible.append(level)
    return float(min(admissible))


@st.composite
def cases(draw: st.DrawFn):
    most = draw(st.integers(1, 4))
    items = st.lists(st.tuples(EIGHTHS, EIGHTHS), min_size=1, max_size=most)
    groups = draw(st.lists(items, min_size=1, max_size=12))
    batch = draw(st.lists(EIGHTHS, min_size=1, max_size=7))
    caps = [draw(EIGHTHS) for _ in batch] if draw(st.booleans()) else None
    alpha = Fraction(draw(st.integers(1, 8 * len(groups) + 7)), 8 * len(groups) + 8)
    labelled = draw(st.sampled_from([None, most, 5]))
    return groups, batch, caps, alpha, labelled


def named(groups) -> list[LabelledGroup]:
    return [
        LabelledGroup(
            f"g{g}",
            tuple(f"r{i}" for i in range(len(group))),
            np.array([float(q) for q, _ in group]),
            np.array([float(m) for _, m in group]),
        )
        for g, group in enumerate(groups)
    ]


@settings(max_examples=400, deadline=None)
@given(case=cases())
def test_agrees_with_the_definition(case):
    groups, batch, caps, alpha, labelled = case
    rule = prepare_transductive(named(groups), alpha=float(alpha), labelled=labelled, seed=0)
    found = rule.threshold_for([float(q) for q in batch], None if caps is None else [float(u) for u in caps])
    assert found == by_definition(groups, batch, caps or [Fraction(1)] * len(batch), alpha, labelled)


@settings(max_examples=200, deadline=None)
@given(case=cases(), method=st.sampled_from(["crc", "bb", "rbwa"]))
def test_where_one_response_may_get_all_the_weight_the_worst_one_is_charged(case, method):
    """With one item a group all schemes weigh alike, so that the definition can be followed exactly."""
    groups, batch, caps, alpha, _ = case
    single = [group[:1] for group in groups]
    rule = prepare_transductive(named(single), alpha=float(alpha), method=method, draws=3, seed=0)
    alpha = Fraction(float(alpha)).limit_denominator(10_000)
    found = rule.threshold_for([float(q) for q in batch], caps and [float(u) for u in caps])
    assert found == by_definition(single, batch, caps or [Fraction(1)] * len(batch), alpha, None, method)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    alpha=st.floats(0.01, 0.6),
    batch=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    method=st.sampled_from(["mean", "crc", "bb", "rbwa"]),
)
def test_ships_at_least_what_plain_calibration_ships_and_just_that_for_one_score(
    seed, count, alpha, batch, method
):
    groups = some_groups(np.random.default_rng(seed), count, levels=1000)
    rule = prepare_transductive(groups, alpha=alpha, method=method, seed=3)
    plain = calibrate_groups(groups, alpha=alpha, method=method, seed=3).value
    assert rule.threshold_for(batch) <= max(plain, max(batch))
    assert [q > rule.threshold_for([q]) for q in batch] == [q > plain for q in batch]
    if method != "mean":
        found = rule.threshold_for(batch)
        assert [q > found for q in batch] == [q > plain for q in batch]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(100, 300),
    alpha=st.floats(0.001, 0.02),
    points=st.integers(2, 12),
    batch=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_the_compressed_curve_lies_above_and_never_ships_more(seed, count, alpha, points, batch):
    groups = [
        LabelledGroup(group.id, group.item_ids, group.scores, group.severities / 32)
        for group in some_groups(np.random.default_rng(seed), count, levels=10**6)
    ]
    exact = prepare_transductive(groups, alpha=alpha, seed=0)
    small = exact.compressed(points)
    assert len(small.levels) <= max(points, 2)
    assert set(small.levels) <= set(exact.levels)
    for level in exact.levels:
        above = small.totals[np.searchsorted(small.levels, level, side="right") - 1]
        true = exact.totals[np.searchsorted(exact.levels, level, side="right") - 1]
        assert true <= above <= true + 1 / (points - 1) + 1e-9 or level == exact.levels[-1]
    scores, caps = [q for q, _ in batch], [u for _, u in batch]
    assert small.threshold_for(scores) >= exact.threshold_for(scores)
    assert small.threshold_for(scores, caps) >= exact.threshold_for(scores, caps)


def test_lower_caps_never_ship_less():
    rng = np.random.default_rng(3)
    rule = prepare_transductive(some_groups(rng, 40, levels=1000), alpha=0.12, seed=0)
    for _ in range(300):
        scores, caps = rng.random(8).tolist(), np.sort(rng.random((2, 8)), axis=0)
        low, high = (rule.threshold_for(scores, u.tolist()) for u in caps)
        assert low <= high <= rule.threshold_for(scores)
        assert rule.threshold_for(scores, [0.0] * 8) == rule.levels[0] or rule.levels[0] < min(scores)


def test_the_order_of_groups_and_responses_changes_nothing():
    rng = np.random.default_rng(5)
    groups = some_groups(rng, 50)
    rule = prepare_transductive(groups, alpha=0.1, method="rbwa", seed=2)
    assert prepare_transductive(shuffled(groups, rng), alpha=0.1, method="rbwa", seed=2) == rule
    scores = rng.integers(0, 5, 9) / 4
    for _ in range(5):
        assert rule.threshold_for(rng.permutation(scores).tolist()) == rule.threshold_for(scores.tolist())


def test_no_calibration_groups_leave_what_the_batch_itself_allows():
    rule = prepare_transductive([], alpha=0.3, seed=0)
    assert rule.threshold_for([0.9, 0.8, 0.7, 0.6]) == 0.8  # one of four is a quarter
    assert rule.threshold_for([0.9]) == 0.9
    assert rule.threshold_for([0.9], [0.2]) == -math.inf


@pytest.mark.parametrize(
    ("scores", "caps", "message"),
    [
        ([], None, "without responses"),
        ([0.5, math.nan], None, "scores must lie in"),
        ([1.5], None, "scores must lie in"),
        ([0.5], [0.5, 0.5], "1 scores and 2 caps"),
        ([0.5], [1.5], "caps must lie in"),
        ([0.5], [math.nan], "caps must lie in"),
    ],
)
def test_wrong_batches_are_named(scores, caps, message):
    rule = prepare_transductive(some_groups(np.random.default_rng(0), 9), alpha=0.3, seed=0)
    with pytest.raises(ValueError, match=message):
        rule.threshold_for(scores, caps)


def test_wrong_arguments_are_named():
    groups = some_groups(np.random.default_rng(0), 9)
    with pytest.raises(ValueError, match="more than 1"):
        prepare_transductive(groups, alpha=0.3, labelled=1, seed=0)
    with pytest.raises(ValueError, match="labelled must be a whole number"):
        prepare_transductive(groups, alpha=0.3, labelled=0, seed=0)
    with pytest.raises(ValueError, match="points must be a whole number of at least 2"):
        prepare_transductive(groups, alpha=0.3, seed=0).compressed(1)


def test_the_guarantee_claims_what_holds():
    groups = some_groups(np.random.default_rng(0), 40, most=2)
    text = prepare_transductive(groups, alpha=0.1, labelled=2, seed=0).guarantee
    promised, _, disclaimed = text.partition("Not promised:")
    for piece in ("On average", "at most 10 %", "up to 2 of each", "40 calibration groups", "no other"):
        assert piece in promised
    assert "high probability" in disclaimed
    assert "seed" not in promised
    assert "seed" in prepare_transductive(groups, alpha=0.1, method="bb", seed=0).guarantee
