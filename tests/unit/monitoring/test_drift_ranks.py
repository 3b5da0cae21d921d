"""Drift: ranking a page of numbers at once gives the state of ranking them one by one, to the last bit."""

from bisect import bisect_left

import numpy as np
import pytest

from streamer.risk.states import DriftAlarm
from streamer.risk.states.drift import _factors


def one_by_one(alarm: DriftAlarm, values: np.ndarray, uniforms: np.ndarray) -> DriftAlarm:
    """The formula as it stands: each number among all before it."""
    counts, bets = list(alarm.counts), alarm.bets
    for value, uniform in zip(values.tolist(), uniforms.tolist(), strict=True):
        if bets.raised_at is not None:
            break
        place = bisect_left(alarm.edges, value)
        counts[place] += 1
        p_value = (sum(counts[:place]) + uniform * counts[place]) / sum(counts)
        bets = bets.after(_factors(np.array([p_value])))
    return DriftAlarm(edges=alarm.edges, counts=tuple(counts), bets=bets)


@pytest.mark.parametrize("shift", [0.0, 0.2])
@pytest.mark.parametrize("ties", [False, True])
def test_a_page_at_once_is_its_numbers_one_by_one(shift: float, ties: bool) -> None:
    raised = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        numbers = rng.integers(0, 9, 900) / 9 if ties else rng.random(900)
        reference, values = numbers[:200], numbers[200:] + shift
        uniforms = rng.random(values.size)
        alarm = DriftAlarm.open(reference, delta=0.05, bins=int(rng.choice([2, 64, 300])))
        cut = int(rng.integers(0, values.size))
        found = alarm.observe(values[:cut], uniforms[:cut]).observe(values[cut:], uniforms[cut:])
        assert found.to_json() == one_by_one(alarm, values, uniforms).to_json()
        raised += found.raised_at is not None
    assert (raised > 0) == (shift > 0)
