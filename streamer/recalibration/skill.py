"""Does the score separate good from bad: is what ships better than what is held? Pure.

A closed gate asks at each of its runs, of labels most of which it has read before. A test at 5 % of each would let every
fourth useless score pass within twenty runs. So the evidence may be looked at after every group. With X_g the sum over a group's
items of -(share that ships - its mean)(severity - its mean), each X_g >= -c, S their sum and V that of their squares, it is

    mean_k exp(l_k S - psi_c(l_k) V),    l_k = u_k / c,    psi_c(l) = (-ln(1 - c l) - c l) / c^2,

which knows that, where few ship and few are bad, the first bad one that ships weighs as much as all good ones before it. c is
the most that one item can take, or a group has taken if that is more. What the evidence has to reach grows with the samples
that began anew: the 5 % are spent once, over all of them.

Source: Fan, Grama and Liu, Exponential inequalities for martingales with applications (2015).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.gates.settings import GateSettings
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.comparison import Reading, shipped
from streamer.recalibration.sampled import SampledGroup, complete

LEVEL = 0.05
"""How likely a score without skill is ever taken for a useful one, over all runs of a gate."""

_STRENGTHS = np.array([0.8, 0.45, 0.22, 0.1, 0.045])
"""u_k: those of the alarms on labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """The mean severity of what a threshold ships beside that of what it holds, on labelled groups.

    `z`: how many standard errors the first is below the second. `log_evidence`: the logarithm of
    the evidence for that; `level`: how likely what is no better is ever shown to be, over all runs
    on this sample as it grows.
    """

    groups: int
    shipped: float
    held: float
    z: float
    log_evidence: float
    level: float = LEVEL

    @property
    def shown(self) -> bool:
        """Whether what ships is better, by a test that may be repeated as labels come."""
        return self.z > 0 and self.log_evidence >= -math.log(self.level)

    @property
    def said(self) -> str:
        """Why a gate with such a score does not open by itself."""
        found, chance = "the score does not tell good from bad", ""
        if self.shipped < self.held:
            found, chance = (
                "it is not shown that the score tells good from bad",
                ", which may be chance",
            )
        return (
            f"{found}: on {self.groups} labelled prompts the mean severity is {self.shipped:.3g} of what would ship and "
            f"{self.held:.3g} of what would be held{chance}"
        )


def level_of(alarms: int, cut: AgeCut | None) -> float:
    """Return what of the 5 % a sample may spend: the shares 1/2, 1/6, 1/12, ... of all samples come to the whole.

    A sample begins anew with each of the gate's closings by an alarm, and, as a window reads no more than so many
    draws, as often as the window has moved on by its own length.
    """
    level = LEVEL / ((alarms + 1) * (alarms + 2))
    if cut is None or cut.window is None:
        return level
    windows = max(math.ceil((cut.draws - cut.unused) / cut.window), 1)
    return level / (windows * (windows + 1))


def separation(
    reading: Reading, settings: GateSettings, groups: Sequence[SampledGroup], *, level: float = LEVEL
) -> Separation | None:
    """Compare what ships with what is held; None where all ships or nothing does: there is nothing to compare."""
    asked = [group.asked(settings) for group in complete(groups, settings)]
    groups = [group for group in asked if group.items]
    if not groups or reading.ships_nothing:
        return None
    sizes = [len(group.items) for group in groups]
    share = shipped(reading, settings.unit, groups, sizes)
    severity = np.array([item.severity for group in groups for item in group.items], np.float64)
    return separated(share, severity, sizes, level=level)


def separated(
    share: NDArray[np.float64], severity: NDArray[np.float64], sizes: Sequence[int], *, level: float
) -> Separation | None:
    """Compare by what of each item ships. Items of a group are not independent: the standard error is over groups."""
    if share.sum() == 0 or share.sum() == len(share):
        return None
    each = -(share - (ships := share.mean())) * (severity - (bad := severity.mean()))
    starts = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.intp)
    of_groups = np.add.reduceat(each, starts)
    most = max(float((1 - ships) * (1 - bad)), float(ships * bad), -float(of_groups.min()))
    variation = float(of_groups @ of_groups)
    costs = (-np.log1p(-_STRENGTHS) - _STRENGTHS) * variation / most**2
    spread = math.sqrt(variation)
    return Separation(
        groups=len(sizes),
        shipped=float(share @ severity / share.sum()),
        held=float((1 - share) @ severity / (1 - share).sum()),
        z=float(of_groups.sum()) / spread if spread > 0 else 0.0,
        log_evidence=float(np.logaddexp.reduce(_STRENGTHS * of_groups.sum() / most - costs))
        - math.log(len(_STRENGTHS)),
        level=level,
    )
