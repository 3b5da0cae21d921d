"""Dirichlet weights within each group: the paper's RBWA-CRC."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import weight_draws
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.specification import parameter
from streamer.calibration.weighting import WeightingScheme

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rbwa(WeightingScheme):
    """Conformal risk control with randomised weights: the larger `eta`, the nearer to equal ones."""

    name: ClassVar[str] = "rbwa"
    place: ClassVar[int] = 3
    summary: ClassVar[str] = "Dirichlet weights (the paper's RBWA-CRC); their randomness adds variance"

    eta: float = parameter(1.0, "Dirichlet concentration", metavar="E", open=True)

    @property
    def words(self) -> str:
        """The scheme in words."""
        return f"Dirichlet weights of concentration {self.eta:g} within each group"

    def drawn(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Draw each group's weights."""
        return weight_draws.rbwa_weights(sizes, self.eta, rng)

    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Draw the group's weights."""
        return keys.rbwa(group, items, self.eta)
