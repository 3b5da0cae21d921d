"""Sums of many numbers in [0, 1] that no order of the terms can change."""

from __future__ import annotations

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
