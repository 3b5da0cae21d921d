"""The figures as PNG: what prompts get, heatmaps, bars, calibration curves, coverage against risk, what other scores ship.

Colours are Okabe and Ito's, which people with any colour vision tell apart; series differ in marker or hatch as well.
Whiskers are the error of `Spread.error`: one standard error for other questions like these.
"""

import io
import math
from collections.abc import Sequence
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from streamer.research.evaluation.figure_curves import calibration_curves, coverage_risk, scorer_dots
from streamer.research.evaluation.figure_shares import has_shares, shares
from streamer.research.evaluation.figure_style import (
    BLACK,
    BLUE,
    ORANGE,
    STYLE,
    finish,
    set_title,
)
from streamer.research.evaluation.measures import MODES
from streamer.research.evaluation.results import DataSetResult, Evaluation, GateRow, Spread
from streamer.research.evaluation.words import (
    MODE_TITLES,
    UNIT_TITLES,
    budget_label,
    short_name,
)


def all_figures(evaluation: Evaluation) -> dict[str, bytes]:
    """Draw every figure that there are results for; file names to PNG bytes, the same bytes for the same results."""
    with mpl.rc_context(cast("Any", STYLE)):
        drawn: dict[str, Figure] = {"shares.png": shares(evaluation)} if has_shares(evaluation) else {}
        for unit in evaluation.units_shown:
            drawn[f"severity-reduction-{unit}.png"] = reduction_heatmaps(evaluation, unit)
            for mode in _modes(evaluation):
                drawn[f"severity-bars-{mode.lower()}-{unit}.png"] = severity_bars(evaluation, mode, unit)
        if any(result.stability for result in evaluation.data_sets):
            drawn["calibration.png"] = calibration_curves(evaluation)
        drawn["coverage-risk.png"] = coverage_risk(evaluation)
        if any(len(result.scorers) > 1 for result in evaluation.data_sets):
            drawn["scorers.png"] = scorer_dots(evaluation)
        return {name: png(figure) for name, figure in drawn.items()}


