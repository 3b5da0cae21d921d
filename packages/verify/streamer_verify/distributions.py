"""Distributions that calibrators need."""

from __future__ import annotations

import math


def _incomplete_gamma(a: float, x: float, *, upper: bool) -> float:
    """Return the regularised lower incomplete gamma function P(a, x), or its complement."""
    if x <= 0:
        return float(upper)
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = 0
        while abs(term) > abs(total) * 1e-17:
            n += 1
            term *= x / (a + n)
            total += term
        value, of_upper = front * total, False
    else:  # the continued fraction, by Lentz' method
        b, c = x + 1 - a, 1e300
        d = h = 1 / b
        for i in range(1, 100_000):
            an = -i * (i - a)
            b += 2
            d = 1 / (an * d + b)
            c = b + an / c
            h *= d * c
            if abs(d * c - 1) < 3e-16:
                break
        value, of_upper = front * h, True
    return value if upper == of_upper else 1 - value


def gamma_quantile(a: float, u: float) -> float:
    """Return the x with P(a, x) = u, for a > 1 and 0 < u < 1: Newton's method within a bracket."""
    upper = u > 0.5
    target = 1 - u if upper else u
    low, high = 0.0, math.inf
    z = math.sqrt(-2 * math.log(target)) * (0.8 if upper else -0.8)
    guess = a * max(0.0, 1 - 1 / (9 * a) + z / (3 * math.sqrt(a))) ** 3
    x = guess or math.exp((math.log(u) + math.lgamma(a + 1)) / a)
    for _ in range(2000):
        value = _incomplete_gamma(a, x, upper=upper)
        away = target - value if upper else value - target
        low, high = (low, x) if away >= 0 else (x, high)
        density = math.exp((a - 1) * math.log(x) - x - math.lgamma(a))
        step = away / density if density > 0 else math.inf
        after = x - step
        if not low < after < high:
            after = 2 * x if high == math.inf else (low + high) / 2
        if abs(after - x) <= 2e-15 * x:
            return after
        x = after
    return x


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return P(X <= k) of a binomial number, for 0 < p < 1."""
    if k >= n:
        return 1.0
    start = min(k, int((n + 1) * p))  # the largest term, from which the others follow
    log = math.lgamma(n + 1) - math.lgamma(start + 1) - math.lgamma(n - start + 1)
    first = math.exp(log + start * math.log(p) + (n - start) * math.log1p(-p))
    terms, odds = [first], p / (1 - p)
    term = first
    for i in range(start, 0, -1):
        term *= i / ((n - i + 1) * odds)
        terms.append(term)
        if term < first * 1e-25:
            break
    term = first
    for i in range(start + 1, k + 1):
        term *= (n - i + 1) * odds / i
        terms.append(term)
    return min(1.0, math.fsum(terms))
