"""Sampling until sure: a threshold keeps its budget on batches that the same rule sampled, and need not on others."""

import numpy as np
from scipy import stats

from streamer import calibrate
from streamer.scoring.steps import Steps

ALPHA = 0.1
LABELS = 59
REPETITIONS = 3000
FRESH = 50
PROMPTS = 10_000
RULE = Steps(sizes=(3, 6, 12), above=0.9, below=0.4)
ALWAYS = Steps(sizes=(12,))


def sampled(rule: Steps, prompts: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Score and severity of the best answer of each prompt, sampled by the rule: shape (prompts,) each.

    An answer is right with a chance of the prompt's own; right ones agree, and so do wrong ones. The score is the share that
    agrees with the majority, which is what ships, less a little that is the prompt's own, so that scores do not tie.
    """
    right = rng.random((prompts, rule.sizes[-1])) < rng.beta(1.2, 0.8, size=(prompts, 1))
    less = rng.uniform(0, 0.2, prompts)
    scores, severities = np.zeros(prompts), np.zeros(prompts)
    for prompt, answers in enumerate(right):
        for size in rule.sizes:
            share = float(answers[:size].mean())
            scores[prompt] = max(share, 1 - share) - less[prompt]
            severities[prompt] = float(share < 0.5)
            if rule.enough(size, scores[prompt]):
                break
    return scores, severities


def exposure(calibrated_by: Steps, served_by: Steps, seed: int) -> tuple[float, float]:
    """Mean exposure on fresh batches over calibrations, and its standard error.

    Labelled and fresh prompts of a repetition are drawn together, without replacement: whatever the prompts there are came to,
    those drawn are exchangeable.
    """
    pool = sampled(calibrated_by, PROMPTS, np.random.default_rng(seed))
    fresh = sampled(served_by, PROMPTS, np.random.default_rng(seed))
    rng = np.random.default_rng([seed, 1])
    found = []
    for _ in range(REPETITIONS):
        labelled, new = np.split(rng.choice(PROMPTS, LABELS + FRESH, replace=False), [LABELS])
        cut = calibrate(pool[0][labelled], pool[1][labelled], np.arange(LABELS), alpha=ALPHA).value
        found.append(float(((fresh[0][new] > cut) * fresh[1][new]).mean()))
    return float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(REPETITIONS))


def test_the_budget_holds_for_batches_that_the_same_rule_sampled() -> None:
    mean, error = exposure(RULE, RULE, seed=1)
    assert mean <= ALPHA + stats.norm.isf(5e-7) * error
    assert mean > 0.5 * ALPHA, "the rule ships enough for the bound to mean something"


def test_a_threshold_of_another_rule_promises_nothing() -> None:
    mean, error = exposure(ALWAYS, RULE, seed=2)
    assert mean > ALPHA + stats.norm.isf(5e-7) * error
