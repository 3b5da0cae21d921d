"""One item of each group, drawn at random: plain Conformal Risk Control (Angelopoulos and others, 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.weighting import WeightingScheme, starts

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Crc(WeightingScheme):
    """Conformal risk control on one drawn item a group."""

    name: ClassVar[str] = "crc"
    place: ClassVar[int] = 1
    summary: ClassVar[str] = "one drawn item a group: plain Conformal Risk Control"

    @property
    def words(self) -> str:
        """The scheme in words."""
        return "one item of each group, drawn at random"

    def drawn(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Give one item of each group the whole weight."""
        weights = np.zeros(int(sizes.sum()))
        weights[starts(sizes) + rng.integers(sizes)] = 1.0
        return weights

    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Give the whole weight to the item whose digest is the smallest."""
        weights = np.zeros(len(items))
        weights[keys.pick(group, items)] = 1.0
        return weights
