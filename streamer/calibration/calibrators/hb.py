"""Hoeffding-Bentkus: a budget with high probability, whatever the order of the groups."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamer.calibration.high_probability import BoundedRisk, delta_parameter
from streamer.calibration.item_table import ItemTable
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.loss_curve import LossCurve
from streamer.calibration.p_values import hoeffding_bentkus


@dataclass(frozen=True, slots=True)
class Hb(BoundedRisk):
    """The Hoeffding-Bentkus bound (Bates and others, 2021)."""

    name: ClassVar[str] = "hb"
    place: ClassVar[int] = 20
    summary: ClassVar[str] = "the budget for this calibration, with high probability (Hoeffding-Bentkus)"
    bound: ClassVar[str] = "Hoeffding-Bentkus"

    delta: float = delta_parameter()

    def level(self, table: ItemTable, alpha: float, keyed: KeyedWeights) -> float:
        """The p-value grows with the summed loss: the first level that is not rejected is found by halving."""
        curve = LossCurve.of(table.scores, table.losses)
        totals = [0.0, *np.minimum(curve.totals, table.groups).tolist()]
        rejected, first = -1, len(totals)
        while first - rejected > 1:
            middle = (first + rejected) // 2
            if hoeffding_bentkus(totals[middle], table.groups, alpha) <= self.delta:
                rejected = middle
            else:
                first = middle
        if first == 0:
            return math.inf
        return -math.inf if first == len(totals) else float(curve.levels[first - 1])

    def groups_needed(self, alpha: float) -> int:
        """(1 - alpha)^G <= delta."""
        return math.ceil(-math.log(self.delta) / -math.log1p(-alpha))
