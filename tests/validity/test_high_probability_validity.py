"""How often does the risk of a calibration pass the budget? Counted, against the binomial bound at 1e-6."""

import functools

import numpy as np
import pytest

from streamer import calibrate_groups
from streamer.calibration import calibrate_clt, calibrate_high_probability
from streamer.calibration.high_probability import bounds
from tests.validity.known_risk import SHAPES, draw_groups, exposure_risk, most_violations, shipped_share

ALPHA = DELTA = 0.1
REPEATS = 400
BOUND = most_violations(REPEATS, DELTA)
SIZES = (30, 100)


@functools.cache
def drawn(shape: str, size: int) -> list:
    rng = np.random.default_rng([20261121, SHAPES.index(shape), size])
    return [draw_groups(shape, size, rng) for _ in range(REPEATS)]


@functools.cache
def thresholds(shape: str, size: int, method: str) -> list[float]:
    if method == "mean":
        return [calibrate_groups(groups, alpha=ALPHA, seed=1).value for groups in drawn(shape, size)]
    return [
        calibrate_high_probability(groups, alpha=ALPHA, delta=DELTA, method=method, seed=repeat).value
        for repeat, groups in enumerate(drawn(shape, size))
    ]


def violations(shape: str, size: int, method: str) -> int:
    return sum(exposure_risk(shape, value) > ALPHA for value in thresholds(shape, size, method))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", bounds())
def test_risk_passes_the_budget_no_more_often_than_promised(method, shape, size):
    assert violations(shape, size, method) <= BOUND


@pytest.mark.parametrize("method", ["hb", "betting"])  # bernstein needs more groups than these
def test_the_bound_is_worth_something(method):
    """With 100 groups the gate opens, and wider than with 30."""
    shares = [
        np.mean([shipped_share("zero-one", value) for value in thresholds("zero-one", size, method)])
        for size in SIZES
    ]
    assert shares[0] < shares[1]
    assert shares[1] > 0.3


@pytest.mark.parametrize("shape", ["zero-one", "fractions", "together"])
def test_control_a_bound_on_average_is_no_bound_with_high_probability(shape):
    assert violations(shape, 100, "mean") > BOUND


def test_the_asymptotic_band_is_measured_and_misses_more_often_than_its_nominal_level():
    """No claim is made for `clt`; this prints what it does (-rP shows it) and keeps the reason not to rely on it."""
    missed = {}
    for shape in SHAPES:
        for size, alpha in ((30, 0.05), (100, 0.05), (100, 0.01)):
            found = [calibrate_clt(groups, alpha=alpha, delta=DELTA).value for groups in drawn(shape, size)]
            missed[shape, size, alpha] = sum(exposure_risk(shape, value) > alpha for value in found)
            rate = missed[shape, size, alpha] / REPEATS
            print(f"clt, {shape}, {size} groups, alpha {alpha}: missed {rate:.3f} at nominal {DELTA}")
    assert missed["zero-one", 30, 0.05] > BOUND
    assert missed["rare", 100, 0.01] > BOUND
