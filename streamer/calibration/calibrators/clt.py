"""The normal band of the mean loss: a diagnostic, right as groups grow in number, that promises nothing.

With Lbar(l) and s(l) the mean and standard deviation of the group losses L_g(l), lambda is the smallest l
such that

    Lbar(l') + z s(l') / sqrt(G) + 1/(G + 1) <= alpha    for l' = l and every larger l',    z = Phi^-1(1 -
    delta).

By the central limit theorem the risk at a *fixed* l lies below the band with a probability that tends to 1 -
delta. At any real number of groups it may miss far more often, most of all where losses are rare.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha, check_delta
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, groups_needed, what_ships
from streamer.calibration.item_table import Floats, ItemTable
from streamer.calibration.loss_curve import TOLERANCE
from streamer.calibration.specification import Calibrated, Calibrator, Family, Sample, parameter
from streamer.calibration.threshold import Threshold, state_at

_MARGIN = 1e-6


def calibrate_clt(
    groups: Sequence[LabelledGroup] | ItemTable, *, alpha: float, delta: float = 0.1
) -> Threshold:
    """Find the smallest threshold from which on the asymptotic band stays inside the budget, alpha
    in (0, 1).

    The items of a group weigh the same; fewer than two groups give a closed threshold, because one
    has no spread. `delta`, in (0, 0.5], is the nominal chance that the band misses; the actual one
    is not bounded. Raises `ValueError` if a group id repeats or an argument is not valid.
    """
    from scipy.special import ndtri  # slow to import, and only this method needs it

    alpha, delta = check_alpha(alpha), check_delta(delta)
    if delta > 0.5:
        raise ValueError(f"delta must be at most 0.5, or the band would lie below the mean, not {delta!r}")
    table = ItemTable.of(groups)
    value = _first_outside(table, alpha, float(-ndtri(delta)))
    return Threshold.at(
        value,
        alpha=alpha,
        method="clt",
        groups=table.groups,
        guarantee=_guarantee(value, alpha, delta, table.groups),
    )


def _first_outside(table: ItemTable, alpha: float, z: float) -> float:
    """Walk from the strictest level down and stop at the first where the band leaves the budget."""
    if table.groups < max(2, groups_needed(alpha)):
        return math.inf
    room = alpha - 1 / (table.groups + 1)
    levels = table.loss_levels()

    def outside(rows: Floats) -> NDArray[np.bool_]:
        upper = rows.mean(axis=1) + z * rows.std(axis=1, ddof=1) / math.sqrt(table.groups)
        return np.asarray(upper > room + TOLERANCE)

    return table.first_level(levels, outside, start=_surely_inside(table, levels, room, z))


def _surely_inside(table: ItemTable, levels: Floats, room: float, z: float) -> int:
    """Return how many of the strictest levels need no exact sums: by running sums of L and L^2 over the items, whose
    rounding is far below the margin, the band lies inside there.
    """
    if not len(levels):
        return 0
    terms, groups = table.losses, table.groups
    position = np.searchsorted(-levels, -table.scores, side="left")
    by_group = np.lexsort((position, table.index))
    summed = np.cumsum(terms[by_group])
    ends = np.cumsum(table.sizes)
    offsets = np.concatenate([[0.0], summed[ends[:-1] - 1]])
    after = np.empty_like(terms)
    after[by_group] = summed - np.repeat(offsets, table.sizes)
    squares = after**2 - (after - terms) ** 2
    inside = position < len(levels)  # what scores below every level that carries loss adds none
    add = np.bincount(position[inside], weights=terms[inside], minlength=len(levels)).cumsum()
    add_squares = np.bincount(position[inside], weights=squares[inside], minlength=len(levels)).cumsum()
    spread = np.sqrt(np.maximum(add_squares - add**2 / groups, 0.0) / (groups - 1))
    upper = add / groups + z * spread / math.sqrt(groups)
    near = np.flatnonzero(upper > room - _MARGIN)
    return int(near[0]) if len(near) else len(levels)


def _guarantee(value: float, alpha: float, delta: float, groups: int) -> str:
    basis = f"Basis: method clt on {counted(groups, 'calibration group')}"
    if value == math.inf:
        return (
            f"Nothing ships, so exposure risk is 0. {basis}; the asymptotic band needs two groups and at "
            f"least {groups_needed(alpha)} for the budget {budget(alpha)}."
        )
    return (
        f"{what_ships(state_at(value))} Asymptotic, no finite-sample promise: as the number of independent "
        "groups grows, the chance that exposure risk at a fixed threshold lies above the band tends to "
        f"{delta!r}. {basis}. A diagnostic beside a method that does promise something. Not promised: that "
        f"exposure risk is at most {budget(alpha)}, on average or with any probability, at this or "
        "any other number of groups."
    )


@dataclass(frozen=True, slots=True)
class Clt(Calibrator):
    """The asymptotic band, for a look at it."""

    name: ClassVar[str] = "clt"
    place: ClassVar[int] = 90
    summary: ClassVar[str] = "the asymptotic normal band"
    promise: ClassVar[str] = "nothing: asymptotic"
    family: ClassVar[Family] = "no promise"
    offered: ClassVar[bool] = False
    arrays: ClassVar[bool] = True

    delta: float = parameter(
        0.1, "nominal chance that the band misses", metavar="D", most=0.5, open_least=True
    )

    def calibrate(self, sample: Sample) -> Calibrated:
        """Find where the band leaves the budget."""
        return Calibrated(calibrate_clt(sample.groups, alpha=sample.alpha, delta=self.delta))
