"""P-values against "the mean of [0, 1]-valued losses exceeds alpha", valid at every number of losses.

Sources: Bates, Angelopoulos, Lei, Malik and Jordan, Distribution-free, risk-controlling prediction sets
(2021), for Hoeffding-Bentkus; Waudby-Smith and Ramdas, Estimating means of bounded random variables by
betting (2023).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.loss_curve import TOLERANCE

Floats = NDArray[np.float64]


def hoeffding_bentkus(total: float, count: int, alpha: float) -> float:
    """Return the Hoeffding-Bentkus p-value of `count` independent losses that add up to `total`.

    With L = total/count, h(a, b) = a ln(a/b) + (1 - a) ln((1 - a)/(1 - b)) and X binomial(count, alpha),

        p = min( exp(-count h(min(L, alpha), alpha)), e P(X <= ceil(total)), 1 ).

    It does not fall as `total` grows. P(p <= u) <= u for every u if the losses are independent, lie in [0, 1]
    and have a common mean of alpha or more.

    `total`: sum of the losses, in [0, count]; sums within 1e-12 (relative) above a whole number
    count as that number. `count`: number of losses, >= 1. `alpha`: in (0, 1).
    """
    from scipy.special import bdtr  # slow to import, and few methods need it

    mean = min(total / count, alpha)
    divergence = (1 - mean) * math.log((1 - mean) / (1 - alpha))
    if mean > 0:
        divergence += mean * math.log(mean / alpha)
    hoeffding = math.exp(-count * max(0.0, divergence))
    whole = min(count, math.ceil(total - TOLERANCE * max(1.0, total)))
    return min(1.0, hoeffding, math.e * float(bdtr(whole, count, alpha)))


def binomial(errors: NDArray[Any], count: NDArray[Any], alpha: float) -> Floats:
    """Return the p-value of `count` independent marks, right or wrong: P(X <= errors) with X binomial of chance alpha.

    P(p <= u) <= u for every u if each is wrong with a probability of alpha or more.

    `errors`: those that are wrong, in 0..count; any shape. `count`: number of marks, >= 0, of the
    same shape; of none nothing is known, and p is 1. `alpha`: in (0, 1).
    """
    from scipy.special import bdtr  # slow to import, and few methods need it

    p_values: Floats = np.where(count > 0, bdtr(errors, count, alpha), 1.0)
    return p_values


def upper_share(errors: NDArray[Any], count: NDArray[Any], delta: float) -> Floats:
    """Return the Clopper-Pearson upper bound: the share p at which P(X <= errors) is delta, in (0,
    1), for X binomial(count, p).

    It is below the chance of being wrong with a probability of at most delta; 1 where all are
    wrong, or none was seen.
    """
    from scipy.special import betaincinv

    right = np.maximum(count - errors, 1)
    bounds: Floats = np.where(errors < count, betaincinv(errors + 1, right, 1 - delta), 1.0)
    return bounds


def betting(losses: Floats, alpha: float, delta: float) -> Floats:
    """Return the betting p-value of each row of losses, read from left to right.

    A gambler who holds that the mean exceeds alpha loses wealth by each loss below it:

        p = 1 / max(1, max_i W_i),    W_i = prod_{j <= i} (1 - nu_j (L_j - alpha)),
        nu_j = min(1, sqrt(2 ln(1/delta) / (n var_{j-1}))),
        mean_i = (1/2 + sum_{j <= i} L_j)/(i + 1),    var_i = (1/4 + sum_{j <= i} (L_j - mean_j)^2)/(i + 1).

    P(p <= u) <= u for every u (Ville's inequality: W is a nonnegative supermartingale) if each loss, given
    those to its left, lies in [0, 1] and has a mean of alpha or more; so the order must not depend on the
    losses.

    `losses`: shape (k, n), in [0, 1], n >= 1. `alpha`: in (0, 1). `delta`: the level that the bets
    aim at, in (0, 1); validity does not depend on it. Returns shape (k,), in (0, 1].
    """
    count = losses.shape[1]
    seen = np.arange(2, count + 2)
    means = np.cumsum(losses, axis=1)
    means += 0.5
    means /= seen
    variances = np.cumsum((losses - means) ** 2, axis=1)
    variances += 0.25
    variances /= seen
    before = np.empty_like(variances)
    before[:, 0] = 0.25
    before[:, 1:] = variances[:, :-1]
    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / delta) / (count * before)))
    wealth = np.cumsum(np.log1p(-bets * (losses - alpha)), axis=1)
    p_values: Floats = np.exp(-np.maximum(0.0, wealth.max(axis=1)))
    return p_values