def png(figure: Figure) -> bytes:
    """Return a figure as PNG, without the time of day."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def reduction_heatmaps(evaluation: Evaluation, unit: str) -> Figure:
    """Draw by how much severity falls from held to shipped: data sets down, budgets across, one panel for each mode."""
    modes = _modes(evaluation)
    results = [result for result in evaluation.data_sets if unit in result.mean_severity]
    alphas = evaluation.options.alphas
    height = (1.15 + 0.72 * len(results)) * len(modes) + 0.4
    figure = Figure(figsize=(3.4 + 1.2 * len(alphas), height), dpi=144)
    axes = figure.subplots(len(modes), 1, squeeze=False)[:, 0]
    image = None
    for axis, mode in zip(axes, modes, strict=True):
        values = np.full((len(results), len(alphas)), np.nan)
        for y, result in enumerate(results):
            for x, row in enumerate(_of_mode(result, unit, mode)):
                if row.reduction.mean is not None:
                    values[y, x] = 100 * row.reduction.mean
        image = axis.imshow(np.ma.masked_invalid(values), cmap="cividis", vmin=0, vmax=100, aspect="auto")
        for y, result in enumerate(results):
            rows = _of_mode(result, unit, mode)
            for x in range(len(alphas)):
                _cell(axis, x, y, rows[x] if x < len(rows) else None)
        axis.set_title(MODE_TITLES[mode])
        axis.set_xticks(range(len(alphas)), [budget_label(alpha) for alpha in alphas])
        axis.set_xlabel("budget α on exposure" if mode != MODES[0] else "fixed threshold beside α")
        if mode == MODES[0]:
            axis.set_xticks(range(len(alphas)), [f"{budget_label(a)}\nQ ≥ {1 - a:.2g}" for a in alphas])
        axis.set_yticks(range(len(results)), [short_name(result.name) for result in results])
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    width = figure.get_size_inches()[0]
    set_title(figure, f"Reduction of severity from held to shipped, % (unit {unit}: {UNIT_TITLES[unit]})")
    figure.tight_layout(rect=(0, 0, 1 - 0.85 / width, 1))
    if image is not None:
        place = axes[0].get_position()
        bar = figure.add_axes((1 - 0.78 / width, place.y0, 0.15 / width, place.height))
        figure.colorbar(image, cax=bar, extend="min")
        bar.set_title("%", fontsize=10)
    return figure


def _cell(axis: Axes, x: int, y: int, row: GateRow | None) -> None:
    if row is None or row.reduction.mean is None:
        axis.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="//", lw=0)
        )
        words = "no scores" if row is None else "nothing\nships" if row.closed == 1 else "undefined"
        axis.text(x, y, words, ha="center", va="center", fontsize=9, color=BLACK)
        return
    value = 100 * row.reduction.mean
    error = "" if row.reduction.error is None else f" ±{100 * row.reduction.error:.0f}"
    ship = 0.0 if row.ship_rate.mean is None else row.ship_rate.mean
    colour = "black" if value > 55 else "white"
    axis.text(x, y - 0.13, f"{value:.0f}{error}", ha="center", va="center", fontsize=11, color=colour)
    axis.text(x, y + 0.22, f"ships {_percent(ship)}", ha="center", va="center", fontsize=8.5, color=colour)


def severity_bars(evaluation: Evaluation, mode: str, unit: str) -> Figure:
    """Draw mean severity of what ships and of what is held at each budget, one panel a data set."""
    results = [result for result in evaluation.data_sets if _of_mode(result, unit, mode)]
    across = min(3, len(results))
    down = math.ceil(len(results) / across)
    figure = Figure(figsize=(max(7.0, 0.8 + 4.0 * across), 1.2 + 2.9 * down), dpi=144)
    axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axis in axes[len(results) :]:
        axis.set_visible(False)
    for axis, result in zip(axes, results, strict=False):
        rows = _of_mode(result, unit, mode)
        places = np.arange(len(rows), dtype=np.float64)
        _bars(axis, places - 0.2, [row.held_severity for row in rows], ORANGE, "held", "///")
        _bars(axis, places + 0.2, [row.shipped_severity for row in rows], BLUE, "shipped", "")
        for place, row in zip(places, rows, strict=True):
            if row.shipped_severity.mean is None:
                axis.text(
                    place + 0.2, 0.02, "nothing ships", rotation=90, ha="center", va="bottom", fontsize=9
                )
            if row.held_severity.mean is None:
                axis.text(
                    place - 0.2, 0.02, "nothing held", rotation=90, ha="center", va="bottom", fontsize=9
                )
        axis.axhline(result.mean_severity[unit], color=BLACK, ls=":", lw=1.2, label="all, without a gate")
        axis.set_title(short_name(result.name))
        axis.set_xticks(places, [budget_label(row.alpha) for row in rows])
        axis.set_xlabel("budget α")
        axis.set_ylim(0, 1)
        axis.grid(axis="y", color="#dddddd", lw=0.7)
    for row_start in range(0, len(results), across):
        axes[row_start].set_ylabel("mean severity (0 = fine)")
    finish(figure, axes[0], f"{MODE_TITLES[mode]}: severity of shipped and held, unit {unit}")
    return figure


def _bars(
    axis: Axes, places: np.ndarray, spreads: Sequence[Spread], colour: str, label: str, hatch: str
) -> None:
    heights = [one.mean or 0.0 for one in spreads]
    errors = [one.error or 0.0 for one in spreads]
    low = [min(height, error) for height, error in zip(heights, errors, strict=True)]
    axis.bar(
        places,
        heights,
        0.38,
        yerr=[low, errors],
        label=label,
        color=colour,
        edgecolor="white" if hatch else colour,
        hatch=hatch,
        error_kw={"lw": 1.1, "capsize": 2.5, "ecolor": BLACK},
    )


def _modes(evaluation: Evaluation) -> list[str]:
    there = {row.mode for result in evaluation.data_sets for row in result.gates}
    return [mode for mode in MODES if mode in there]


def _of_mode(result: DataSetResult, unit: str, mode: str) -> list[GateRow]:
    return [row for row in result.modes(unit) if row.mode == mode]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %" if ratio >= 0.0995 or ratio == 0 else f"{100 * ratio:.1f} %"
