"""How often does the risk of a calibration pass the budget? Counted, against the binomial bound at 1e-6."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from streamer import calibrate_groups
from streamer.calibration import calibrate_clt, calibrate_high_probability, calibrate_selective
from tests.validity.known_risk import (
    SHAPES,
    draw_groups,
    exposure_risk,
    most_violations,
    selective_risk,
    shipped_share,
    standard_error,
    z_bound,
)

ALPHA = DELTA = 0.1
REPEATS = 400
BOUND = most_violations(REPEATS, DELTA)
SIZES = (30, 100)
GRID = [*np.round(np.arange(0.95, -0.001, -0.05), 2), -np.inf]


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
@pytest.mark.parametrize("method", ["hb", "betting"])
def test_risk_passes_the_budget_no_more_often_than_promised(method, shape, size):
    assert violations(shape, size, method) <= BOUND


@pytest.mark.parametrize("method", ["hb", "betting"])
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


@pytest.mark.parametrize("starts", [1, 4])
@pytest.mark.parametrize("size", [100, 300])
@pytest.mark.parametrize("shape", ["zero-one", "fractions", "together", "ties"])
def test_selective_risk_passes_its_budget_no_more_often_than_promised(shape, size, starts):
    rng = np.random.default_rng([20261122, SHAPES.index(shape), size, starts])
    values = []
    for repeat in range(REPEATS // 2):
        groups = draw_groups(shape, size, rng)
        found = calibrate_selective(
            groups, alpha=ALPHA, delta=DELTA, grid=GRID[4:], starts=starts, seed=repeat
        )
        values.append(found.value)
    violated = sum(selective_risk(shape, value) > ALPHA for value in values)
    assert violated <= most_violations(len(values), DELTA)


def test_the_selective_bound_is_worth_something():
    rng = np.random.default_rng(20261123)
    found = [
        calibrate_selective(
            draw_groups("zero-one", 300, rng), alpha=0.2, delta=DELTA, grid=GRID[4:], seed=repeat
        )
        for repeat in range(60)
    ]
    assert np.mean([shipped_share("zero-one", threshold.value) for threshold in found]) > 0.15


def test_control_keeping_the_most_inside_the_measured_budget_breaks_it():
    """The level that ships most among those whose measured selective risk is in the budget is a chosen one."""
    rng = np.random.default_rng(20261124)
    alpha, size, chosen = 0.05, 100, []
    for _ in range(2000):
        (scores, severities) = (rng.random(size), rng.random(size))
        order = np.argsort(-scores)
        lost = severities[order] < 0.7 * (1 - scores[order])
        inside = np.flatnonzero(np.cumsum(lost) / np.arange(1, size + 1) <= alpha)
        level = scores[order][inside[-1] + 1] if len(inside) and inside[-1] + 1 < size else -np.inf
        chosen.append(selective_risk("zero-one", level) if len(inside) else 0.0)
    risks = np.array(chosen)
    assert (risks > alpha).sum() > most_violations(len(risks), DELTA)
    assert risks.mean() > alpha + z_bound() * standard_error(risks)
