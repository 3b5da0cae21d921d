"""Does the score separate good answers from bad ones: is what ships better than what is held? Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamer.recalibration.comparison import shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.gates.settings import Unit
    from streamer.recalibration.comparison import Reading
    from streamer.recalibration.run import SampledGroup

_LEVEL = 1.6448536269514722
"""The normal quantile of a one-sided test at 5 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """The severity of what a threshold ships beside that of what it holds, on labelled groups.

    Attributes
    ----------
    groups : labelled groups.
    shipped, held : mean severities.
    z : how many standard errors the first is below the second.
    """

    groups: int
    shipped: float
    held: float
    z: float

    @property
    def shown(self) -> bool:
        """Whether what ships is better, by a one-sided test at 5 %."""
        return self.z > _LEVEL

    @property
    def said(self) -> str:
        """Why a gate with such a score does not open by itself."""
        found, chance = "the score does not tell good answers from bad ones", ""
        if self.shipped < self.held:
            found, chance = (
                "it is not shown that the score tells good answers from bad ones",
                ", which may be chance",
            )
        return (
            f"{found}: on {self.groups} labelled groups the mean severity is {self.shipped:.3g} of what would ship and "
            f"{self.held:.3g} of what would be held{chance}"
        )


def separation(reading: Reading, unit: Unit, groups: Sequence[SampledGroup]) -> Separation | None:
    """Compare what ships with what is held; None where all ships or nothing does: there is nothing to compare.

    Items of a group are not independent: the standard error is over groups.
    """
    groups = [group for group in groups if all(item.severity is not None for item in group.items)]
    if not groups or reading.ships_nothing:
        return None
    sizes = [len(group.items) for group in groups]
    share = shipped(reading, unit, groups, sizes)
    severity = np.array([item.severity for group in groups for item in group.items], np.float64)
    if share.sum() == 0 or share.sum() == len(share):
        return None
    each = -(share - share.mean()) * (severity - severity.mean())
    starts = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.intp)
    of_groups = np.add.reduceat(each, starts)
    spread = math.sqrt(float(of_groups @ of_groups))
    return Separation(
        groups=len(groups),
        shipped=float(share @ severity / share.sum()),
        held=float((1 - share) @ severity / (1 - share).sum()),
        z=float(of_groups.sum()) / spread if spread > 0 else 0.0,
    )
