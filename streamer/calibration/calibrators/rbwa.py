"""Dirichlet weights within each group: the paper's RBWA-CRC."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.specification import parameter
from streamer.calibration.weighting import WeightingScheme, starts

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
        items = int(sizes.sum())
        gammas = rng.standard_gamma(self.eta + 1.0, items)
        return self._normalised(gammas, 1.0 - rng.random(items), sizes)

    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Draw the group's weights."""
        from scipy.special import gammaincinv  # slow to import, and only this scheme needs it

        words = np.frombuffer(
            b"".join([digest[:16] for digest in keys.digests(("rbwa", group), items)]), dtype=">u8"
        )
        uniforms = ((words >> 11).astype(np.float64) + 0.5) * 2.0**-53
        gammas = np.asarray(gammaincinv(self.eta + 1.0, uniforms[0::2]), dtype=np.float64)
        # sorted by name, so that sums round alike in whatever order the items came
        order = sorted(range(len(items)), key=items.__getitem__)
        weights = np.empty(len(items))
        weights[order] = self._normalised(gammas[order], uniforms[1::2][order], np.array([len(items)]))
        return weights

    def _normalised(self, gammas: Floats, uniforms: Floats, sizes: NDArray[np.int64]) -> Floats:
        """Turn Gamma(eta + 1) and uniform variates in (0, 1], both of shape (N,), into Dirichlet(eta) weights of each group.

        Gamma(eta) is distributed as Gamma(eta + 1) U**(1/eta). In logarithms, less each group's
        largest, it cannot underflow to a group of zeros, however small `eta` is.
        """
        first = starts(sizes)
        scale = min(
            self.eta, 1.0
        )  # logarithms times this neither overflow for a small eta nor for a large one
        logs = np.log(uniforms) * (scale / self.eta) + scale * np.log(gammas)
        logs -= np.repeat(np.maximum.reduceat(logs, first), sizes)
        with np.errstate(over="ignore", under="ignore"):
            parts: Floats = np.exp(logs / scale)
        parts /= np.repeat(np.add.reduceat(parts, first), sizes)
        return parts
