"""The first figure: of a hundred prompts, how many get a right answer, a wrong one, or none."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamer.calibration.guarantee import budget
from streamer.research.evaluation.figure_style import BLACK, BLUE, VERMILION, finish
from streamer.research.evaluation.results import DataSetResult, Evaluation
from streamer.research.evaluation.words import short_name

_UNIT = "best"
_HELD = "#e4e4e4"
_ROOM_FOR_A_NUMBER = 3.5


def has_shares(evaluation: Evaluation) -> bool:
    """Report whether some data set has figures of one answer or none to a prompt."""
    return any(_UNIT in result.mean_severity for result in evaluation.data_sets)


def shares(evaluation: Evaluation) -> Figure:
    """Draw the outcomes of prompts at each budget, and without a gate, by the default method, one panel a data set.

    Wrong counts by severity: an answer of severity .5 is half wrong and half right.
    """
    results = [result for result in evaluation.data_sets if _UNIT in result.mean_severity]
    budgets = sorted(evaluation.options.alphas, reverse=True)
    across = min(2, len(results))
    down = math.ceil(len(results) / across)
    figure = Figure(figsize=(8.2 * across, 1.5 + (0.8 + 0.48 * (len(budgets) + 1)) * down), dpi=144)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(results) :]:
        axis.set_visible(False)
    for axis, result in zip(axes, results, strict=False):
        _panel(axis, result, budgets)
    finish(figure, axes[0], "What 100 prompts get: the answer with the highest score, or none")
    return figure


def _panel(axis: Axes, result: DataSetResult, budgets: list[float]) -> None:
    rows = [result.default_row(_UNIT, alpha) for alpha in budgets]
    shipped = 100 * np.array([1.0, *(row.ship_rate.mean or 0.0 for row in rows)])
    wrong = 100 * np.array([result.mean_severity[_UNIT], *(row.exposure.mean or 0.0 for row in rows)])
    errors = 100 * np.array([row.exposure.error or 0.0 for row in rows])
    places = np.arange(len(rows) + 1, dtype=np.float64)
    for left, width, colour, ink, label, hatch in (
        (np.zeros_like(wrong), wrong, VERMILION, "white", "wrong answer", ""),
        (wrong, shipped - wrong, BLUE, "white", "right answer", ""),
        (shipped, 100 - shipped, _HELD, BLACK, "no answer (held)", "//"),
    ):
        edge = "white" if not hatch else "#c8c8c8"
        axis.barh(
            places, width, 0.72, left=left, color=colour, edgecolor=edge, lw=0.6, hatch=hatch, label=label
        )
        for place, start, one in zip(places, left, width, strict=True):
            if one >= _ROOM_FOR_A_NUMBER:
                box = {"facecolor": _HELD, "edgecolor": "none", "pad": 1.2} if hatch else None
                axis.text(start + one / 2, place, f"{one:.0f}", ha="center", va="center", color=ink, bbox=box)
    for place, alpha, measured, error in zip(places[1:], budgets, wrong[1:], errors, strict=True):
        first = alpha == budgets[0]
        axis.plot(
            [100 * alpha] * 2,
            [place - 0.46, place + 0.46],
            color=BLACK,
            lw=2.2,
            label="budget" if first else None,
        )
        axis.plot(
            [max(0.0, measured - error), measured + error],
            [place + 0.27] * 2,
            color=BLACK,
            lw=1,
            label="error of the wrong share" if first else None,
        )
    axis.set_yticks(places, ["no gate", *(f"budget {budget(alpha)}" for alpha in budgets)])
    axis.invert_yaxis()
    axis.set_xlim(0, 100)
    axis.set_xlabel("prompts, %")
    axis.set_title(short_name(result.name), loc="left")
    axis.tick_params(axis="y", length=0)
