"""An anytime-valid interval of a risk, and what it says of the period's budget."""

import math
from dataclasses import dataclass, replace

from streamer.calibration.arguments import check_alpha, check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskInterval:
    """A risk of t `decisions` between two bounds in [0, 1] that hold together, at all times at
    once, with probability 1 - delta.

    `labels`: drawn decisions whose loss is known, by a label or because nothing shipped; `overdue`:
    those whose label had not come at the deadline. `estimate`: unbiased, with overdue labels at 1,
    cut to [0, 1]; None where there is nothing to estimate.
    """

    decisions: int
    labels: int
    overdue: int
    estimate: float | None
    lower: float
    upper: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetBurn:
    """How much of a period's budget has been used, and how long the rest lasts at the rate so far.

    The shares have the confidence of the interval they come from. Days left extrapolate the mean rate since the
    period began: nothing is promised about what comes.

    `used`: share of the period's budget, 0 or more; above 1 it is overspent; None without any
    label. `used_lower`, `used_upper`: its bounds. `days_left`: days from the newest decision
    counted until the budget is gone; 0 if it is, inf if nothing is used; None where `used` is, and
    of a gate that ships nothing or has broken its budget: the rate so far says nothing of what
    comes. `days_left_soonest`: the same at the upper bound. `unread`: decisions that shipped
    something, wait for a label or behind one that does, and are as wrong as can be in that bound.
    """

    used: float | None
    used_lower: float
    used_upper: float
    days_left: float | None
    days_left_soonest: float | None
    unread: int = 0


def with_unread(read: RiskInterval, size: float, *, unread: float, whole: float) -> RiskInterval:
    """Return the interval of a `whole`, of which `read` is about `size` and the rest lost between 0 and `unread`.

    Where reading stops may depend on labels: the bounds of what is read hold at all times at once.
    """
    if whole <= 0:
        return replace(read, lower=0.0, upper=1.0)
    return replace(
        read, lower=read.lower * size / whole, upper=min(1.0, (read.upper * size + unread) / whole)
    )


def budget_burn(
    exposure: RiskInterval,
    *,
    alpha: float,
    elapsed_days: float,
    period_days: float,
    unread: int = 0,
) -> BudgetBurn:
    """Say how much of a period's budget is used: t risk / (alpha N), N decisions in the whole period at the rate so far.

    `exposure`: the interval of all decisions since the period began, those that wait for labels
    included (`with_unread`); `unread`: how many of these shipped something. `alpha`: the budget on
    exposure risk, in (0, 1). `elapsed_days`: from the period's begin to the newest decision, above
    0 and at most `period_days`. `period_days`: length of the period, positive. Raises `ValueError`
    if an argument is not valid.
    """
    alpha = check_alpha(alpha)
    period, elapsed = check_positive("period_days", period_days), check_positive("elapsed_days", elapsed_days)
    if elapsed > period:
        raise ValueError(f"elapsed_days must be at most period_days, {period!r}, not {elapsed_days!r}")
    spent = elapsed / period if exposure.decisions else 0.0
    least, most = (risk / alpha * spent for risk in (exposure.lower, exposure.upper))
    used = None if exposure.estimate is None else exposure.estimate / alpha * spent
    return BudgetBurn(
        used=used,
        used_lower=least,
        used_upper=most,
        days_left=None if used is None else _days(used, elapsed),
        days_left_soonest=_days(most, elapsed),
        unread=unread,
    )


def _days(used: float, elapsed: float) -> float:
    return max(0.0, 1 - used) * elapsed / used if used > 0 else math.inf
