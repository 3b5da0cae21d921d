"""The p-values against their definitions, term by term."""

import math

import numpy as np
import pytest
from scipy import stats

from streamer.calibration.p_values import betting, hoeffding_bentkus


def hoeffding_bentkus_by_definition(total: float, count: int, alpha: float) -> float:
    a = min(total / count, alpha)
    h1 = (a * math.log(a / alpha) if a else 0.0) + (1 - a) * math.log((1 - a) / (1 - alpha))
    return min(1.0, math.exp(-count * h1), math.e * stats.binom.cdf(math.ceil(total), count, alpha))


def betting_by_definition(losses: list[float], alpha: float, delta: float) -> float:
    count, wealth, best, seen, squares, variance = len(losses), 1.0, 1.0, 0.0, 0.0, 0.25
    for position, loss in enumerate(losses, start=1):
        bet = min(1.0, math.sqrt(2 * math.log(1 / delta) / (count * variance)))
        wealth *= 1 - bet * (loss - alpha)
        best = max(best, wealth)
        seen += loss
        mean = (0.5 + seen) / (position + 1)
        squares += (loss - mean) ** 2
        variance = (0.25 + squares) / (position + 1)
    return 1 / best


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [1, 2, 30, 500])
def test_hoeffding_bentkus_is_its_definition_and_never_falls(count, alpha):
    totals = np.linspace(0, count, 97)
    values = [hoeffding_bentkus(float(total), count, alpha) for total in totals]
    assert values == pytest.approx(
        [hoeffding_bentkus_by_definition(float(t), count, alpha) for t in totals], rel=1e-9, abs=1e-300
    )
    assert values == sorted(values)
    assert values[-1] == 1.0


def test_a_sum_a_rounding_above_a_whole_number_counts_as_that_number():
    assert hoeffding_bentkus(3 + 4e-16, 40, 0.2) == pytest.approx(hoeffding_bentkus(3.0, 40, 0.2), rel=1e-12)
    assert hoeffding_bentkus(3.001, 40, 0.2) > hoeffding_bentkus(3.0, 40, 0.2)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_betting_is_its_definition(count, alpha):
    rng = np.random.default_rng([count, int(100 * alpha)])
    losses = rng.random((40, count)) * (rng.random((40, count)) < 0.4)
    losses[0], losses[1] = 0.0, 1.0
    expected = [betting_by_definition(row.tolist(), alpha, 0.1) for row in losses]
    assert betting(losses, alpha, 0.1) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mean", [0.1, 0.3])
def test_under_the_hypothesis_a_small_p_value_is_as_rare_as_it_says(mean):
    """Losses of mean alpha exactly, where the guarantee has nothing to spare."""
    rng = np.random.default_rng(int(100 * mean))
    repeats, count = 4000, 60
    losses = (rng.random((repeats, count)) < mean).astype(float)
    by_betting = betting(losses, mean, 0.1)
    by_hb = np.array([hoeffding_bentkus(float(row.sum()), count, mean) for row in losses])
    for level in (0.5, 0.1, 0.02):
        bound = stats.binom.isf(1e-6, repeats, level)
        assert (by_betting <= level).sum() <= bound
        assert (by_hb <= level).sum() <= bound
