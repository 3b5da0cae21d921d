"""The rule against its definition, in exact rational arithmetic."""

import doctest
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import LabelledGroup, calibrate, calibrate_groups
from streamer.calibration import crc
from streamer.calibration import loss_curve as loss_curve_module

SEVERITIES = [Fraction(0), Fraction(1, 4), Fraction(1, 3), Fraction(1, 10), Fraction(7, 10), Fraction(1)]


Items = list[list[tuple[Fraction, Fraction]]]


def sums(items: Items) -> dict[Fraction | float, Fraction]:
    """sum_g L_g(l) for l in {-inf} U scores, rising."""
    levels: list[Fraction | float] = [-math.inf, *sorted({q for group in items for q, _ in group})]
    return {
        level: sum(
            (sum((m for q, m in group if q > level), Fraction(0)) / len(group) for group in items),
            Fraction(0),
        )
        for level in levels
    }


def by_definition(items: Items, alpha: Fraction, loss: dict[Fraction | float, Fraction]) -> float:
    """lambda = min{ l in {-inf} U scores U {+inf} : sum_g L_g(l) <= alpha (G + 1) - 1 }, word for word."""
    budget = alpha * (len(items) + 1) - 1
    return math.inf if budget < 0 else float(min(level for level, spent in loss.items() if spent <= budget))


@st.composite
def labelled_items(draw: st.DrawFn) -> Items:
    levels = draw(st.sampled_from([2, 4, 16, 1024]))
    item = st.tuples(st.integers(0, levels).map(lambda k: Fraction(k, levels)), st.sampled_from(SEVERITIES))
    return draw(st.lists(st.lists(item, min_size=1, max_size=7), min_size=1, max_size=12))


def flat(items: Items) -> tuple[list[float], list[float], list[int]]:
    return (
        [float(q) for group in items for q, _ in group],
        [float(m) for group in items for _, m in group],
        [g for g, group in enumerate(items) for _ in group],
    )


def budgets_of_interest(items: Items, loss: dict[Fraction | float, Fraction]) -> list[Fraction]:
    """Every alpha that some level meets exactly, and its neighbours on both sides."""
    total = len(items) + 1
    exact = {Fraction(1, total), Fraction(2, total), Fraction(1, 20), Fraction(1, 10)}
    exact |= {(spent + 1) / total for spent in loss.values()}
    nudge = Fraction(1, 10**9)
    return sorted(a for e in exact for a in (e - nudge, e, e + nudge) if 0 < a < 1)


@settings(max_examples=150, deadline=None)
@given(items=labelled_items(), binned=st.booleans())
def test_agrees_with_the_definition_at_and_around_every_exact_budget(items, binned):
    scores, severities, groups = flat(items)
    with pytest.MonkeyPatch.context() as patch:
        if binned:
            patch.setattr(loss_curve_module, "_WORTH_BINNING", 0)
        loss = sums(items)
        named = [
            LabelledGroup(str(g), tuple(map(str, range(len(group)))), *np.array(group, dtype=np.float64).T)
            for g, group in enumerate(items)
        ]
        for alpha in budgets_of_interest(items, loss):
            wanted = by_definition(items, alpha, loss)
            assert calibrate(scores, severities, groups, alpha=float(alpha)).value == wanted
            assert calibrate_groups(named, alpha=float(alpha), seed=1).value == wanted


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_a_million_equal_losses_meet_an_exact_budget(order):
    """0.1 added 400,000 times in floating point is off by more than the tolerance; the rule must not notice."""
    count = 600_000
    scores = np.where(np.arange(count) < 400_000, 0.75, 0.25)
    if order == "rising":
        scores = np.sort(scores)
    elif order == "shuffled":
        scores = np.random.default_rng(0).permutation(scores)
    severities = np.full(count, 0.1)
    naive = np.cumsum(severities[:400_000])[-1]
    assert abs(naive - 40_000) > 1e-12 * 40_000
    alpha = Fraction(40_001, count + 1)
    assert calibrate(scores, severities, np.arange(count), alpha=float(alpha)).value == 0.25
    below = alpha - Fraction(1, 10**9)
    assert calibrate(scores, severities, np.arange(count), alpha=float(below)).value == 0.75


def test_a_quarter_of_a_million_items_agree_with_whole_number_sums():
    """Group sizes 3, 5 and 7: weights that binary fractions cannot hold, sums that integers can."""
    rng = np.random.default_rng(3)
    sizes = rng.choice([3, 5, 7], 60_000)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    levels = rng.integers(0, 50, len(groups))
    severities = rng.integers(0, 2, len(groups))
    in_105ths = severities * (105 // sizes[groups])
    spent = np.bincount(levels, weights=in_105ths, minlength=50)[::-1].cumsum()[::-1].astype(int).tolist()
    for level in (1, 10, 25, 49):
        alpha = Fraction(spent[level] + 105, 105 * (len(sizes) + 1))
        exact = calibrate(levels / 64, severities, groups, alpha=float(alpha)).value
        assert exact == (level - 1) / 64
        below = calibrate(levels / 64, severities, groups, alpha=float(alpha) - 1e-9).value
        assert below == level / 64


def test_the_floor_is_one_over_groups_plus_one():
    scores, severities = np.linspace(0, 1, 19), np.ones(19)
    assert calibrate(scores, severities, np.arange(19), alpha=0.05).state == "cut"
    assert calibrate(scores, severities, np.arange(19), alpha=0.05).value == 1.0
    assert calibrate(scores[:18], severities[:18], np.arange(18), alpha=0.05).state == "closed"
    for groups in range(1, 2000):
        one = calibrate([0.5] * groups, [0] * groups, range(groups), alpha=1 / (groups + 1))
        assert one.state == "open", groups


def test_no_loss_at_all_opens_the_gate():
    threshold = calibrate([0.1, 0.2], [0, 0], ["a", "b"], alpha=0.4)
    assert (threshold.state, threshold.value) == ("open", -math.inf)


def test_a_tie_group_is_held_as_a_whole():
    assert calibrate([0.5] * 10, [1] + [0] * 9, range(10), alpha=0.15).value == 0.5


def test_identical_top_scores_are_held_when_the_budget_is_met_only_above_them():
    threshold = calibrate([1.0] * 19, [1] * 19, range(19), alpha=0.05)
    assert (threshold.state, threshold.value) == ("cut", 1.0)


@settings(max_examples=200, deadline=None)
@given(items=labelled_items(), alpha=st.floats(0.01, 0.99))
def test_with_one_item_a_group_all_laws_are_one(items, alpha):
    scores, severities, _ = flat(items)
    values = {
        calibrate(scores, severities, range(len(scores)), alpha=alpha, method=m).value
        for m in ("mean", "crc", "bb", "rbwa")
    }
    assert len(values) == 1


def test_the_examples_in_the_docstrings_run():
    results = doctest.testmod(crc, raise_on_error=True)
    assert results.attempted >= 4
    assert results.failed == 0
