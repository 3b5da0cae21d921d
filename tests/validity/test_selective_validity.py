"""How often does selective risk pass its budget? Counted, against the binomial bound at 1e-6."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.calibration import calibrate_selective
from tests.validity.known_risk import (
    SHAPES,
    assert_over,
    draw_groups,
    most_violations,
    selective_risk,
    shipped_share,
)

ALPHA = DELTA = 0.1
REPEATS = 200
GRID = [*np.round(np.arange(0.75, -0.001, -0.05), 2), -np.inf]


@pytest.mark.parametrize("starts", [1, 4])
@pytest.mark.parametrize("size", [100, 300])
@pytest.mark.parametrize("shape", ["zero-one", "fractions", "together", "ties"])
def test_selective_risk_passes_its_budget_no_more_often_than_promised(shape, size, starts):
    rng = np.random.default_rng([20261122, SHAPES.index(shape), size, starts])
    values = []
    for repeat in range(REPEATS):
        groups = draw_groups(shape, size, rng)
        found = calibrate_selective(groups, alpha=ALPHA, delta=DELTA, grid=GRID, starts=starts, seed=repeat)
        values.append(found.value)
    violated = sum(selective_risk(shape, value) > ALPHA for value in values)
    assert violated <= most_violations(len(values), DELTA)


def test_the_selective_bound_is_worth_something():
    rng = np.random.default_rng(20261123)
    found = [
        calibrate_selective(draw_groups("zero-one", 300, rng), alpha=0.2, delta=DELTA, grid=GRID, seed=repeat)
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
    assert_over(risks, alpha)
