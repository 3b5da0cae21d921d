"""Other shapes of the gate than the indicator of `streamer.gates.gate`. Pure.

A gate a_l(Q) in [0, 1] is the chance that a response of score Q ships at level l; it must not rise in l.
`Smooth` and `Ramp` are of this kind, and `streamer.calibration.calibrate_soft` finds their level.
`FrozenQuantiles` and `rank_scores` turn scores into others, for which the indicator is the gate and
`streamer.calibration.calibrate_groups` the calibrator.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class SoftGate(Protocol):
    """A gate that ships by chance."""

    @property
    def words(self) -> str:
        """The gate in words, for guarantees."""

    def share(self, scores: Floats, level: float) -> Floats:
        """Return a_l(Q), the chance to ship, in [0, 1], of the shape of `scores`; it does not rise in `level`."""

    def randomised(self, scores: Floats, uniforms: Floats) -> Floats:
        """Return what a response ships by: a_l(Q) is the chance that this is strictly greater than l."""

    def bracket(self, loss: float, budget: float) -> tuple[float, float]:
        """Return levels at which items that lose `loss` in all, scores in [0, 1], lose more and no more than
        `budget`.

        `loss` > `budget` > 0.
        """


@dataclass(frozen=True, slots=True)
class Smooth:
    """The logistic gate: a_l(Q) = 1/(1 + exp(-(Q - l)/tau)).

    It equals the indicator 1{Q - tau logit(U) > l} for U uniform on (0, 1), independent of everything else.

    `tau`: width on the scale of scores, > 0. Levels lie outside [0, 1] as well and must not be
    clipped to it.
    """

    tau: float

    def __post_init__(self) -> None:
        _check_width("tau", self.tau)

    @property
    def words(self) -> str:
        return f"a smooth gate of width {self.tau!r}"

    def share(self, scores: Floats, level: float) -> Floats:
        away = (scores - level) / self.tau
        with np.errstate(under="ignore"):
            small = np.exp(-np.abs(away))  # never overflows
            shares: Floats = np.where(away >= 0, 1.0, small) / (1.0 + small)
        return shares

    def randomised(self, scores: Floats, uniforms: Floats) -> Floats:
        return scores - self.tau * (np.log(uniforms) - np.log1p(-uniforms))

    def bracket(self, loss: float, budget: float) -> tuple[float, float]:
        return self.tau * math.log((loss - budget) / loss), 1.0 + self.tau * math.log(loss / budget)


@dataclass(frozen=True, slots=True)
class Ramp:
    """The linear gate: a_l(Q) = (Q - l)/width, cut to [0, 1].

    It equals the indicator 1{Q - width U > l} for U uniform on (0, 1), independent of everything else.

    `width`: on the scale of scores, > 0. Levels lie in [-width, 1].
    """

    width: float

    def __post_init__(self) -> None:
        _check_width("width", self.width)

    @property
    def words(self) -> str:
        return f"a ramp of width {self.width!r}"

    def share(self, scores: Floats, level: float) -> Floats:
        shares: Floats = np.clip((scores - level) / self.width, 0.0, 1.0)
        return shares

    def randomised(self, scores: Floats, uniforms: Floats) -> Floats:
        return scores - self.width * uniforms

    def bracket(self, loss: float, budget: float) -> tuple[float, float]:
        return -self.width, 1.0


@dataclass(frozen=True, slots=True, eq=False)
class FrozenQuantiles:
    """Scores as quantiles of a distribution that was frozen: F(Q) = share of its scores that are at most Q.

    F must be the calibration's own scores or others that were fixed before it, and stay what it is. A
    distribution that rolls along with the traffic ships the same share however the scores change, and is invalid
    once they move.

    `frozen`: shape (n,), n >= 1, rising, in [0, 1].
    """

    frozen: Floats

    def __post_init__(self) -> None:
        frozen = np.sort(np.asarray(self.frozen, dtype=np.float64))
        if frozen.ndim != 1 or not len(frozen) or not (frozen[0] >= 0 and frozen[-1] <= 1):
            raise ValueError("a frozen distribution needs scores in [0, 1], at least one")
        frozen.flags.writeable = False
        object.__setattr__(self, "frozen", frozen)

    def of(self, scores: ArrayLike) -> Floats:
        """Return F of scores, in [0, 1], of their shape. NaN stays NaN."""
        exact = np.asarray(scores, dtype=np.float64)
        below = np.searchsorted(self.frozen, exact, side="right") / len(self.frozen)
        return np.where(np.isnan(exact), np.nan, below)


def rank_scores(scores: ArrayLike) -> Floats:
    """Return for each response of one batch the share of the batch that scores strictly less: in
    [0, 1), ties alike.

    A gate on ranks ships the same share of good batches and of bad ones: valid, and weak.
    Calibration needs the ranks among all responses of a batch, not only among those that were
    labelled. Raises `ValueError` if there are no scores or one is outside [0, 1].
    """
    batch = np.asarray(scores, dtype=np.float64)
    if batch.ndim != 1 or not len(batch) or not ((batch >= 0) & (batch <= 1)).all():
        raise ValueError("ranks need the scores of one batch, at least one, in [0, 1]")
    ranks: Floats = np.searchsorted(np.sort(batch), batch, side="left") / len(batch)
    return ranks


def _check_width(name: str, value: float) -> None:
    if isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value!r}")
