"""The summed loss of all calibration groups as a function of the threshold, and where it meets the budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Limbs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A fixed-point scale on which up to `capacity` terms in [0, 1] are added without rounding or overflow.

    Each term becomes two integers, in units of 2**-bits and 2**-(2 bits). Integer addition is associative, so a sum
    does not depend on the order of its terms, and a cumulative sum of a million terms is as good as one of ten:
    a term is off by at most 2**-(2 bits + 1), which is 2**-85 for a million terms.
    """

    bits: int

    @classmethod
    def for_terms(cls, capacity: int) -> FixedPoint:
        """Return the finest scale that holds the sum of `capacity` terms."""
        return cls(62 - capacity.bit_length())

    def split(self, terms: NDArray[np.float64]) -> Limbs:
        """Turn terms in [0, 1] into their two integer parts, of the same shape."""
        scaled = terms * 2.0**self.bits  # a power of two: exact
        high = scaled.astype(np.int64)
        scaled -= high
        low = np.rint(scaled * 2.0**self.bits).astype(np.int64)
        return high, low

    def join(self, high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[np.float64]:
        """Turn sums of parts back into numbers, within two units in the last place."""
        carry = low >> self.bits
        rest = low - (carry << self.bits)
        total: NDArray[np.float64] = (high + carry) * 2.0**-self.bits
        total += rest * 2.0 ** (-2 * self.bits)
        return total


TOLERANCE = 1e-12
"""The only slack of the rule: what the rounding of alpha and of the weights may cost at a budget met exactly."""

_BINS = 4096
_WORTH_BINNING = 32 * _BINS
_BLOCK = 1 << 16

Floats = NDArray[np.float64]


def budget_limit(alpha: float, groups: float) -> float:
    """Return the largest admissible S = sum_g L_g: B = alpha (G + 1) - 1 and the tolerance; below 0: infeasible.

    `groups` is their number G, or the sum of their weights where a group may count for less than one.
    """
    allowance = alpha * (groups + 1)
    return allowance - 1 + TOLERANCE * max(1.0, allowance)


@dataclass(frozen=True, slots=True, eq=False)
class LossCurve:
    """The step function S(l) = sum_g L_g(l) = sum of the losses of all items whose score is above l.

    `levels`: shape (k,), the distinct scores that carry loss, strictly falling. `totals`: shape
    (k,), S just below each level, that is, the losses at this score and above; non-decreasing. S(l)
    is `totals[i]` for `levels[i + 1] <= l < levels[i]`, and 0 from `levels[0]` on.
    """

    levels: Floats
    totals: Floats

    @classmethod
    def of(cls, scores: Floats, losses: Floats) -> LossCurve:
        """Sort items into one curve, scores and losses (weight times severity) of shape (N,), in
        [0, 1]; items of equal score form one step.
        """
        return _curve(*_carrying(scores, losses), FixedPoint.for_terms(len(scores)), base=(0, 0))

    def first_over(self, limit: float) -> float:
        """Return the smallest score l with S(l) <= limit, or -inf if S(-inf) <= limit. `limit` >= 0."""
        position = int(np.searchsorted(self.totals, limit, side="right"))
        return -math.inf if position == len(self.levels) else float(self.levels[position])


def smallest_admissible(scores: Floats, losses: Floats, limit: float) -> float:
    """Return `LossCurve.of(scores, losses).first_over(limit)`, `limit` >= 0, without sorting all
    items.

    A coarse histogram shows in which bin of scores the sum passes the limit; only that bin is
    sorted. The histogram's floating-point sums are a guess: exact sums confirm the bin, or else
    everything is sorted.
    """
    scale = FixedPoint.for_terms(len(scores))
    if len(scores) > _WORTH_BINNING:
        bins, tallies = _histogram(scores, losses)
        tails = tallies[::-1].cumsum()
        crossing = _BINS - int(np.searchsorted(tails, limit, side="right"))
        base = _exact_sum(losses, bins, crossing, scale)
        window = np.flatnonzero(bins == crossing)
        curve = _curve(*_carrying(scores[window], losses[window]), scale, base)
        above = float(scale.join(np.array([base[0]]), np.array([base[1]]))[0])
        if above <= limit and (crossing < 0 or (len(curve.totals) and curve.totals[-1] > limit)):
            return curve.first_over(limit)
    return _curve(*_carrying(scores, losses), scale, base=(0, 0)).first_over(limit)


def _histogram(scores: Floats, losses: Floats) -> tuple[NDArray[np.int16], Floats]:
    """Return the bin of each score, 0 to `_BINS`, and about how much loss each bin carries."""
    bins, tallies = np.empty(len(scores), dtype=np.int16), np.zeros(_BINS + 1)
    for block in _blocks(len(scores)):
        np.multiply(scores[block], _BINS, out=bins[block], casting="unsafe")
        tallies += np.bincount(bins[block], weights=losses[block], minlength=_BINS + 1)
    return bins, tallies


def _exact_sum(losses: Floats, bins: NDArray[np.int16], crossing: int, scale: FixedPoint) -> tuple[int, int]:
    """Return the two parts of the summed loss of the bins above `crossing`."""
    total_high = total_low = 0
    for block in _blocks(len(losses)):
        high, low = scale.split(losses[block][np.flatnonzero(bins[block] > crossing)])
        total_high += int(high.sum())
        total_low += int(low.sum())
    return total_high, total_low


def _blocks(count: int) -> Iterator[slice]:
    """Yield slices of a size that stays in the processor's cache: whole temporaries of a million cost more than
    the arithmetic."""
    for first in range(0, count, _BLOCK):
        yield slice(first, first + _BLOCK)


def _carrying(scores: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Keep the items that carry loss: the others move neither S nor the threshold."""
    carrying = np.flatnonzero(losses > 0)  # numbers select many times faster than a mask without a pattern
    return scores[carrying], losses[carrying]


def _curve(scores: Floats, losses: Floats, scale: FixedPoint, base: tuple[int, int]) -> LossCurve:
    order = np.argsort(scores)[::-1]
    scores = scores[order]
    high, low = scale.split(losses[order])
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) if len(scores) else np.empty(0, np.intp)
    return LossCurve(
        scores[ends] + 0.0,  # a score of -0.0 is the same level as 0.0
        scale.join(high.cumsum()[ends] + base[0], low.cumsum()[ends] + base[1]),
    )
