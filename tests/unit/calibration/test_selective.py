"""The walk, `selective-mean` and the history that fixes cuts, against plain definitions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup
from streamer.calibration import History, calibrate_selective, calibrate_selective_mean
from streamer.calibration.history import LEAST, level_above
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.p_values import binomial, upper_share
from tests.unit.calibration.named_groups import groups


def counts(labelled: list[LabelledGroup], level: float, seed: int) -> tuple[int, int]:
    """What ships above a level and is wrong, group by group."""
    keyed, shipped, errors = KeyedWeights(seed), 0, 0
    for group in labelled:
        item = keyed.pick(group.id, group.item_ids)
        if group.scores[item] > level:
            shipped += 1
            errors += keyed.coin(group.id) < group.severities[item]
    return shipped, errors


def p_value(errors: int, count: int, alpha: float) -> float:
    """P(Bin(count, alpha) <= errors), in fractions; 1 of nothing."""
    chance = Fraction(alpha)
    return float(
        sum(math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(errors + 1))
    ) if count else 1.0  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    labelled=groups(),
    alpha=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
    floor=st.sampled_from([0.0, 0.25, 0.6]),
    cuts=st.sets(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 0.9]), min_size=1),
)
def test_the_walk_ends_at_the_first_cut_that_is_not_passed(labelled, alpha, seed, floor, cuts):
    wanted = math.inf
    for cut in sorted({max(cut, floor) for cut in cuts}, reverse=True):
        shipped, errors = counts(labelled, cut, seed)
        if p_value(errors, shipped, alpha) > 0.3:
            break
        wanted = cut
    history = History(prompts=50, cuts=tuple(sorted(cuts, reverse=True)))
    found = calibrate_selective(labelled, alpha=alpha, delta=0.3, history=history, floor=floor, seed=seed)
    assert found.value == wanted


@settings(max_examples=60, deadline=None)
@given(
    labelled=groups(),
    alpha=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
    floor=st.sampled_from([0.0, 0.25, 0.6]),
)
def test_the_average_takes_the_lowest_level_that_is_admitted(labelled, alpha, seed, floor):
    levels = {floor} | {float(q) for group in labelled for q in group.scores if q > floor}
    inside = []
    for level in levels:
        shipped, errors = counts(labelled, level, seed)
        if errors + 1 <= alpha * (shipped + 1) + 1e-12:
            inside.append(level)
    found = calibrate_selective_mean(labelled, alpha=alpha, floor=floor, seed=seed)
    assert found.value == min(inside, default=math.inf)


def test_a_history_ships_at_least_the_shares_that_it_says():
    scores = np.array([1.0] * 40 + [0.9] * 5 + [0.5] * 30 + [0.0] * 25)
    found = History.of(scores)
    assert found.cuts == (0.9, 0.0), (
        "ties ship as one: above .9 lie 40 %, above .5 only 45 %, and 0 never ships"
    )
    for share in (0.3, 0.4, 0.45, 0.7):
        assert (scores > level_above(scores, share)).mean() >= share
    even = np.arange(1, 101) / 100
    assert History.of(even).cuts == pytest.approx([0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    assert History.of(np.ones(LEAST - 1)) == History(prompts=LEAST - 1)
    assert History.from_json(found.to_json()) == found


@pytest.mark.parametrize("wrong", [(0.5, 0.5), (0.2, 0.5), (1.5,), (-0.1,), (math.nan,)])
def test_cuts_that_no_history_fixes_are_refused(wrong):
    with pytest.raises(ValueError, match="cuts of a history"):
        History(prompts=100, cuts=wrong)


def test_bounds_of_shares_are_those_of_clopper_and_pearson():
    for errors, count in ((0, 22), (3, 40), (10, 10), (0, 0)):
        bound = float(upper_share(np.array(errors), np.array(count), 0.1))
        if errors == count:
            assert bound == 1.0
        else:
            assert p_value(errors, count, bound) == pytest.approx(0.1)
            assert binomial(np.array(errors), np.array(count), bound) == pytest.approx(0.1)


def test_guarantees_say_what_is_promised_and_what_was_seen():
    scores = np.linspace(0.005, 1.0, 200)
    labelled = [
        LabelledGroup(f"g{i}", ("a",), scores[i : i + 1], np.array([float(i < 60 or i == 150)]))
        for i in range(200)
    ]
    walk = calibrate_selective(labelled, alpha=0.1, history=History.of(scores), seed=1)
    said, _, denied = walk.guarantee.partition("Not promised:")
    assert walk.state == "cut"
    assert "With probability at least 0.9" in said
    assert "at most 10 % of what ships at this cut is wrong" in said
    assert "8 cuts that would ship 30 to 100 % of 200 unlabelled prompts" in said
    assert "1 error in the 1" in said
    assert "how much ships" in denied
    mean = calibrate_selective_mean(labelled, alpha=0.1, seed=1)
    said, _, denied = mean.guarantee.partition("Not promised:")
    assert mean.value < walk.value
    assert "divided by the share of groups that ships, is at most 10 %" in said
    assert "errors in the" in said
    assert "which about half of all calibrations exceed" in denied
    for closed in (
        calibrate_selective(labelled[:60], alpha=0.1, history=History.of(scores), seed=1),
        calibrate_selective_mean(labelled[:60], alpha=0.1, seed=1),
    ):
        assert closed.state == "closed"
        assert closed.guarantee.startswith("Nothing ships")


@pytest.mark.parametrize("find", [calibrate_selective, calibrate_selective_mean])
def test_wrong_arguments_are_named(find):
    for change, message in (
        ({"alpha": 0}, "alpha must be"),
        ({"floor": 1.5}, "floor must lie"),
        ({"seed": 0.5}, "seed must be a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            find([], **({"alpha": 0.1, "seed": 0} | change))
