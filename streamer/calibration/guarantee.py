"""The words that go with a threshold: only what the method proves, from what was used."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamer.calibration.threshold import ThresholdState
    from streamer.calibration.weighting import WeightingScheme


_BESIDES = " Besides: "


def groups_needed(alpha: float) -> int:
    """Return the smallest number of groups G with alpha >= 1/(G + 1): fewer, and nothing can ship.

    Parameters
    ----------
    alpha : budget in (0, 1).
    """
    # Fractions: the quotient of a tiny budget is infinite in floats
    return max(0, math.ceil(Fraction(1 - 1e-12) / Fraction(alpha)) - 1)


def counted(number: int, noun: str) -> str:
    """Return "1 group", "2 groups" and so on."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def budget(alpha: float) -> str:
    """Write a budget as a percentage, exactly."""
    return f"{round(100 * alpha, 10):g} %"


def besides(guarantee: str, *notes: str) -> str:
    """Add sentences to a guarantee, in a part of their own at its end."""
    if not notes:
        return guarantee
    return f"{guarantee}{' ' if _BESIDES in guarantee else _BESIDES}{' '.join(notes)}"


def what_ships(state: ThresholdState) -> str:
    """Return the sentence that opens every guarantee of a gate that is not closed."""
    if state == "open":
        return "Everything ships: the calibration groups call for no cut."
    return "What scores above the threshold ships."


def guarantee_text(*, state: ThresholdState, alpha: float, scheme: WeightingScheme, groups: int) -> str:
    """Say what a calibrated threshold promises, on which basis, and under which assumptions.

    Parameters
    ----------
    state : of the threshold.
    alpha : budget in (0, 1).
    scheme : how the items of a group share its weight.
    groups : number of calibration groups.
    """
    basis = f"method {scheme.name} ({scheme.words}) on {counted(groups, 'calibration group')}"
    floor = f"1/{groups + 1} = {1 / (groups + 1):.3g}"
    if state == "closed":
        return (
            f"Nothing ships, so exposure risk is 0. Basis: {basis}. So few groups cannot support a budget below "
            f"{floor}; the budget asked for is {alpha!r}, which needs at least {groups_needed(alpha)} groups."
        )
    fixed = (
        "the score, the method and the budget"
        if not scheme.random
        else "the score, the method, the budget and the seed"
    )
    return (
        f"{what_ships(state)} On average, over calibrations and future groups alike, exposure risk is at most "
        f"{alpha!r}: severity where an item ships and 0 where it is held, each group counting once and its items equally. Basis: {basis}; "
        f"no budget below {floor} can be met with that many. Assumptions: future groups are exchangeable with the "
        f"calibration groups; the labelled items of a group are all of its items, or were drawn at random before any "
        f"label was seen; {fixed} were fixed before any label was read; severities lie in [0, 1] and mean what the "
        f"budget is about. Not promised: a bound with high probability for this one calibration, a bound for a single "
        f"prompt or kind of prompt, or a bound on severity among the shipped alone."
    )
