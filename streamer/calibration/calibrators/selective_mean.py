"""The error rate among shipped answers on average: the lowest cut with errors + 1 <= alpha (n + 1).

n is the number of labelled items above a cut, one item of each of G groups, and `errors` those that are wrong. With a fresh
group (Q, m), exchangeable with the G,

    E[ m 1{Q > lambda} (G + 1)/(n(lambda) + 1) ] <= alpha:

what a wrong answer costs that ships, over the share of the groups that ships. Proof: let f_t(i) = 1{Q_i > t}(m_i - alpha)
with m 0 or 1 (graded severities by a keyed coin, which keeps every mean), and S(t) their sum over all G + 1. S is a step
function, continuous from the right, and 0 from the largest score on; so l* = inf{t >= floor : S(t) <= 0} is attained, ties
included, and no order of the groups matters to it. With N(t) the number of the G + 1 above t, the errors above l* are at most
alpha N(l*), hence E[m 1{Q > l*}/N(l*)] <= alpha/(G + 1) by exchangeability. The rule's lambda has S(lambda) <= 0 whatever
the fresh m is, so that l* <= lambda. If m = 1 and Q > lambda, then S(t) > 0 at every t < lambda, which the rule refused; so
l* = lambda and N(l*) = n + 1. In every other case m 1{Q > lambda} = 0. Neither proof nor rule needs that risk falls in t.

E[m 1{Q > lambda}] <= alpha P(Q > lambda) is *not* claimed, and no rule that ever ships can have it: see
docs/proofs.md#what-no-rule-can-promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, groups_needed, what_ships
from streamer.calibration.loss_curve import TOLERANCE
from streamer.calibration.one_item import Counted, OneItem
from streamer.calibration.p_values import upper_share
from streamer.calibration.specification import Calibrated, Calibrator, Risk, Sample
from streamer.calibration.threshold import Threshold

Indices = NDArray[np.intp]

BOUND_DELTA = 0.1
"""Chance that the bound fails which the guarantee prints beside the measured error rate."""


def calibrate_selective_mean(
    groups: Sequence[LabelledGroup], *, alpha: float, floor: float = 0.0, seed: int
) -> Threshold:
    """Find the lowest threshold with errors + 1 <= alpha (n + 1), alpha in (0, 1): the floor, a
    score above it, or closed.

    One item of each group counts. `floor`, in [0, 1], is the least threshold; what scores below it
    needs no label. Floor and `seed` are fixed before labels are read. Closed with fewer than
    1/alpha - 1 groups. Raises `ValueError` if a group id repeats or an argument is not valid.
    """
    alpha = check_alpha(alpha)
    if not 0 <= floor <= 1:
        raise ValueError(f"floor must lie in [0, 1], not {floor!r}")
    items = OneItem(groups, whole_number("seed", seed))
    levels = np.unique(np.append(items.scores[items.scores > floor], floor))
    inside = np.flatnonzero(admitted(*items.above_each(levels), alpha))
    value = float(levels[inside[0]]) + 0.0 if len(inside) else math.inf
    return Threshold.at(
        value,
        alpha=alpha,
        method=SelectiveMean.name,
        groups=len(groups),
        guarantee=_guarantee(value, alpha, len(groups), items.above(value)),
    )


def admitted(shipped: Indices, errors: Indices, alpha: float) -> NDArray[np.bool_]:
    """Say where errors + 1 <= alpha (shipped + 1), for counts of any shape; within 1e-12, for the rounding of alpha."""
    room = alpha * (shipped + 1)
    inside: NDArray[np.bool_] = errors + 1 <= room + TOLERANCE * np.maximum(1.0, room)
    return inside


def upper_bound(shipped: int, errors: int, groups: int) -> float:
    """Return a bound on the selective risk at the cut, above it with a probability of at least 1 - `BOUND_DELTA`.

    Each of the G ranks of the groups' scores, and the floor, has a Clopper-Pearson bound of its own (Bonferroni), given how
    many groups score above it; the cut is one of them.
    """
    return float(upper_share(np.array(errors), np.array(shipped), BOUND_DELTA / (groups + 1)))


def _guarantee(value: float, alpha: float, groups: int, found: Counted) -> str:
    basis = f"Basis: method selective-mean on {counted(groups, 'calibration group')}"
    if value == math.inf:
        return (
            f"Nothing ships, so nothing that ships is wrong. {basis}, of which no cut has so few errors among what ships "
            f"that errors + 1 is at most {budget(alpha)} of their number + 1; {groups_needed(alpha)} without an error would do."
        )
    bound = upper_bound(found.shipped, found.errors, groups)
    return (
        f"{what_ships('cut')} On average over calibrations and future groups alike, the severity of what ships, divided by the "
        f"share of groups that ships, is at most {budget(alpha)}, where the share is counted among the calibration groups and the "
        f"future one and held groups count 0. {basis}: at this cut {counted(found.errors, 'error')} in the "
        f"{counted(found.shipped, 'labelled answer')} above it; with probability at least {1 - BOUND_DELTA:g} at most "
        f"{budget(math.ceil(1000 * bound) / 1000)} of what ships at it is wrong, for independent groups. Assumptions: future "
        "groups are exchangeable with the calibration groups; the labelled items of a group are all of its items, or were "
        "drawn at random before any label was seen; the score, alpha, the floor and the seed were fixed before any label was "
        "read; severities lie in [0, 1] and mean what the budget is about. Not promised: that at most "
        f"{budget(alpha)} of what ships at this cut is wrong, which about half of all calibrations exceed where most of them open; "
        "that the average severity shipped is at most that times the average share that ships, which no rule can promise; "
        "anything given that the gate opened; a bound for a single prompt or kind of prompt."
    )


@dataclass(frozen=True, slots=True)
class SelectiveMean(Calibrator):
    """A budget on the error rate among what ships, on average."""

    name: ClassVar[str] = "selective-mean"
    place: ClassVar[int] = 15
    summary: ClassVar[str] = "a budget on the error rate among shipped answers, on average"
    promise: ClassVar[str] = (
        "E[severity shipped / share that ships] <= alpha, the share counted among the calibration groups and the future one"
    )
    asked_as: ClassVar[str] = "among-shipped-on-average"
    risk: ClassVar[Risk] = "selective"
    by_quantile: ClassVar[bool] = False
    attempts: ClassVar[bool] = False

    def calibrate(self, sample: Sample) -> Calibrated:
        """Find the lowest cut that is admitted."""
        return Calibrated(
            calibrate_selective_mean(
                sample.groups, alpha=sample.alpha, floor=sample.floor or 0.0, seed=sample.seed
            )
        )

    def why_closed(self, sample: Sample) -> str | None:
        """No cut was admitted."""
        return (
            f"no cut has so few errors that errors + 1 is at most {budget(sample.alpha)} of the labelled answers above it + 1; "
            "more labels may, if answers with high scores are good"
        )
