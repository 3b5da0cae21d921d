"""Batched bootstrap: draws with replacement from the items of each group; the paper's BB-CRC."""

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
class Bb(WeightingScheme):
    """Conformal risk control with bootstrap weights."""

    name: ClassVar[str] = "bb"
    place: ClassVar[int] = 2
    summary: ClassVar[str] = "batched bootstrap (the paper's BB-CRC); its randomness adds variance"

    draws: int = parameter(20, "bootstrap draws per group", metavar="K", least=1, whole=True)

    @property
    def words(self) -> str:
        """The scheme in words."""
        return f"{self.draws} draws with replacement from the items of each group"

    def drawn(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Give each item the share of the draws that fell on it."""
        return weight_draws.bb_weights(sizes, self.draws, rng)

    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Give each item the share of the draws that fell on it."""
        return keys.bb(group, items, self.draws)
