"""Soft gates: the shapes, the level to the last float, and the scores that quantiles and ranks are."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import calibrate_soft
from streamer.calibration.loss_curve import budget_limit
from streamer.calibration.shapes import FrozenQuantiles, Ramp, Smooth, rank_scores
from streamer.calibration.soft import _float_of, _rank
from tests.unit.calibration.named_groups import groups, some_groups

WIDTHS = st.sampled_from([1e-9, 1e-3, 0.05, 0.5, 3.0, 1e6])
GATES = st.one_of(WIDTHS.map(Smooth), WIDTHS.map(Ramp))


def share_by_definition(gate, score: float, level: float) -> float:
    if isinstance(gate, Ramp):
        return min(1.0, max(0.0, (score - level) / gate.width))
    return float(stats.logistic.cdf((score - level) / gate.tau))


def lost(labelled, gate, level: float) -> float:
    return math.fsum(
        m * share_by_definition(gate, q, level) / len(group.item_ids)
        for group in labelled
        for q, m in zip(group.scores.tolist(), group.severities.tolist(), strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(labelled=groups(most=30), alpha=st.floats(0.02, 0.6), gate=GATES)
def test_the_level_is_feasible_and_the_next_float_below_is_not(labelled, alpha, gate):
    found = calibrate_soft(labelled, alpha=alpha, gate=gate, seed=0)
    limit = budget_limit(alpha, len(labelled))
    whole = math.fsum(float(group.severities.sum()) / len(group.item_ids) for group in labelled)
    if limit < 0:
        assert found.level == math.inf
    elif whole <= limit * (1 - 1e-14):
        assert found.level == -math.inf
    elif found.state == "cut":
        rounding = 1e-13 * max(1.0, whole)
        assert lost(labelled, gate, found.level) <= limit + rounding
        below = np.nextafter(found.level, -np.inf)
        scores = np.concatenate([group.scores for group in labelled])
        losses = np.concatenate([group.severities / len(group.item_ids) for group in labelled])
        assert math.fsum(losses * gate.share(scores, float(below))) > limit - rounding


@settings(max_examples=100, deadline=None)
@given(
    gate=GATES,
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    levels=st.tuples(st.floats(-3, 4), st.floats(-3, 4)),
)
def test_shares_are_their_definition_and_never_rise_in_the_level(gate, scores, levels):
    low, high = sorted(levels)
    exact = np.array(scores)
    assert gate.share(exact, low) == pytest.approx(
        [share_by_definition(gate, score, low) for score in scores], rel=1e-9, abs=1e-300
    )
    assert (gate.share(exact, high) <= gate.share(exact, low) * (1 + 1e-15)).all()
    assert (gate.share(exact, -math.inf) == 1).all()
    assert (gate.share(exact, math.inf) == 0).all()


@settings(max_examples=100, deadline=None)
@given(gate=GATES, score=st.floats(0, 1), level=st.floats(-1, 2), uniform=st.floats(1e-9, 1 - 1e-9))
def test_shipping_by_chance_is_the_indicator_of_the_dithered_score(gate, score, level, uniform):
    share = share_by_definition(gate, score, level)
    if abs(share - uniform) > 1e-9:
        randomised = gate.randomised(np.array([score]), np.array([uniform]))[0]
        assert (randomised > level) == (uniform < share) or abs(randomised - level) < 1e-9 * max(
            1.0, abs(level)
        )


@pytest.mark.parametrize("gate", [Smooth(0.1), Ramp(0.3)], ids=["smooth", "ramp"])
def test_the_share_that_ships_is_the_gates_share(gate):
    labelled = some_groups(np.random.default_rng(2), 60)
    found = calibrate_soft(labelled, alpha=0.1, gate=gate, seed=0)
    assert found.state == "cut"
    rng = np.random.default_rng(3)
    for score in (0.2, 0.5, 0.9):
        share = float(gate.share(np.array([score]), found.level)[0])
        count = int(found.decide(np.full(20_000, score), 1 - rng.random(20_000)).sum())
        assert stats.binom.isf(1 - 1e-6, 20_000, share) <= count <= stats.binom.isf(1e-6, 20_000, share)


@settings(max_examples=60, deadline=None)
@given(labelled=groups(most=30), alpha=st.floats(0.05, 0.6))
def test_a_very_narrow_gate_is_the_indicator(labelled, alpha):
    plain = calibrate_groups(labelled, alpha=alpha, seed=0)
    narrow = calibrate_soft(labelled, alpha=alpha, gate=Ramp(1e-12), seed=0)
    if plain.state != "cut":
        assert narrow.state == plain.state
    else:  # within the tie group at the threshold a ramp may ship a part
        assert plain.value - 1e-9 <= narrow.level <= plain.value


def test_levels_outside_the_scores_are_found():
    bad = [LabelledGroup(f"g{g}", ("r",), np.array([1.0]), np.array([1.0])) for g in range(99)]
    strict = calibrate_soft(bad, alpha=0.011, gate=Smooth(0.5), seed=0)
    assert strict.level > 2
    assert lost(bad, Smooth(0.5), strict.level) == pytest.approx(0.1, rel=1e-9)
    low = [LabelledGroup(f"g{g}", ("r",), np.array([0.0]), np.array([1.0])) for g in range(99)]
    assert calibrate_soft(low, alpha=0.95, gate=Smooth(0.5), seed=0).level < -1


def test_a_budget_that_is_spent_on_the_fresh_group_closes_a_smooth_gate_in_effect():
    """B = 0: no level of a logistic gate loses nothing; what may be lost is the tolerance of the rule."""
    bad = [LabelledGroup(f"g{g}", ("r",), np.array([0.5]), np.array([1.0])) for g in range(9)]
    found = calibrate_soft(bad, alpha=0.1, gate=Smooth(0.1), seed=0)
    assert lost(bad, Smooth(0.1), found.level) <= 1.1e-12
    assert calibrate_soft(bad, alpha=0.1, gate=Ramp(0.1), seed=0).level == pytest.approx(0.5, abs=1e-9)
    assert calibrate_soft(bad, alpha=0.09, gate=Ramp(0.1), seed=0).state == "closed"


@given(number=st.floats(-1e300, 1e300))
def test_the_numbering_of_floats_is_in_order_and_without_gaps(number):
    assert _float_of(_rank(number)) == number
    assert _float_of(_rank(number) + 1) == np.nextafter(number, np.inf)


@settings(max_examples=100, deadline=None)
@given(labelled=groups(most=30), alpha=st.floats(0.05, 0.6), fresh=st.lists(st.floats(0, 1), max_size=9))
def test_quantiles_of_the_calibration_scores_decide_as_the_scores_do(labelled, alpha, fresh):
    """On calibration scores the same; between two of them the quantile gate is the stricter one."""
    scores = np.concatenate([group.scores for group in labelled])
    frozen = FrozenQuantiles(scores)
    as_quantiles = [
        LabelledGroup(group.id, group.item_ids, frozen.of(group.scores), group.severities)
        for group in labelled
    ]
    plain = calibrate_groups(labelled, alpha=alpha, seed=0).value
    level = calibrate_groups(as_quantiles, alpha=alpha, seed=0).value
    assert ((frozen.of(scores) > level) == (scores > plain)).all()
    assert ((frozen.of(fresh) > level) <= (np.array(fresh) > plain)).all()


def test_quantiles_are_shares_of_the_frozen_scores():
    frozen = FrozenQuantiles(np.array([0.5, 0.25, 0.5, 1.0]))
    assert frozen.of([0.0, 0.25, 0.4, 0.5, 0.9, 1.0]).tolist() == [0.0, 0.25, 0.25, 0.75, 0.75, 1.0]
    assert np.isnan(frozen.of([np.nan])).all()
    with pytest.raises(ValueError, match="read-only"):
        frozen.frozen[0] = 0.1


def test_ranks_are_shares_of_the_batch_below():
    assert rank_scores([0.5, 0.9, 0.5, 0.1]).tolist() == [0.25, 0.75, 0.25, 0.0]
    assert rank_scores([0.7] * 3).tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: Smooth(0.0), "tau must be positive and finite, not 0.0"),
        (lambda: Ramp(math.inf), "width must be positive"),
        (lambda: Smooth(True), "tau must be"),
        (lambda: FrozenQuantiles(np.empty(0)), "frozen distribution needs"),
        (lambda: FrozenQuantiles(np.array([0.5, np.nan])), "frozen distribution needs"),
        (lambda: rank_scores([]), "ranks need"),
        (lambda: rank_scores([0.5, np.nan]), "ranks need"),
        (lambda: calibrate_soft([], alpha=1, gate=Ramp(1.0), seed=0), "alpha must be"),
        (lambda: calibrate_soft([], alpha=0.1, gate=Ramp(1.0), method="clt", seed=0), "method must be"),
    ],
)
def test_wrong_arguments_are_named(run, message):
    with pytest.raises(ValueError, match=message):
        run()


def test_decisions_need_a_uniform_for_each_score():
    found = calibrate_soft(some_groups(np.random.default_rng(2), 60), alpha=0.1, gate=Ramp(0.3), seed=0)
    with pytest.raises(ValueError, match="shape"):
        found.decide([0.5, 0.6], [0.5])
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="both excluded"):
            found.decide([0.5], [bad])
    assert not found.decide([math.nan], [0.5]).any()


def test_the_guarantee_claims_what_holds():
    labelled = some_groups(np.random.default_rng(2), 60)
    text = calibrate_soft(labelled, alpha=0.1, gate=Smooth(0.1), seed=0).guarantee
    promised, _, disclaimed = text.partition("Not promised:")
    assert "On average" in promised
    assert "a smooth gate of width 0.1" in promised
    assert "uniform number of its own" in promised
    assert "high probability" in disclaimed
    assert "Nothing ships" in calibrate_soft([], alpha=0.1, gate=Ramp(0.1), seed=0).guarantee
