"""Selective risk bounded with high probability on an even grid of scores: edition 1 of the calibrator `selective`.

Gates that an earlier version calibrated have it until their owner changes the edition, and it derives their thresholds again.

A random item of a random group with score Q and severity m: the claim E[m | Q > l] <= alpha is the same as
E[1{Q > l} (m - alpha)] <= 0. For each l of the grid, from strict to permissive, the hypothesis that it is
false is tested by the betting p-value of

    Z_g(l) = alpha + sum_i w_gi 1{Q_gi > l} (m_gi - alpha)  in [0, 1],    w_gi = 1/I_g,    against the mean
    alpha.

Selective risk is not monotone in l. That is why the levels must be a fixed grid and not the scores, and why
testing stops at the first level that is not rejected (Bauer; Angelopoulos and others, Learn then Test, 2021).
A level at which almost nothing ships has no power, and a walk that starts there ends there: `starts` begins
several walks, spaced evenly over the grid, each at delta/starts (Bonferroni), so that one may fail without
the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration.arguments import check_alpha, check_delta, whole_number
from streamer.calibration.guarantee import counted, what_ships
from streamer.calibration.item_table import ItemTable
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.p_values import betting
from streamer.calibration.threshold import Threshold, state_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.calibration.groups import LabelledGroup


def calibrate_selective_grid(
    groups: Sequence[LabelledGroup] | ItemTable,
    *,
    alpha: float,
    delta: float = 0.1,
    grid: Sequence[float],
    starts: int = 1,
    seed: int,
) -> Threshold:
    """Find a threshold whose selective risk is at most alpha with probability at least 1 - delta.

    Parameters
    ----------
    groups : unique by id; the items of a group weigh the same.
    alpha : budget on selective risk, in (0, 1).
    delta : chance, over the draw of the calibration groups, that the selective risk passes the budget, in (0,
        1).
    grid : levels to test, strictly falling, finite but for a last one of -inf (everything ships); fixed
        before scores or labels of the calibration groups are looked at.
    starts : walks that begin at evenly spaced levels of the grid, in 1..len(grid); fixed likewise.
    seed : any whole number, fixed before labels are read; with the ids it fixes the order in which groups are
        read.

    Returns
    -------
    Threshold
        The most permissive level that was shown to keep the budget, or closed if none was.

    Raises
    ------
    ValueError
        If a group id repeats or an argument is not valid.
    """
    alpha, delta = check_alpha(alpha), check_delta(delta)
    keyed = KeyedWeights(whole_number("seed", seed))
    levels = np.array([float(level) for level in grid])
    if not len(levels) or np.isnan(levels).any() or (np.diff(levels) >= 0).any() or levels[0] == np.inf:
        raise ValueError("grid must hold levels that strictly fall, at least one, none of them NaN or +inf")
    starts = whole_number("starts", starts, least=1)
    if starts > len(levels):
        raise ValueError(f"starts must be at most the {len(levels)} levels of the grid, not {starts!r}")
    table = ItemTable.of(groups)
    rejected = -1
    if table.groups:
        p_values = _p_values(table, levels, alpha, delta / starts, keyed)
        rejected = _most_permissive(p_values <= delta / starts, starts)
    value = math.inf if rejected < 0 else float(levels[rejected]) + 0.0
    return Threshold.at(
        value,
        alpha=alpha,
        method="selective",
        groups=table.groups,
        guarantee=_guarantee(value, alpha, delta, table.groups, len(levels), starts),
    )


def _p_values(
    table: ItemTable, levels: np.ndarray, alpha: float, delta: float, keyed: KeyedWeights
) -> np.ndarray:
    order = keyed.order(table.ids)
    terms = (table.severities - alpha) / table.sizes[table.index]
    return np.concatenate(
        [
            betting(np.clip(rows[:, order] + alpha, 0.0, 1.0), alpha, delta)
            for rows in table.sums_by_level(terms, levels, reached=False)
        ]
    )


def _most_permissive(rejected: np.ndarray, starts: int) -> int:
    """Return the last position that a walk of rejections from any of the starts reaches, or -1."""
    reached = -1
    for walk in range(starts):
        position = walk * len(rejected) // starts
        while position < len(rejected) and rejected[position]:
            reached = max(reached, position)
            position += 1
    return reached


def _guarantee(value: float, alpha: float, delta: float, groups: int, levels: int, starts: int) -> str:
    basis = (
        f"Basis: method selective (betting bound, fixed-sequence testing of {counted(levels, 'level')} from "
        f"{counted(starts, 'start')}) on {counted(groups, 'calibration group')}"
    )
    if value == math.inf:
        return (
            f"Nothing ships, so there is no selective risk. {basis}, which do not show a selective risk of "
            f"at most {alpha!r} with probability {1 - delta:.6g} at any level that the test reached."
        )
    return (
        f"{what_ships(state_at(value))} With probability at least {1 - delta:.6g} over the draw of the "
        f"calibration groups, selective risk is at most {alpha!r}: the mean severity of a random item of a "
        f"random future group, given that it ships. {basis}. Assumptions: calibration groups and future "
        "groups are independent draws from one population, which is more than exchangeable; the labelled "
        "items of a group are all of its items, or were drawn at random before any label was seen; the "
        "score, the grid, its starts, alpha, delta and the seed were fixed before any label was read, the "
        "grid before any score was; severities lie in [0, 1] and mean what the budget is about. Not "
        "promised: a bound for a single prompt or kind of prompt; how much ships; a joint bound over "
        f"several calibrations, each of which may fail with probability {delta!r}."
    )


def even_grid(levels: int) -> tuple[float, ...]:
    """Return `levels` evenly spaced ones, strictly falling from 1 - 1/levels to 0."""
    return tuple((levels - 1 - position) / levels for position in range(levels))
