"""The curve, its exact sums, and the shortcut that sorts one bin only."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.calibration.loss_curve import FixedPoint, LossCurve, budget_limit, smallest_admissible


@given(terms=st.lists(st.floats(0, 1), min_size=1, max_size=200), extra=st.integers(0, 10**7))
def test_sums_are_exact_to_the_last_places_and_blind_to_order(terms, extra):
    scale = FixedPoint.for_terms(len(terms) + extra)
    high, low = scale.split(np.array(terms))
    total = float(scale.join(high.sum(keepdims=True), low.sum(keepdims=True))[0])
    true = sum(map(Fraction, terms), Fraction(0))
    assert abs(Fraction(total) - true) <= true * Fraction(1, 2**51) + len(terms) * Fraction(
        1, 2 ** (2 * scale.bits)
    )


def test_a_full_scale_does_not_overflow():
    for count in (1, 2, 3, 1023, 1024, 100_000):
        scale = FixedPoint.for_terms(count)
        high, low = scale.split(np.full(count, 1.0))
        assert scale.join(high.cumsum()[-1:], low.cumsum()[-1:])[0] == count
        high, low = scale.split(np.full(count, np.nextafter(1.0, 0.0)))
        assert 0 <= count - scale.join(high.cumsum()[-1:], low.cumsum()[-1:])[0] <= count * 2.0**-52


def test_the_curve_has_one_step_for_each_score_with_loss():
    curve = LossCurve.of(np.array([0.5, 0.9, 0.5, 0.2, 0.7]), np.array([0.25, 0.5, 0.25, 1.0, 0.0]))
    assert curve.levels.tolist() == [0.9, 0.5, 0.2]
    assert curve.totals.tolist() == [0.5, 1.0, 2.0]
    wanted = [0.9, 0.5, 0.5, 0.2, 0.2, -math.inf]
    assert [curve.first_over(limit) for limit in (0.0, 0.5, 0.75, 1.0, 1.9, 2.0)] == wanted


def test_a_curve_without_loss_is_admissible_everywhere():
    assert LossCurve.of(np.array([0.5]), np.array([0.0])).first_over(0.0) == -math.inf


@pytest.mark.parametrize("shape", ["even", "few levels", "one bin", "one level", "at the ends", "sorted"])
def test_the_shortcut_agrees_with_the_full_curve(shape):
    rng = np.random.default_rng(8)
    count = 200_000
    scores = rng.random(count)
    scores = {
        "even": scores, "few levels": np.round(scores, 1), "one bin": 0.5 + scores / 10_000,
        "one level": np.full(count, 0.3), "at the ends": np.round(scores),
        "sorted": np.sort(scores),
    }[shape]  # fmt: skip
    losses = rng.random(count) * rng.random(count)
    curve = LossCurve.of(scores, losses)
    total = float(curve.totals[-1])
    for limit in [
        0.0,
        1e-9,
        total / 7,
        total / 2,
        np.nextafter(total, 0),
        total,
        2 * total,
        *curve.totals[:: 1 + len(curve.totals) // 9],
    ]:
        assert smallest_admissible(scores, losses, float(limit)) == curve.first_over(float(limit))


def test_the_budget_is_exact_up_to_the_tolerance():
    assert budget_limit(0.05, 18) < 0 <= budget_limit(0.05, 19) < 1e-11
    for groups in (9, 29, 99, 10**6 - 1):
        assert math.isclose(budget_limit(0.3, groups), 0.3 * (groups + 1) - 1, rel_tol=2e-12)
        assert budget_limit(0.3, groups) >= 3 * (groups + 1) // 10 - 1
