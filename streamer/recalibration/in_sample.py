"""What a threshold does to the groups that it was calibrated on, in figures and in a sentence. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamer.gates.declared import Unit
from streamer.recalibration.comparison import Reading, losses, ship_rate, shipped
from streamer.recalibration.sampled import SampledGroup


@dataclass(frozen=True, slots=True)
class InSample:
    """Figures of some groups at a threshold, each group counting once.

    Attributes
    ----------
    groups : how many there are, >= 1.
    served : share of their units that ship, in [0, 1].
    exposure : mean severity where a unit ships, held ones counting 0; a missing severity counts 1.
    wrong : mean severity among what ships; None where nothing does.
    labelled : labelled responses that ship; of a gate by chance those that may.
    """

    groups: int
    served: float
    exposure: float
    wrong: float | None
    labelled: int


def in_sample(reading: Reading, unit: Unit, groups: Sequence[SampledGroup]) -> InSample | None:
    """Return what a threshold does to these groups; None for no groups."""
    if not groups:
        return None
    served, exposure = ship_rate(reading, unit, groups), float(losses(reading, unit, groups).mean())
    labelled = 0
    if not reading.ships_nothing:
        sizes = [len(group.items) for group in groups]
        known = np.array([item.severity is not None for group in groups for item in group.items])
        labelled = int((known & (shipped(reading, unit, groups, sizes) > 0)).sum())
    return InSample(len(groups), served, exposure, exposure / served if served > 0 else None, labelled)
