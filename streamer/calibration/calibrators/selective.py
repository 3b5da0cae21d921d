"""The error rate among shipped answers, bounded with high probability: a walk over shares of unlabelled history.

SR(t) = E[m | Q > t], of one item of each group. Unlabelled history fixes cuts that would ship 30, 40, ..., 100 % of it
(`streamer.calibration.history`). At a cut t with n labelled items above it, of which e are wrong,

    p = P(Bin(n, alpha) <= e),

and the walk goes from the strictest cut down while p <= delta. The last cut passed is lambda; none: closed.

P(SR(lambda) > alpha) <= delta. Given the history the cuts are fixed numbers; given n the items above a fixed cut are
independent draws of m | Q > t, wrong with probability SR(t) (graded severities by a keyed coin of that probability), so that
P(p <= delta) <= delta where SR(t) > alpha; and lambda has SR > alpha only if the first such cut on the walk is passed, which
is one fixed cut. SR need not fall in t, and delta is not divided.

Without a history the levels are ranks of the calibration's own scores: that which 30, 40, ..., 90 % of the groups may pass,
and the floor. Given its value and n, what scores above a rank is a sample of m | Q > t too, but which level is the first
that breaks the budget then follows from the same scores. So the walk is not proved, and each level is tested at delta/8 in
its place (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, check_delta, whole_number
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, what_ships
from streamer.calibration.high_probability import delta_parameter
from streamer.calibration.history import NO_HISTORY, TENTHS, History
from streamer.calibration.one_item import Counted, OneItem
from streamer.calibration.p_values import binomial
from streamer.calibration.specification import Calibrated, Calibrator, Family, Risk, Sample
from streamer.calibration.threshold import Threshold

Indices = NDArray[np.intp]


def calibrate_selective(
    groups: Sequence[LabelledGroup],
    *,
    alpha: float,
    delta: float = 0.1,
    history: History = NO_HISTORY,
    floor: float = 0.0,
    seed: int,
) -> Threshold:
    """Find a threshold whose selective risk is at most alpha, in (0, 1), with probability at least
    1 - delta over the draw of the groups.

    One item of each group counts. `history` is of other prompts of the same population; one without
    cuts means the calibration's own scores, at delta/8. `floor`, in [0, 1], is the least threshold;
    what scores below it needs no label. Floor and `seed` are fixed before labels are read. Returns
    the last cut that was passed, at least `floor`, or closed. Raises `ValueError` if a group id
    repeats or an argument is not valid.
    """
    alpha, delta = check_alpha(alpha), check_delta(delta)
    if not 0 <= floor <= 1:
        raise ValueError(f"floor must lie in [0, 1], not {floor!r}")
    items = OneItem(groups, whole_number("seed", seed))
    cuts = _cuts(items, history, floor)
    shipped, errors = items.above_each(np.array(cuts))
    find = last_walked if history.cuts else last_of_own
    last = int(find(shipped, errors, alpha, delta))
    value = math.inf if last < 0 else cuts[last]
    return Threshold.at(
        value,
        alpha=alpha,
        method=Selective.name,
        groups=len(groups),
        guarantee=_guarantee(value, alpha, delta, len(groups), history, items.above(value)),
    )


def last_walked(shipped: Indices, errors: Indices, alpha: float, delta: float) -> Indices:
    """Walk over cuts that were fixed beforehand, from the strictest down; return the position of
    the last one passed, -1 for none.

    `shipped` and `errors`, shape (..., k), are counted at the cuts.
    """
    passed = binomial(errors, shipped, alpha) <= delta
    walked: Indices = np.logical_and.accumulate(passed, axis=-1).sum(axis=-1) - 1
    return walked


def last_of_own(shipped: Indices, errors: Indices, alpha: float, delta: float) -> Indices:
    """Test levels of the calibration's own scores, the strictest first, each at delta/8; return the
    position of the lowest that holds, or -1.

    `shipped` and `errors` have shape (..., k), k <= 8.
    """
    passed = binomial(errors, shipped, alpha) <= delta / len(TENTHS)
    lowest: Indices = np.where(passed, np.arange(1, passed.shape[-1] + 1), 0).max(axis=-1) - 1
    return lowest


def _cuts(items: OneItem, history: History, floor: float) -> list[float]:
    """The levels to test, falling."""
    if history.cuts:
        return sorted({max(cut, floor) for cut in history.cuts}, reverse=True)
    scores = items.scores
    ranks = [math.ceil(tenths * len(scores) / 10) for tenths in TENTHS]
    own = {max(float(scores[rank]), floor) for rank in ranks if rank < len(scores)}
    return sorted(own | {floor}, reverse=True)


def shipped_needed(alpha: float, delta: float) -> int:
    """Return how many labelled shipped answers show the budget if none of them is wrong: (1 - alpha)^n <= delta."""
    return math.ceil(math.log(delta) / math.log1p(-alpha))


def _guarantee(
    value: float, alpha: float, delta: float, groups: int, history: History, found: Counted
) -> str:
    levels = (
        f"a walk over {counted(len(history.cuts), 'cut')} that would ship 30 to 100 % of "
        f"{counted(history.prompts, 'unlabelled prompt')}"
        if history.cuts
        else f"no history of unlabelled prompts: {len(TENTHS)} levels of the calibration's own scores, each at delta/{len(TENTHS)}"
    )
    basis = f"Basis: method selective (binomial test; {levels}) on {counted(groups, 'calibration group')}"
    if value == math.inf:
        return (
            f"Nothing ships, so nothing that ships is wrong. {basis}, which do not show that at most {budget(alpha)} of what "
            f"ships is wrong with probability {1 - delta:.6g} at the strictest cut; "
            f"{shipped_needed(alpha, delta)} labelled answers above a cut show it if none of them is wrong."
        )
    return (
        f"{what_ships('cut')} With probability at least {1 - delta:.6g} over the draw of the calibration groups, at most "
        f"{budget(alpha)} of what ships at this cut is wrong (selective risk): the mean severity of a random item of a random "
        f"future group, given that it ships. {basis}, with {counted(found.errors, 'error')} in the "
        f"{counted(found.shipped, 'labelled answer')} that score above the cut. Assumptions: calibration groups, future "
        "groups and the unlabelled prompts are independent draws from one population, which is more than exchangeable; the "
        "labelled items of a group are all of its items, or were drawn at random before any label was seen; the score, alpha, "
        "delta, the floor and the seed were fixed before any label was read; severities lie in [0, 1] and mean what the "
        "budget is about. Not promised: a bound for a single prompt or kind of prompt; how much ships; the same of the cuts "
        "that ship at all, if most calibrations ship nothing; a joint bound over several calibrations, each of which may fail "
        f"with probability {delta!r}."
    )


@dataclass(frozen=True, slots=True)
class Selective(Calibrator):
    """A budget on the error rate among what ships."""

    name: ClassVar[str] = "selective"
    place: ClassVar[int] = 22
    summary: ClassVar[str] = "a budget on the error rate among shipped answers, with high probability"
    promise: ClassVar[str] = (
        "P(selective risk <= alpha) >= 1 - delta, over the draw of the calibration groups"
    )
    asked_as: ClassVar[str] = "among-shipped"
    family: ClassVar[Family] = "with high probability"
    risk: ClassVar[Risk] = "selective"
    by_quantile: ClassVar[bool] = False
    attempts: ClassVar[bool] = False
    reads_history: ClassVar[bool] = True

    delta: float = delta_parameter()

    def calibrate(self, sample: Sample) -> Calibrated:
        """Walk."""
        found = calibrate_selective(
            sample.groups,
            alpha=sample.alpha,
            delta=self.delta,
            history=sample.history,
            floor=sample.floor or 0.0,
            seed=sample.seed,
        )
        return Calibrated(found)

    def groups_needed(self, alpha: float) -> int:
        """So many labelled answers must ship, if none of them is wrong."""
        return shipped_needed(alpha, self.delta)

    def why_closed(self, sample: Sample) -> str | None:
        """Nothing was shown."""
        items = OneItem(sample.groups, sample.seed)
        strictest = items.above(_cuts(items, sample.history, sample.floor or 0.0)[0])
        return (
            f"at the strictest cut {strictest.errors} of {counted(strictest.shipped, 'labelled answer')} are wrong, which does "
            f"not show that at most {budget(sample.alpha)} of what ships is, with probability {1 - self.delta:g}; "
            f"{shipped_needed(sample.alpha, self.delta)} without an error do, and more labels may"
        )
