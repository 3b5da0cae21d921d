"""Calibration under drift: groups count by age, and what drift may still cost is named instead of hidden.

With v_g = rho^(age_g - least age) and V = sum_g v_g,

    lambda = min{ l : (sum_g v_g L_g(l) + 1) / (1 + V) <= alpha },    that is  sum_g v_g L_g(l) <= alpha (1 +
    V) - 1.

E[loss of a random item of a fresh group] <= alpha + sum_g v_g D_g / (1 + V), where D_g is the total variation
distance between the data (calibration groups, fresh group) and the same data with group g and the fresh one
exchanged; for independent groups it is at most twice that between the distributions of the two. Nothing here estimates
D_g. Weights must follow from ages alone: weights that depend on scores or labels void the bound.

Source: Barber, Candes, Ramdas and Tibshirani, Conformal prediction beyond exchangeability (2023); Farinhas,
Zerva, Ulmer and Martins, Non-exchangeable conformal risk control (2024).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.arguments import check_alpha
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, what_ships
from streamer.calibration.item_table import ItemTable
from streamer.calibration.loss_curve import budget_limit, smallest_admissible
from streamer.calibration.specification import Calibrated, Calibrator, Sample, parameter
from streamer.calibration.threshold import Threshold, state_at


def calibrate_by_age(
    groups: Sequence[LabelledGroup] | ItemTable, *, alpha: float, ages: Mapping[str, float], rho: float
) -> Threshold:
    """Find the smallest threshold that keeps the age-weighted loss inside the budget, alpha in (0,
    1).

    The items of a group weigh the same. `ages`, by group id, are finite, in whatever unit `rho` is
    meant for (batches, days); those of other groups are passed over. `rho` in (0, 1] multiplies a
    group's weight for each unit of age and is fixed before labels are read; 1 is plain Conformal
    Risk Control. Below 1/(1 + V) nothing ships, however many groups there are. Raises `ValueError`
    if a group id repeats, a group has no age, or an argument is not valid.
    """
    alpha = check_alpha(alpha)
    table = ItemTable.of(groups)
    known = np.array([ages.get(group, math.nan) for group in table.ids], dtype=np.float64)
    if not np.isfinite(known).all():
        group = table.ids[int(np.argmin(np.isfinite(known)))]
        raise ValueError(f"group {group!r} needs a finite age, not {ages.get(group)!r}")
    weights = age_weights(known, rho)
    total = math.fsum(weights)
    limit = budget_limit(alpha, total)
    losses = table.losses * weights[table.index]
    value = math.inf if limit < 0 else smallest_admissible(table.scores, losses, limit)
    return Threshold.at(
        value,
        alpha=alpha,
        method="age",
        groups=table.groups,
        guarantee=_guarantee(value, alpha, rho, table.groups, total),
    )


def age_weights(ages: ArrayLike, rho: float) -> NDArray[np.float64]:
    """Return rho^(age - least age), shape (G,), in [0, 1], the largest 1. Raises `ValueError` if
    `rho` is outside (0, 1].
    """
    if isinstance(rho, bool) or not 0 < rho <= 1:
        raise ValueError(f"rho must be above 0 and at most 1, not {rho!r}")
    since = np.asarray(ages, dtype=np.float64)
    since = since - since.min(initial=math.inf)
    with np.errstate(under="ignore"):
        weights: NDArray[np.float64] = rho**since
    return weights


def _guarantee(value: float, alpha: float, rho: float, groups: int, total: float) -> str:
    floor = 1 / (1 + total)
    basis = (
        f"Basis: method age (each unit of age multiplies a group's weight by {rho!r}) on "
        f"{counted(groups, 'calibration group')} with weights that add up to {total:.4g}"
    )
    if value == math.inf:
        return (
            f"Nothing ships, so exposure risk is 0. {basis}. They cannot support a budget below {100 * floor:.3g} %; "
            f"the budget asked for is {budget(alpha)}."
        )
    return (
        f"{what_ships(state_at(value))} On average, over calibrations and future groups alike, exposure risk "
        f"is at most {budget(alpha)} plus an unmeasured drift term: the weighted mean, over calibration groups, of "
        "how far the data moves in total variation when the group and the future one are exchanged (for "
        "independent groups at most twice the distance of their distributions). Exposure risk is severity where an "
        f"item ships and 0 where it is held, each group counting once and its items equally. {basis}; no "
        f"budget below {100 * floor:.3g} % can be met with them. Assumptions: the labelled items of a group are all "
        "of its items, or were drawn at random before any label was seen; the weights follow from ages "
        "alone; the score, the method, rho and the budget were fixed before any label was read; severities "
        "lie in [0, 1] and mean what the budget is about. Not promised: that the drift term is small; that "
        f"risk is at most {budget(alpha)} unless groups are exchangeable, when the term is 0; a bound "
        "with high probability, for a single prompt or kind of prompt, or on severity among the shipped alone."
    )


@dataclass(frozen=True, slots=True)
class Age(Calibrator):
    """A budget while the world moves: older groups count less."""

    name: ClassVar[str] = "age"
    place: ClassVar[int] = 30
    by_order: ClassVar[bool] = True
    by_sum: ClassVar[bool] = True
    summary: ClassVar[str] = "older groups count less, for a world that moves"
    promise: ClassVar[str] = "E[exposure risk] <= alpha + a drift term that is not measured"
    against_mean: ClassVar[str] = (
        "gives newer prompts more weight, so that its own curve and threshold are others."
    )

    rho: float = parameter(
        0.99, "factor on a group's weight for each newer group", metavar="R", most=1, open_least=True
    )

    def calibrate(self, sample: Sample) -> Calibrated:
        """Weigh groups by how many are newer."""
        newest = len(sample.groups) - 1
        ages = {group.id: float(newest - position) for position, group in enumerate(sample.groups)}
        return Calibrated(calibrate_by_age(sample.groups, alpha=sample.alpha, ages=ages, rho=self.rho))

    def promised(self, risk: str, alpha: float) -> str:
        """It has a term that nobody measures."""
        return (
            f"{Calibrator.promised(self, risk, alpha)} plus an unmeasured drift term, which is 0 where "
            f"prompts are exchangeable (each newer prompt multiplies a prompt's weight by {self.rho!r})"
        )

    def why_closed(self, sample: Sample) -> str | None:
        """The weights may not add up to enough, however many groups there are."""
        weight = sum(self.rho**age for age in range(len(sample.groups)))
        if sample.alpha >= 1 / (1 + weight):
            return None
        return (
            f"with rho {self.rho:g} the weights of the groups add up to {weight:.4g}, which supports no budget below "
            f"{100 / (1 + weight):.3g} %; more groups or a larger rho do, and the budget is {budget(sample.alpha)}"
        )
