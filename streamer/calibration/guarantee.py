"""The words that go with a threshold: only what the method proves, from what was used."""

import math
from fractions import Fraction

from streamer.calibration.threshold import ThresholdState

_BESIDES = " Besides: "


def groups_needed(alpha: float) -> int:
    """Return the smallest number of groups G with alpha >= 1/(G + 1), alpha in (0, 1): fewer, and
    nothing can ship.
    """
    # Fractions: the quotient of a tiny budget is infinite in floats
    return max(0, math.ceil(Fraction(1 - 1e-12) / Fraction(alpha)) - 1)


def counted(number: int, noun: str) -> str:
    """Return "1 group", "2 groups" and so on."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def budget(alpha: float) -> str:
    """Write a budget as a percentage, to 12 digits: behind these are rounding errors."""
    return f"{100 * alpha:.12g} %"


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
