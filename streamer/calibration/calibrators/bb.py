"""Batched bootstrap: draws with replacement from the items of each group; the paper's BB-CRC."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.specification import parameter
from streamer.calibration.weighting import WeightingScheme, starts

Floats = NDArray[np.float64]

_DRAWS_PER_DIGEST = 4


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
        first = starts(sizes)
        counts = np.zeros(int(sizes.sum()), dtype=np.int64)
        for size in np.unique(sizes).tolist():
            of_this_size = np.flatnonzero(sizes == size)
            items = first[of_this_size, np.newaxis] + np.arange(size)
            counts[items] = rng.multinomial(self.draws, np.full(size, 1 / size), size=len(of_this_size))
        return counts / self.draws

    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Give each item the share of the draws that fell on it."""
        positions = sorted(range(len(items)), key=items.__getitem__)
        counts = np.zeros(len(items), dtype=np.int64)
        for first in range(0, self.draws, _DRAWS_PER_DIGEST):
            digest = keys.digest("bb", group, str(first))
            for draw in range(min(_DRAWS_PER_DIGEST, self.draws - first)):
                word = int.from_bytes(digest[8 * draw : 8 * draw + 8], "big")
                counts[positions[word * len(items) >> 64]] += 1
        return counts / self.draws
