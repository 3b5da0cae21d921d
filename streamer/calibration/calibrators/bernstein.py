"""Empirical Bernstein: a budget with high probability that adapts to the spread of losses and knows no order or seed.

For G independent losses in [0, 1] with mean L and variance V (divisor G - 1), with probability at least 1 - delta

    E[loss] <= L + sqrt(2 V ln(2/delta) / G) + 7 ln(2/delta) / (3 (G - 1))

(Maurer and Pontil, Empirical Bernstein Bounds and Sample Variance Penalization, 2009, theorem 4). A level is rejected where
this is at most alpha; levels are tested in a fixed sequence as `streamer.calibration.high_probability` says.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.high_probability import BoundedRisk, delta_parameter
from streamer.calibration.item_table import ItemTable
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.specification import Sample


@dataclass(frozen=True, slots=True)
class Bernstein(BoundedRisk):
    """The empirical Bernstein bound."""

    name: ClassVar[str] = "bernstein"
    place: ClassVar[int] = 23
    summary: ClassVar[str] = (
        "the same by empirical Bernstein: no order, no seed; for many groups of which few lose"
    )
    bound: ClassVar[str] = "empirical Bernstein"
    # It depends on the spread of losses: a larger loss may, rarely, lower the bound.
    only_stricter: ClassVar[bool] = False

    delta: float = delta_parameter()

    def level(self, table: ItemTable, alpha: float, keyed: KeyedWeights) -> float:
        """Walk from the strictest level down and stop at the first whose bound passes the budget."""
        if table.groups < self.groups_needed(alpha):
            return math.inf
        log = math.log(2 / self.delta)
        room = alpha - 7 * log / (3 * (table.groups - 1))

        def outside(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
            losses = np.minimum(rows, 1.0)
            spread = np.sqrt(2 * log / table.groups) * losses.std(axis=1, ddof=1)
            return np.asarray(losses.mean(axis=1) + spread > room)

        return table.first_level(table.loss_levels(), outside)

    def groups_needed(self, alpha: float) -> int:
        """The last term alone must be within the budget."""
        return math.ceil(7 * math.log(2 / self.delta) / (3 * alpha)) + 1

    def cost(self, sample: Sample) -> int:
        """Every score is a row of losses."""
        return sample.levels * len(sample.groups)
