"""A gate that asks again: the union bound over attempts holds, and two shorter ways break the budget.

Prompts have a difficulty d, uniform on [0, 1]; given it, attempts are independent: the best score of an attempt is uniform
on [(1 - d)/2, (1 - d)/2 + 1/2] and its severity is 1 with chance d. Hard prompts need more attempts. Risks are exact.
"""

import functools
import math

import numpy as np
import pytest

from streamer import calibrate
from tests.validity.known_risk import assert_over, assert_within

ALPHA = 0.1
GROUPS = 99  # 1/(G + 1) is the smallest budget: enough for alpha / 10
REPEATS = 600
DIFFICULTY = (np.arange(4000) + 0.5) / 4000


def ships(level: float) -> np.ndarray:
    """The chance that one attempt ships, by difficulty."""
    return 1 - np.clip(2 * level - (1 - DIFFICULTY), 0, 1)


def loop_risk(level: float, attempts: int) -> float:
    """E[severity of what the loop ships]: the first attempt above the level, or nothing."""
    return float((DIFFICULTY * (1 - (1 - ships(level)) ** attempts)).mean())


@functools.cache
def levels(alpha: float) -> list[float]:
    """Thresholds of calibrations on first attempts."""
    rng = np.random.default_rng([20261210, round(1e6 * alpha)])
    found = []
    for _ in range(REPEATS):
        difficulty = rng.random(GROUPS)
        scores = (1 - difficulty) / 2 + rng.random(GROUPS) / 2
        bad = (rng.random(GROUPS) < difficulty).astype(float)
        found.append(calibrate(scores, bad, np.arange(GROUPS), alpha=alpha).value)
    return found


def loop_risks(alpha: float, attempts: int) -> np.ndarray:
    return np.array([loop_risk(level, attempts) for level in levels(alpha)])


@pytest.mark.parametrize("attempts", [1, 2, 3, 5, 10])
def test_a_loop_of_attempts_at_alpha_over_their_number_keeps_to_the_budget(attempts):
    risks = loop_risks(ALPHA / attempts, attempts)
    assert_within(risks, ALPHA)
    assert risks.mean() > 0.25 * ALPHA, "a bound that nothing presses on would prove nothing"


@pytest.mark.parametrize("attempts", [2, 3, 5, 10])
def test_control_attempts_at_alpha_each_break_the_budget(attempts):
    assert_over(loop_risks(ALPHA, attempts), ALPHA)


def smallest_by_loop(scores: np.ndarray, bad: np.ndarray, budget: float) -> float:
    """The smallest level at which the summed loss of the loop is inside the budget, as if it could only fall.

    At level l a group loses the severity of its first attempt above l, so that each record of its running maximum
    counts between the record before and itself.
    """
    before = np.concatenate(
        [np.full((len(scores), 1), -math.inf), np.maximum.accumulate(scores, axis=1)[:, :-1]], axis=1
    )
    counting = (scores > before) & (bad > 0)
    steps = np.concatenate([before[counting], scores[counting]])
    change = np.concatenate([bad[counting], -bad[counting]])
    order = np.argsort(steps, kind="stable")
    at, first = np.unique(steps[order], return_index=True)
    sums = np.cumsum(np.add.reduceat(change[order], first))
    if at[0] > -math.inf:
        return -math.inf
    return float(at[np.argmax(sums <= budget + 1e-9)])


@pytest.mark.parametrize("attempts", [5, 10])
def test_control_the_rule_on_the_loop_itself_breaks_the_budget(attempts):
    """The loop's loss is not monotone in the level: the smallest level inside the budget is a chosen dip.

    Scores here say nothing of severities, which are 1 for 14 of 100 attempts.
    """
    rng = np.random.default_rng([20261211, attempts])
    groups, chance = 49, 0.14
    risks = np.empty(REPEATS)
    for repeat in range(REPEATS):
        scores = rng.random((groups, attempts))
        bad = (rng.random((groups, attempts)) < chance).astype(float)
        level = smallest_by_loop(scores, bad, ALPHA * (groups + 1) - 1)
        risks[repeat] = chance * (1 - max(level, 0.0) ** attempts)
    assert_over(risks, ALPHA)
