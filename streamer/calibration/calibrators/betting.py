"""Betting: a budget with high probability, by wagers on the groups one after the other."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamer.calibration.high_probability import BoundedRisk, delta_parameter
from streamer.calibration.item_table import ItemTable
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.p_values import betting
from streamer.calibration.specification import Sample


@dataclass(frozen=True, slots=True)
class Betting(BoundedRisk):
    """The betting bound (Waudby-Smith and Ramdas, 2024): it ships more than `hb`."""

    name: ClassVar[str] = "betting"
    place: ClassVar[int] = 21
    summary: ClassVar[str] = "the same by betting: it ships more"
    bound: ClassVar[str] = "betting, in an order of the groups that the seed fixes"
    seeded: ClassVar[bool] = True
    # Bets depend on the spread of losses: a larger loss may, rarely, make a later bet win more.
    only_stricter: ClassVar[bool] = False

    delta: float = delta_parameter()

    def level(self, table: ItemTable, alpha: float, keyed: KeyedWeights) -> float:
        if betting(np.zeros((1, table.groups)), alpha, self.delta)[0] > self.delta:
            return math.inf
        order = keyed.order(table.ids)
        return table.first_level(
            table.loss_levels(),
            lambda rows: betting(np.minimum(rows[:, order], 1.0), alpha, self.delta) > self.delta,
        )

    def groups_needed(self, alpha: float) -> int:
        """A gambler who always wins has at most (1 + alpha)^G, and needs 1/delta."""
        return math.ceil(-math.log(self.delta) / math.log1p(alpha))

    def cost(self, sample: Sample) -> int:
        """Every score is a row of bets."""
        return sample.levels * len(sample.groups)
