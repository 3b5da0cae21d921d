"""Of a hundred prompts, how many get a right answer, a wrong one, or none:
``python -m streamer_research.studies.shares evaluation/results.json shares.png``.

Colours are Okabe and Ito's, which people with any colour vision tell apart.
"""

import math
import sys
from pathlib import Path

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamer.calibration.guarantee import budget
from streamer.research.evaluation.results import DataSetResult, Evaluation

BLUE, VERMILION, BLACK = "#0072B2", "#D55E00", "#333333"
_UNIT = "best"
_HELD = "#e4e4e4"
_ROOM_FOR_A_NUMBER = 3.5


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
    figure.suptitle("What 100 prompts get", x=0.01, ha="left", fontsize=12, fontweight="bold")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.36 / figure.get_figheight(), 1, 1))
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
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlim(0, 100)
    axis.set_xlabel("prompts, %")
    axis.set_title(result.name, loc="left")
    axis.tick_params(axis="y", length=0)


if __name__ == "__main__":
    source, picture = sys.argv[1:]
    shares(msgspec.json.decode(Path(source).read_bytes(), type=Evaluation)).savefig(picture)
