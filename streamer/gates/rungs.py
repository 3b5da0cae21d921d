"""Rungs: an expensive gate is asked only about what a cheap one hands on, at a score that no label has fixed. Pure.

docs/proofs.md has the proof. It needs that what is handed on is decided by the earlier gate's floor, which is part of its
settings, and not by its threshold, which follows from labels: see `hands_on`.
"""

MOST_BUDGET = 0.99
"""The largest budget that `later_budget` gives; a budget of 1 would bound nothing, and a gate's is less."""


def hands_on(best: float, *, at_least: float, floor: float) -> bool:
    """Whether a prompt whose best answer has this score goes on to the next gate.

    Nothing at or below the floor (`GateSettings.floor`) ships at the earlier gate, whatever its threshold; what scores between the two is held
    there for good, and so is what scores less than `at_least`.
    """
    return at_least <= best <= floor


def later_budget(share: float, *, handed_on: int, prompts: int) -> float:
    """Return the budget of a later gate, for a prompt that reaches it, by which `share` is kept on average over all prompts.

    The expected loss over all prompts is at most `share` for every share of prompts that is handed on: with h of n counted,
    E[(n + 1)/(h + 1)] is at most the inverse of that share. n/h, which seems natural, is more.
    Raises `ValueError` where a number is out of its range.

    `share`: of the whole budget, in (0, 1). `handed_on`, `prompts`: h of n independent prompts
    whose labels calibrate nothing were handed on, 0 <= h <= n.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, not {share!r}")
    if not 0 <= handed_on <= prompts:
        raise ValueError(f"handed_on must be in 0..{prompts}, not {handed_on!r}")
    return min(MOST_BUDGET, share * (prompts + 1) / (handed_on + 1))
