"""Budgets that hold with high probability over calibrations, by fixed-sequence testing.

For each l the hypothesis "the exposure risk R(l) exceeds alpha" gets a p-value p(l) from the G group losses
L_g(l), and

    lambda = min{ l : p(l') <= delta for l' = l and every larger l' }.

P(R(lambda) > alpha) <= delta. R falls in l and is continuous from the right: if R(lambda) > alpha, then
lambda lies below l* = min{ l : R(l) <= alpha } and some l'' in [lambda, l*) was rejected, together with all
from there to l*. The events {lambda <= l* - 1/n} grow with n to {lambda < l*}, and each lies in {p(l* - 1/n)
<= delta}, whose probability is at most delta because l* - 1/n is a fixed number. So no grid is needed: every
score serves as a level.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from streamer.calibration.arguments import check_alpha, check_delta, whole_number
from streamer.calibration.guarantee import counted, what_ships
from streamer.calibration.item_table import ItemTable
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.loss_curve import LossCurve
from streamer.calibration.p_values import betting, hoeffding_bentkus
from streamer.calibration.threshold import Threshold, state_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.calibration.groups import LabelledGroup

Bound = Literal["hb", "betting"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)


def calibrate_high_probability(
    groups: Sequence[LabelledGroup] | ItemTable,
    *,
    alpha: float,
    delta: float = 0.1,
    method: Bound = "betting",
    seed: int,
) -> Threshold:
    """Find a threshold whose exposure risk is at most alpha with probability at least 1 - delta.

    Parameters
    ----------
    groups : unique by id; the items of a group weigh the same.
    alpha : budget on exposure risk, in (0, 1).
    delta : chance, over the draw of the calibration groups, that the risk passes the budget, in (0, 1).
    method : `betting` ships more; it reads the groups in an order that seed and ids fix (HMAC), and its time
        grows with scores times groups. `hb` (Hoeffding-Bentkus) knows no order and takes no longer than
        sorting.
    seed : any whole number, fixed before labels are read; `hb` ignores it.

    Returns
    -------
    Threshold
        Closed with fewer than about ln(1/delta)/alpha groups, even if none has lost anything.

    Raises
    ------
    ValueError
        If a group id repeats or an argument is not valid.
    """
    alpha, delta = check_alpha(alpha), check_delta(delta)
    if method not in BOUNDS:
        raise ValueError(f"method must be one of {', '.join(BOUNDS)}, not {method!r}")
    keyed = KeyedWeights(whole_number("seed", seed))
    table = ItemTable.of(groups)
    if not table.groups:
        value = math.inf
    elif method == "hb":
        value = _by_hoeffding_bentkus(table, alpha, delta)
    else:
        value = _by_betting(table, alpha, delta, keyed)
    return Threshold.at(
        value,
        alpha=alpha,
        method=method,
        groups=table.groups,
        guarantee=_guarantee(value, alpha, delta, method, table.groups),
    )


def _by_hoeffding_bentkus(table: ItemTable, alpha: float, delta: float) -> float:
    """The p-value grows with the summed loss: the first level that is not rejected is found by halving."""
    curve = LossCurve.of(table.scores, table.losses)
    totals = [0.0, *np.minimum(curve.totals, table.groups).tolist()]
    rejected, first = -1, len(totals)
    while first - rejected > 1:
        middle = (first + rejected) // 2
        if hoeffding_bentkus(totals[middle], table.groups, alpha) <= delta:
            rejected = middle
        else:
            first = middle
    if first == 0:
        return math.inf
    return -math.inf if first == len(totals) else float(curve.levels[first - 1])


def _by_betting(table: ItemTable, alpha: float, delta: float, keyed: KeyedWeights) -> float:
    if betting(np.zeros((1, table.groups)), alpha, delta)[0] > delta:
        return math.inf
    order = keyed.order(table.ids)
    levels = table.loss_levels()
    passed = 0
    for rows in table.sums_by_level(table.losses, levels, reached=True):
        kept = betting(np.minimum(rows[:, order], 1.0), alpha, delta) > delta
        if kept.any():
            return float(levels[passed + int(np.argmax(kept))])
        passed += len(rows)
    return -math.inf


def _guarantee(value: float, alpha: float, delta: float, method: str, groups: int) -> str:
    bound = {"hb": "Hoeffding-Bentkus", "betting": "betting, in an order of the groups that the seed fixes"}[
        method
    ]
    basis = f"Basis: method {method} ({bound}) on {counted(groups, 'calibration group')}"
    if value == math.inf:
        return (
            f"Nothing ships, so exposure risk is 0. {basis}, which do not show a risk of at most {alpha!r} "
            f"with probability {1 - delta:.6g} at any threshold."
        )
    fixed = (
        "the score, the method, alpha and delta"
        if method == "hb"
        else "the score, the method, alpha, delta and the seed"
    )
    return (
        f"{what_ships(state_at(value))} With probability at least {1 - delta:.6g} over the draw of the "
        f"calibration groups, exposure risk is at most {alpha!r}: severity where an item ships and 0 where "
        f"it is held, averaged over future groups, each counting once and its items equally. {basis}. "
        "Assumptions: calibration groups and future groups are independent draws from one population, which "
        "is more than exchangeable; the labelled items of a group are all of its items, or were drawn at "
        f"random before any label was seen; {fixed} were fixed before any label was read; severities lie in "
        "[0, 1] and mean what the budget is about. Not promised: a joint bound over several calibrations, "
        f"each of which may fail with probability {delta!r}; a bound for a single prompt or kind of prompt; "
        "a bound on severity among the shipped alone."
    )
