"""Numbers of the user's own that come with each answer: what they are called, and in which range they lie. Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from streamer.errors import UsageError

MOST_DECLARED = 20
SIGNAL_NAME = "[a-z][a-z0-9_]{0,39}"
OF_FIELDS = ("score", "logprob", "judge")
"""What comes with an answer besides, in a field of its own or from a judge: no number of the user's own is called so."""

Ranges = Mapping[str, tuple[float, float]]


def declared_ranges(declared: Mapping[Any, Any]) -> dict[str, tuple[float, float]]:
    """Return declared numbers, by name the least and the largest value.

    Raises
    ------
    ValueError
        When there are more than 20, or one has no name or no range; the text says which.
    """
    found: dict[str, tuple[float, float]] = {}
    if len(declared) > MOST_DECLARED:
        raise ValueError(f"at most {MOST_DECLARED} signals may be declared, not {len(declared)}")
    for name, bounds in declared.items():
        if not isinstance(name, str) or not re.fullmatch(SIGNAL_NAME, name):
            raise ValueError(
                f"the name of a signal must be 1 to 40 of a-z, 0-9 and '_', the first a letter, not {name!r}"
            )
        if name in OF_FIELDS:
            raise ValueError(
                f"a signal of your own cannot be called {name}, which is read without being declared"
            )
        try:
            least, most = (float(one) for one in bounds)
        except (TypeError, ValueError, OverflowError):
            least = most = math.nan
        if not (math.isfinite(least) and math.isfinite(most) and least < most):
            raise ValueError(
                f"the range of the signal {name} must be two finite numbers, the first less, like (0, 1), not {bounds!r}"
            )
        found[name] = (least, most)
    return found


def parse_signals(given: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Read ``NAME=LEAST..MOST`` as the command line gives it. Raises `UsageError`."""
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, _, bounds = text.partition("=")
        parts = tuple(part.strip() for part in bounds.partition("..")[::2])
        if not all(parts) or name.strip() in found:
            raise UsageError(
                f"--signal must be NAME=LEAST..MOST, like retrieval=0..1, each name once, not {text!r}"
            )
        found[name.strip()] = parts
    try:
        return declared_ranges(found)
    except ValueError as error:
        raise UsageError(f"--signal: {error}") from None
