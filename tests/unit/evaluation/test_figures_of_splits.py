"""Means, errors and orders: what the figures of an evaluation are made of, against what can be computed by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.clouds.measurement import Units
from streamer.clouds.spreads import chance_bound, excess, spread
from streamer.planning.prompts import area_under_curve
from streamer.research.evaluation.measures import COVERAGES, ranking
from streamer.research.evaluation.outputs import raw_energy
from streamer.scoring.gram import score_batch


def test_a_spread_leaves_out_what_is_not_defined():
    values = np.array([0.1, np.nan, 0.3, np.inf])
    found = spread(values, test=60, calibration=30)
    assert found.mean == pytest.approx(0.2)
    assert found.splits == 2
    sd = math.sqrt(0.02)
    assert found.sd == pytest.approx(sd)
    assert found.se == pytest.approx(sd / math.sqrt(2))
    assert found.error == pytest.approx(sd * math.sqrt(1 / 2 + 2))


@pytest.mark.parametrize(
    ("values", "mean", "sd"), [([], None, None), ([0.4], 0.4, None), ([0.4, 0.4], 0.4, 0)]
)
def test_a_spread_of_little_says_so(values, mean, sd):
    found = spread(np.array(values, dtype=np.float64), test=1, calibration=1)
    assert (found.mean, found.sd) == (mean, sd)


def test_an_excess_is_counted_in_standard_errors():
    found = spread(np.array([0.1, 0.14]), test=1, calibration=1)
    assert excess(found, 0.1) == pytest.approx(0.02 / found.se)
    assert excess(found, 0.2) is None
    assert chance_bound(1) == pytest.approx(2.326, abs=1e-3)
    assert chance_bound(400) > chance_bound(10) > chance_bound(1)


def units(scores, severities, batch=None, shippable=None) -> Units:
    n = len(scores)
    return Units(
        np.array(scores, dtype=np.float64),
        np.array(severities, dtype=np.float64),
        np.zeros(n, dtype=np.bool_),
        np.ones(n, dtype=np.bool_) if shippable is None else np.array(shippable),
        np.zeros(n, dtype=np.bool_),
        np.arange(n) if batch is None else np.array(batch),
        np.zeros(n, dtype=np.intp),
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from((0.1, 0.5, 0.9)), st.sampled_from((0.0, 0.4, 1.0))), min_size=2, max_size=12
    )
)
def test_auroc_is_that_of_the_plan_and_ties_count_half(pairs):
    scores, severities = zip(*pairs, strict=True)
    found = ranking(units(scores, severities), unit="response", scorer="x", seed=0)
    expected = area_under_curve(np.array(scores), np.array(severities))
    if expected is None:
        assert found.auroc.value is None
    else:
        assert found.auroc.value == pytest.approx(expected)
    if found.area.low is not None:
        assert found.area.low <= found.area.high
    assert found.best_area <= found.area.value + 1e-9
    assert found.curve.risk[-1] == pytest.approx(found.no_skill) == np.mean(severities)


def test_the_area_is_the_mean_risk_over_orders_that_ties_allow():
    scores, severities = [0.9, 0.5, 0.5, 0.1], [0.0, 1.0, 0.2, 0.6]
    found = ranking(units(scores, severities), unit="response", scorer="x", seed=0)

    def continuous(order):
        """The integral of the selective risk over coverage, the risk within a unit being shared out evenly."""
        points = np.linspace(0, 4, 400_001)[1:]
        lost = np.interp(points, range(5), np.concatenate([[0], np.cumsum([severities[i] for i in order])]))
        return (lost / points).mean()

    orders = [[0, *middle, 3] for middle in itertools.permutations([1, 2])]
    both = np.mean([continuous(order) for order in orders])
    wanted = pytest.approx(both, abs=2e-2)
    assert found.area.value == wanted, "within a tie group risk is the mean of its members"
    shared = ranking(units(scores, [0.0, 0.6, 0.6, 0.6]), unit="response", scorer="x", seed=0)
    assert found.area.value == pytest.approx(shared.area.value)


def test_what_cannot_ship_comes_last():
    found = ranking(
        units([0.9, 0.5, np.nan], [1.0, 0.0, 0.0], shippable=[False, True, False]),
        unit="response",
        scorer="x",
        seed=0,
    )
    assert found.curve.risk[0] == 0
    assert found.levels == 2


def test_intervals_resample_whole_questions():
    rng = np.random.default_rng(3)
    scores, severities = np.round(rng.random(60), 3), rng.random(60)
    alone = ranking(units(scores, severities), unit="response", scorer="x", seed=0)
    copies = units(np.repeat(scores, 20), np.repeat(severities, 20), np.repeat(np.arange(60), 20))
    found = ranking(copies, unit="response", scorer="x", seed=0)
    assert found.auroc.low < found.auroc.value < found.auroc.high
    for name in ("auroc", "area"):
        copied, one = getattr(found, name), getattr(alone, name)
        assert (copied.value, copied.low, copied.high) == pytest.approx((one.value, one.low, one.high)), (
            "twenty copies of each answer say no more than one"
        )
    assert len(found.curve.risk) == len(COVERAGES)
    assert ranking(copies, unit="response", scorer="x", seed=0) == found


def test_the_papers_energy_follows_from_the_score():
    rng = np.random.default_rng(0)
    blank = [False, True, False, False, False]
    scores, raw = score_batch(rng.normal(size=(5, 4)), blank)
    found = [raw_energy(score, 5, blank=mark) for score, mark in zip(scores.tolist(), blank, strict=True)]
    assert found == pytest.approx(raw.tolist(), abs=2e-6)
