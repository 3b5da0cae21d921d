"""The weighting schemes: shares of one, equal on average, with the variances that the schemes are known for."""

import math

import numpy as np
import pytest
from scipy import stats

from streamer.calibration.calibrators.bb import Bb
from streamer.calibration.calibrators.rbwa import Rbwa
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.registry import weighting_scheme

Z = float(stats.norm.isf(1e-6 / 2))
GIVEN = {"draws": 4, "eta": 0.7}
SIZES = np.array([1, 2, 5, 5, 3, 12, 1, 5])


@pytest.mark.parametrize("scheme", ["mean", "crc", "bb", "rbwa"])
def test_the_weights_of_each_group_are_shares_of_one(scheme):
    weights = weighting_scheme(scheme, GIVEN).drawn(SIZES, np.random.default_rng(0))
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert np.add.reduceat(weights, np.cumsum(SIZES) - SIZES) == pytest.approx(1, abs=1e-15 * SIZES.max())


VARIANCE = {  # of one weight in a group of I
    "crc": lambda size: (1 / size) * (1 - 1 / size),
    "bb": lambda size: (1 / size) * (1 - 1 / size) / 4,
    "rbwa": lambda size: (size - 1) / (size**2 * (0.7 * size + 1)),
}


@pytest.mark.parametrize("scheme", ["crc", "bb", "rbwa"])
@pytest.mark.parametrize("source", ["generator", "names"])
def test_mean_and_variance_of_a_weight_are_those_of_the_scheme(scheme, source):
    size, repeats, law = 5, 8000, weighting_scheme(scheme, GIVEN)
    if source == "generator":
        weights = law.drawn(np.full(repeats, size), np.random.default_rng(1)).reshape(repeats, size)
    else:
        names = KeyedWeights(1)
        weights = np.array([law.keyed(str(g), list("abcde"), names) for g in range(repeats)])
    error = Z * math.sqrt(VARIANCE[scheme](size) / repeats)
    assert np.abs(weights.mean(axis=0) - 1 / size).max() <= error
    squares = (weights - 1 / size) ** 2
    assert (
        np.abs(squares.mean(axis=0) - VARIANCE[scheme](size)) <= Z * squares.std(axis=0) / math.sqrt(repeats)
    ).all()


def test_two_dirichlet_weights_follow_the_beta_law():
    rng = np.random.default_rng(2)
    for eta in (0.2, 1.0, 6.0):
        first = Rbwa(eta).drawn(np.full(4000, 2), rng)[::2]
        assert stats.kstest(first, stats.beta(eta, eta).cdf).pvalue > 1e-6
        names = KeyedWeights(2)
        first = np.array([Rbwa(eta).keyed(str(g), ["a", "b"], names)[0] for g in range(2000)])
        assert stats.kstest(first, stats.beta(eta, eta).cdf).pvalue > 1e-6


@pytest.mark.parametrize("eta", [5e-324, 1e-300, 1e-9, 1e-3, 1e9, 1e300, 1.7e308])
def test_extreme_concentrations_still_give_weights(eta):
    drawn_weights = Rbwa(eta).drawn(np.full(200, 4), np.random.default_rng(3)).reshape(-1, 4)
    named_weights = np.array([Rbwa(eta).keyed(str(g), list("abcd"), KeyedWeights(3)) for g in range(200)])
    for weights in (drawn_weights, named_weights):
        assert weights.sum(axis=1) == pytest.approx(1)
        if eta < 1e-6:
            assert (weights.max(axis=1) > 0.999).all()
        if eta > 1e6:
            assert weights == pytest.approx(0.25, abs=1e-3)


def test_many_draws_cost_no_memory():
    weights = Bb(10**12).drawn(np.array([3, 2]), np.random.default_rng(0))
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.5, 0.5], abs=1e-5)
