"""What things are called in figures, tables and the report, and figures as words."""

from collections.abc import Sequence
from functools import partial

from streamer.clouds.compared_methods import FULL
from streamer.clouds.spreads import Spread
from streamer.gates.declared import Unit
from streamer.research.evaluation.data_sets import OWN_SCORE
from streamer.research.evaluation.results import FigureInterval
from streamer.scoring.registry import EVERY, LIKELIHOOD, SCORERS

UNITS: tuple[Unit, ...] = ("best", "response", "batch")
UNIT_TITLES = {
    "best": "the best answer to each prompt, or none",
    "response": "each response on its own",
    "batch": "all responses to a prompt, or none",
}

_SCORER_TITLES = {scorer.name: scorer.title for scorer in (*SCORERS, EVERY[LIKELIHOOD])} | {
    FULL: "all signals, method full",
    "judge": "judge (Q_J)",
    OWN_SCORE: "the file's score",
}


def scorer_title(name: str) -> str:
    """Return a scorer's name for people; a field of the file is called what the file calls it."""
    return _SCORER_TITLES.get(name, name)


def headline_alpha(alphas: Sequence[float]) -> float:
    """Return the budget that a single figure is shown for: .10 if it was asked for, else the middle one."""
    return 0.1 if 0.1 in alphas else alphas[len(alphas) // 2]


def budget_label(alpha: float) -> str:
    """Write a budget as the paper does: ``.05``."""
    return f"{alpha:g}".removeprefix("0")


def ratio(spread: Spread, digits: int = 3, of: int = 1) -> str:
    """Write a mean and its error, of so many; a dash where it is not defined."""
    if spread.mean is None:
        return "–"
    error = "" if spread.error is None else f" ± {of * spread.error:.{digits}f}"
    return f"{of * spread.mean:.{digits}f}{error}"


percentage = partial(ratio, digits=1, of=100)
"""Write a mean ratio and its error in per cent."""


def number(value: float | None, digits: int = 4) -> str:
    """Write a number; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(one: FigureInterval, digits: int = 3) -> str:
    """Write a figure with its 95 % interval: ``0.871 (0.850 to 0.890)``."""
    if one.value is None:
        return "–"
    if one.low is None or one.high is None:
        return f"{one.value:.{digits}f}"
    return f"{one.value:.{digits}f} ({one.low:.{digits}f} to {one.high:.{digits}f})"
