"""The level of a gate that ships by chance: solved to adjacent floats, returned from the feasible side.

For a gate a_l(Q) that does not rise in l, Conformal Risk Control takes the smallest l with

    sum_g sum_i w_gi m_gi a_l(Q_gi) <= B = alpha (G + 1) - 1.

The left side falls continuously for the gates here, so that l is a root and a real number: bisection halves
the floats between a level that loses too much and one that does not, until they are neighbours, and keeps the
one that does not. The expectation over the gate's own randomness is exact; nothing is drawn in calibration.
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.arguments import check_alpha
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, groups_needed
from streamer.calibration.loss_curve import FixedPoint, budget_limit
from streamer.calibration.registry import weighting_scheme
from streamer.calibration.shapes import SoftGate
from streamer.calibration.threshold import ThresholdState, state_at
from streamer.calibration.weighting import WeightingScheme, keyed_losses


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftThreshold:
    """The level of a soft gate. It is no threshold for scores as they are: only `decide` keeps the
    budget.

    `level`: l; +inf when closed, -inf when open; finite levels may lie outside [0, 1]. `alpha` is
    the budget on exposure risk, in (0, 1), `method` the weighting scheme of the calibration.
    """

    gate: SoftGate
    level: float
    alpha: float
    method: str
    groups: int
    guarantee: str

    @property
    def state(self) -> ThresholdState:
        """`closed`, `cut` or `open`."""
        return state_at(self.level)

    def decide(self, scores: ArrayLike, uniforms: ArrayLike) -> NDArray[np.bool_]:
        """Decide for each score, in [0, 1] and of any shape, whether it ships. NaN never does.

        `uniforms`, of the same shape, in (0, 1), both excluded, are drawn for these responses
        alone, independent of scores and severities, and recorded with the decision so that it can
        be derived again. Raises `ValueError` if shapes differ or a uniform is outside (0, 1).
        """
        exact, chances = np.asarray(scores, dtype=np.float64), np.asarray(uniforms, dtype=np.float64)
        if exact.shape != chances.shape:
            raise ValueError(f"scores have shape {exact.shape} and uniforms {chances.shape}")
        if not ((chances > 0) & (chances < 1)).all():
            raise ValueError("uniforms must lie between 0 and 1, both excluded")
        return np.asarray(self.gate.randomised(exact, chances) > self.level)


def calibrate_soft(
    groups: Sequence[LabelledGroup],
    *,
    alpha: float,
    gate: SoftGate,
    method: str = "mean",
    eta: float = 1.0,
    draws: int = 20,
    seed: int,
) -> SoftThreshold:
    """Find the smallest level of a soft gate that keeps exposure risk inside the budget on average.

    `gate` is `streamer.calibration.shapes.Smooth` or `Ramp`, its width fixed before labels are
    read; the rest and the errors are those of `streamer.calibration.calibrate_groups`.
    """
    scheme = weighting_scheme(method, {"eta": eta, "draws": draws})
    return soft_by_scheme(groups, alpha=check_alpha(alpha), gate=gate, scheme=scheme, seed=seed)


def soft_by_scheme(
    groups: Sequence[LabelledGroup], *, alpha: float, gate: SoftGate, scheme: WeightingScheme, seed: int
) -> SoftThreshold:
    """Find the level with the weights of a scheme; see `calibrate_soft`."""
    scores, losses = keyed_losses(groups, scheme=scheme, seed=seed)
    limit = budget_limit(alpha, len(groups))
    scale = FixedPoint.for_terms(len(scores))

    def lost(level: float) -> float:
        high, low = scale.split(losses * gate.share(scores, level))
        return float(scale.join(np.array([high.sum()]), np.array([low.sum()]))[0])

    level = math.inf if limit < 0 else _smallest_level(gate, lost, limit)
    return SoftThreshold(
        gate=gate,
        level=level,
        alpha=alpha,
        method=scheme.name,
        groups=len(groups),
        guarantee=_guarantee(level, alpha, gate.words, scheme, len(groups)),
    )


def _smallest_level(gate: SoftGate, lost: Callable[[float], float], limit: float) -> float:
    everything = lost(-math.inf)
    if everything <= limit:
        return -math.inf
    if limit == 0:
        return math.inf
    over, within = gate.bracket(everything, limit)
    if not lost(within) <= limit:  # the budget is too small a part of the loss for floats to resolve
        return math.inf
    if lost(over) <= limit:  # a loss so near the budget that rounding hides it: this level is feasible
        return over
    low, high = _rank(over), _rank(within)
    while high - low > 1:
        middle = (low + high) // 2
        if lost(_float_of(middle)) <= limit:
            high = middle
        else:
            low = middle
    return _float_of(high)


def _rank(number: float) -> int:
    """Number the floats in rising order, 0.0 (and -0.0) being 0: at most 64 halvings lie between any two."""
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _float_of(rank: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", abs(rank)))[0]
    return number if rank >= 0 else -number


def _guarantee(level: float, alpha: float, words: str, scheme: WeightingScheme, groups: int) -> str:
    basis = (
        f"Basis: {words} with the weights of method {scheme.name} on {counted(groups, 'calibration group')}"
    )
    if level == math.inf:
        return (
            f"Nothing ships, so exposure risk is 0. {basis}; the budget asked for is {budget(alpha)}, which "
            f"needs at least {groups_needed(alpha)} groups, and more where it is met exactly."
        )
    shipped = (
        "Everything ships."
        if level == -math.inf
        else "A response ships by a chance that rises with its score."
    )
    fixed = "the score, the gate, the method and the budget" + (", and the seed," if scheme.random else "")
    return (
        f"{shipped} On average, over calibrations, future groups and the gate's own randomness alike, "
        f"exposure risk is at most {budget(alpha)}: severity where an item ships and 0 where it is "
        f"held, each group counting once and its items equally. {basis}. Assumptions: future groups are exchangeable "
        "with the calibration groups; each decision uses a uniform number of its own, independent of scores "
        "and severities; the labelled items of a group are all of its items, or were drawn at random before "
        f"any label was seen; {fixed} were fixed before any label was read; severities lie in [0, 1] and "
        "mean what the budget is about. Not promised: a bound with high probability for this one "
        "calibration, a bound for a single prompt or kind of prompt, or a bound on severity among the "
        "shipped alone."
    )
