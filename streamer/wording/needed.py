"""The budget that a decision needed, and what spoke for and against its answer, in words."""

import math
from collections.abc import Mapping

from streamer.calibration.full_fit import allowed
from streamer.gates.rule import Needed
from streamer.wording.numbers import counted, percent

MOST_SPOKE = 3
"""Signals that are named on each side: those that spoke most."""

NO_CHANCE = "It is no chance of being wrong, and a budget that is chosen by it has no promise."


def needed_text(needed: Needed, *, alpha: float, attempts: int = 1) -> str:
    """Say why a budget was or was not enough: ``31 of 250 labelled prompts were wrong and looked at least this good; ...``.

    Parameters
    ----------
    needed : of a decision.
    alpha : the gate's budget, which this many attempts share.
    """
    others, k = needed.count - 1, allowed(alpha, needed.groups, attempts=attempts)
    were = "was wrong and looked" if others == 1 else "were wrong and looked"
    budget = percent(alpha) if attempts == 1 else f"{percent(alpha)} for {attempts} attempts"
    room = f"{k - 1} besides it" if k else "none, not even it"
    return (
        f"{others:g} of {counted(needed.groups, 'labelled prompt', 'labelled prompts')} {were} at least this good; the budget of "
        f"{budget} allows {room}"
    )


def smallest_budget(needed: Needed, *, attempts: int = 1) -> str:
    """Say from which budget on it ships: ``it ships from a budget of 12.4 % on``."""
    share = math.ceil(1000 * needed.share * attempts) / 1000
    return f"it ships from a budget of {percent(share)} on" if share < 1 else "no budget ships it"


def spoke_text(spoke: Mapping[str, float]) -> str:
    """Name the signals that spoke most for an answer, and those that spoke most against it, each with how much."""
    ranked = sorted(spoke.items(), key=lambda one: -one[1])

    def named(some: list[tuple[str, float]]) -> str:
        return ", ".join(f"{name} ({value:+.2f})" for name, value in some) or "nothing"

    most = [one for one in ranked if one[1] >= _LEAST][:MOST_SPOKE]
    least = [one for one in reversed(ranked) if one[1] <= -_LEAST][:MOST_SPOKE]
    return f"for it: {named(most)}; against it: {named(least)}"


_LEAST = 0.005
"""What is written as 0.00 did not speak."""
