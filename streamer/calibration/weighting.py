"""Weighting schemes: how the labelled items of a group share its weight of 1, each with mean 1/I for every item.

Conformal risk control with any of them keeps the budget on average; see `streamer.calibration.crc`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from streamer.calibration.specification import Calibrated, Calibrator, Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streamer.calibration.keyed_weights import KeyedWeights

    Floats = NDArray[np.float64]


class WeightingScheme(Calibrator):
    """A calibrator that differs from the others of its kind by its weights alone."""

    __slots__ = ()

    promise = "E[exposure risk] <= alpha, over calibrations and future prompts alike"
    against_mean: ClassVar[str] = (
        "draws its weights at random, so that its own curve and threshold differ a little."
    )
    by_chance: ClassVar[bool] = True
    by_segment: ClassVar[bool] = True
    random: ClassVar[bool] = True
    """Whether the weights are drawn; the seed is then part of what is fixed beforehand."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The scheme in words, for guarantees."""

    @abstractmethod
    def drawn(self, sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        """Return weights of shape (sum(sizes),) of groups that stand one after the other; `sizes` has shape (G,)."""

    @abstractmethod
    def keyed(self, group: str, items: Sequence[str], keys: KeyedWeights) -> Floats:
        """Return the weights of one named group of two or more items, in their order, derived from seed and names."""

    def calibrate(self, sample: Sample) -> Calibrated:
        """Find the smallest threshold whose corrected mean loss is within the budget."""
        from streamer.calibration.crc import calibrate_by_scheme

        return Calibrated(
            calibrate_by_scheme(sample.groups, alpha=sample.alpha, scheme=self, seed=sample.seed)
        )
