"""Equal weights: every labelled item of a group weighs the same. The most stable threshold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.weighting import WeightingScheme

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mean(WeightingScheme):
    """Conformal risk control with equal weights."""

    name: ClassVar[str] = "mean"
    place: ClassVar[int] = 0
    asked_as: ClassVar[str] = "per-prompt"
    summary: ClassVar[str] = "equal weights within a group: the most stable threshold"
    against_mean: ClassVar[str] = ""
    random: ClassVar[bool] = False
    by_sum: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """The scheme in words."""
        return "every labelled item of a group weighs the same"

    def drawn(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Give each of a group's I items 1/I."""
        return np.repeat(1.0 / sizes, sizes)

    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Give each of the items 1/I."""
        return np.full(len(items), 1.0 / len(items))
