"""Soft gates and quantiles: seeded calibrations with known risks, and controls against the CLT bound at 1e-6.

That each of them keeps the budget is in test_cells_validity, ranks with them.
"""

import functools

import numpy as np

from streamer import LabelledGroup, calibrate_groups
from streamer.calibration import SoftThreshold, calibrate_soft
from streamer.calibration.shapes import FrozenQuantiles, Ramp, Smooth
from tests.validity.known_risk import (
    assert_over,
    assert_within,
    draw_groups,
    exposure_risk,
    repeats,
    shipped_share,
    standard_error,
    z_bound,
)

ALPHA = 0.1
REPEATS = repeats(500)
GROUPS = 39  # B = .1 * 40 - 1 = 3
GRID = (np.arange(2000) + 0.5) / 2000  # midpoints: the scores of the continuous worlds are uniform
LEVELS = np.array([0.25, 0.5, 0.75, 1.0])


def soft_figures(shape: str, gate: Smooth | Ramp, level: float) -> tuple[float, float]:
    """Return E[a_l(Q) m] and E[a_l(Q)]."""
    scores = LEVELS if shape == "ties" else GRID
    shares = gate.share(scores, level)
    return float((shares * 0.7 * (1 - scores)).mean()), float(shares.mean())


@functools.cache
def drawn(shape: str, groups: int) -> list[list[LabelledGroup]]:
    rng = np.random.default_rng([20261202, len(shape), groups])
    return [draw_groups(shape, groups, rng) for _ in range(REPEATS)]


def soft(shape: str, gate: Smooth | Ramp, alpha: float = ALPHA, groups: int = GROUPS) -> list[SoftThreshold]:
    return [calibrate_soft(some, alpha=alpha, gate=gate, seed=0) for some in drawn(shape, groups)]


def test_smoothing_ships_more_under_heavy_ties():
    gate = Smooth(0.1)
    smooth = np.array([soft_figures("ties", gate, found.level)[1] for found in soft("ties", gate)])
    plain = np.array(
        [
            shipped_share("ties", calibrate_groups(some, alpha=ALPHA, seed=0).value)
            for some in drawn("ties", GROUPS)
        ]
    )
    assert (smooth - plain).mean() > z_bound() * standard_error(smooth - plain)


def test_control_a_soft_level_served_without_its_chance_breaks_the_budget():
    """Q > l, where l is the level of a wide logistic gate."""
    found = soft("zero-one", Smooth(0.5), alpha=0.25)
    served = np.array([exposure_risk("zero-one", threshold.level) for threshold in found])
    meant = np.array([soft_figures("zero-one", threshold.gate, threshold.level)[0] for threshold in found])
    assert_within(meant, 0.25)
    assert_over(served, 0.25)


def test_control_a_level_clipped_to_the_scores_breaks_the_budget():
    gate, alpha = Smooth(0.5), 0.05
    levels = np.array([threshold.level for threshold in soft("zero-one", gate, alpha=alpha)])
    assert_within(np.array([soft_figures("zero-one", gate, level)[0] for level in levels]), alpha)
    assert_over(np.array([soft_figures("zero-one", gate, min(level, 1.0))[0] for level in levels]), alpha)


def test_control_rolling_quantiles_break_the_budget_when_scores_fall_and_frozen_ones_do_not():
    """The traffic's scores fall to the lower 6 tenths; what a score means stays. A rolling gate still ships its share."""
    alpha, rng = 0.05, np.random.default_rng(20261203)
    fallen = 0.6 * GRID
    frozen_risks, rolling_risks = np.empty(REPEATS), np.empty(REPEATS)
    for repeat, some in enumerate(drawn("zero-one", GROUPS)):
        frozen = FrozenQuantiles(np.concatenate([group.scores for group in some]))
        level = calibrate_groups(
            [LabelledGroup(g.id, g.item_ids, frozen.of(g.scores), g.severities) for g in some],
            alpha=alpha,
            seed=0,
        ).value
        rolling = FrozenQuantiles(0.6 * rng.random(500))
        frozen_risks[repeat] = ((frozen.of(fallen) > level) * 0.7 * (1 - fallen)).mean()
        rolling_risks[repeat] = ((rolling.of(fallen) > level) * 0.7 * (1 - fallen)).mean()
    assert_over(rolling_risks, alpha)
    assert_within(frozen_risks, alpha)
