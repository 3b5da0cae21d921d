"""How the figures look: colours, series, titles and legends that nothing covers and nothing cuts."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamer.research.evaluation.results import DataSetResult, Evaluation

BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#56B4E9",
    "#D55E00",
    "#CC79A7",
    "#B8A800",
    "#333333",
)
LINES = (
    (BLUE, "-", "o"),
    (VERMILION, "--", "s"),
    (GREEN, "-.", "^"),
    (PURPLE, ":", "D"),
    (ORANGE, "--", "v"),
    (BLACK, ":", "x"),
    (SKY, "-", "P"),
    (YELLOW, "-.", "*"),
)
STYLE = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.hashsalt": "streamer",
}


_LEGEND = 0.6
"""Inches of a figure's height that `panels` leaves for a legend."""


def panels(
    results: Sequence[DataSetResult], units: Sequence[str], *, width: float, height: float, margin: float
) -> tuple[Figure, Any]:
    """Panels by unit and data set; the units of a single data set stand side by side."""
    down, across = (len(units), len(results)) if len(results) > 1 else (1, len(units))
    figure = Figure(figsize=(max(7.0, margin + width * across), 1.1 + height * down), dpi=144)
    axes = figure.subplots(down, across, squeeze=False)
    return figure, axes if len(results) > 1 else axes.T


def finish(figure: Figure, axis: Axes, title: str) -> None:
    """Set title and legend where they cover nothing and are not cut off."""
    handles, labels = axis.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    columns = max(1, min(len(labels), int(width / (0.65 + 0.085 * max(map(len, labels))))))
    legend = 0.12 + 0.24 * math.ceil(len(labels) / columns)
    height += max(0.0, legend - _LEGEND)  # a longer one makes the figure higher, and no panel lower
    figure.set_size_inches(width, height)
    below = legend / height
    set_title(figure, title)
    figure.legend(handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, below, 1, 1))


def set_title(figure: Figure, title: str) -> None:
    """Set the title at the left, broken where the figure ends; `tight_layout` keeps clear of it."""
    lines = textwrap.wrap(title, int(figure.get_size_inches()[0] / 0.106))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=12, fontweight="bold")


def scorers_shown(evaluation: Evaluation) -> list[str]:
    """Return the scores that some data set has, in order."""
    return list(dict.fromkeys(name for result in evaluation.data_sets for name in result.scorers))
