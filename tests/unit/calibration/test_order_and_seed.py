"""Neither the order of items nor the names of groups can move a threshold; the seed alone can."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import calibrate
from streamer.calibration.registry import weighting_schemes


def sample(rng: np.random.Generator, *, levels: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = rng.integers(1, 9, rng.integers(1, 60))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    scores = rng.random(len(groups))
    if levels:
        scores = np.round(scores * levels) / levels
    severities = np.where(rng.random(len(groups)) < 0.5, 0.0, np.round(rng.random(len(groups)), 1))
    return scores, severities, groups


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), levels=st.sampled_from([None, 1, 3, 10]), alpha=st.floats(0.02, 0.6))
@pytest.mark.parametrize("method", weighting_schemes())
def test_shuffling_items_and_renaming_groups_changes_nothing(method, seed, levels, alpha):
    rng = np.random.default_rng(seed)
    scores, severities, groups = sample(rng, levels=levels)
    first = calibrate(scores, severities, groups, alpha=alpha, method=method, seed=11)
    shuffle = rng.permutation(len(scores))
    renamed = rng.permutation(groups.max() + 1)[groups]
    for ids in (groups, renamed, renamed * 10**12 - 5, [f"prompt {g}" for g in renamed]):
        ids = np.asarray(ids)
        again = calibrate(
            scores[shuffle], severities[shuffle], ids[shuffle], alpha=alpha, method=method, seed=11
        )
        assert again == first


@pytest.mark.parametrize("method", weighting_schemes())
def test_shuffling_two_hundred_thousand_items_changes_nothing(method):
    rng = np.random.default_rng(1)
    count = 200_000
    scores, severities = np.round(rng.random(count), 5), rng.random(count) * (rng.random(count) < 0.3)
    groups = rng.integers(0, 30_000, count)
    first = calibrate(scores, severities, groups, alpha=0.05, method=method, seed=2)
    shuffle = rng.permutation(count)
    again = calibrate(
        scores[shuffle], severities[shuffle], groups[shuffle], alpha=0.05, method=method, seed=2
    )
    assert again == first


@pytest.mark.parametrize("method", ["crc", "bb", "rbwa"])
def test_one_seed_gives_one_threshold_and_another_seed_another(method):
    rng = np.random.default_rng(4)
    scores, severities = rng.random(500), rng.random(500)
    groups = np.arange(500) // 5
    values = [
        calibrate(scores, severities, groups, alpha=0.1, method=method, seed=s).value for s in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]
    drawn = calibrate(scores, severities, groups, alpha=0.1, method=method, seed=np.random.default_rng(1))
    assert drawn.value == values[0]


def test_mean_draws_nothing():
    rng = np.random.default_rng(4)
    before = rng.bit_generator.state
    calibrate([0.5, 0.6], [0, 1], [1, 2], alpha=0.4, seed=rng)
    assert rng.bit_generator.state == before


def test_negative_zero_is_zero():
    values = {
        repr(calibrate(scores, [1, 1, 0], range(3), alpha=0.3).value)
        for scores in ([0.0, -0.0, 1], [-0.0, 0.0, 1])
    }
    assert values == {"0.0"}
