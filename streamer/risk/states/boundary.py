"""How far a martingale may stray at any time: a mixture of exponential supermartingales, inverted.

For increments xi_i >= -c, known variation V = sum xi_i^2 and mean m_i given the past,

    M(u) = exp(u sum (xi_i - m_i) - psi_c(u) V),    psi_c(u) = (-ln(1 - c u) - c u)/c^2,    0 <= u < 1/c,

is a nonnegative supermartingale that starts at 1 (Fan, Grama and Liu 2015), and so is sum_k w_k M(u_k) for
weights that sum to 1. By Ville's inequality P(sum_k w_k M(u_k) ever reaches 1/e) <= e, so with probability
1 - e at all times at once sum (xi_i - m_i) < D(V), the smallest D with sum_k w_k exp(u_k D - psi_c(u_k) V) >= 1/e.

Sources: Howard, Ramdas, McAuliffe and Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences
(2021), for sub-exponential boundaries and their mixtures; Waudby-Smith and Ramdas, Estimating means of bounded
random variables by betting (2024), for predictable centres.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GRID = 12
"""Number of rates u_k = .95 2^-k / c that are mixed: from the largest that c allows down to a 2048th of it."""

_STEPS = 100  # Newton needs about six; a convex function from the right cannot cycle


@dataclass(frozen=True, slots=True, eq=False)
class MixtureBoundary:
    """The mixture for one scale c: rates u_k, falling, costs psi_c(u_k) and ln w_k, each of shape
    (12,); the weights sum to 1.
    """

    rates: Floats
    costs: Floats
    log_weights: Floats

    def deviation(self, spread: NDArray[np.float64] | float, error: float) -> Floats:
        """Return D(V), positive, never rounded down, of the shape of `spread`, V >= 0; `error`: e,
        the chance to leave the boundary at any time, in (0, 1).
        """
        target = -math.log(error)
        rests = self.log_weights - np.multiply.outer(np.asarray(spread, dtype=np.float64), self.costs)
        # Where one term alone reaches the target the sum does: convexity keeps Newton to the right of the root.
        found: Floats = ((target - rests) / self.rates).min(axis=-1)
        for _ in range(_STEPS):
            exponents = rests + self.rates * found[..., None]
            peak = exponents.max(axis=-1)
            terms = np.exp(exponents - peak[..., None])
            total = terms.sum(axis=-1)
            step = (peak + np.log(total) - target) * total / (terms @ self.rates)
            found = found - np.maximum(step, 0.0)
            if (step <= 1e-7 * found).all():  # steps shrink quadratically: the next would be below 1e-13
                break
        return found * (1 + 1e-12)


@lru_cache(maxsize=64)
def mixture(scale: float, target: float) -> MixtureBoundary:
    """Return the mixture of scale c > 0 whose weights fall off on both sides of the rate `target`,
    u* > 0; validity does not depend on it.

    w_k is proportional to 3^-|log2(u_k / target)|: the rate that suits the planned amount of
    evidence weighs the most, and a rate eight times away still a 27th of it.
    """
    rates = np.array([0.95 * 2.0**-k / scale for k in range(GRID)])
    reach = scale * rates
    log_weights = -math.log(3) * np.abs(np.log2(rates / target))
    log_weights -= np.logaddexp.reduce(log_weights)
    return MixtureBoundary(rates, (-np.log1p(-reach) - reach) / scale**2, log_weights)
