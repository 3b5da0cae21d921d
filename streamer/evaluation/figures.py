"""The figures as PNG: heatmaps, bars, calibration curves, coverage against risk, what other scores ship.

Colours are Okabe and Ito's, which people with any colour vision tell apart; series differ in marker or hatch as well.
Whiskers are the error of `Spread.error`: one standard error for other questions like these.
"""

from __future__ import annotations

import io
import math
import textwrap
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from streamer.evaluation.measures import MODES
from streamer.evaluation.words import (
    UNIT_TITLES,
    headline_alpha,
    mode_title,
    scorer_title,
    short_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from streamer.evaluation.results import DataSetResult, Evaluation, GateRow, Spread

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
_LINES = (
    (BLUE, "-", "o"),
    (VERMILION, "--", "s"),
    (GREEN, "-.", "^"),
    (PURPLE, ":", "D"),
    (ORANGE, "--", "v"),
    (BLACK, ":", "x"),
    (SKY, "-", "P"),
    (YELLOW, "-.", "*"),
)
_STYLE = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.hashsalt": "streamer",
}


def all_figures(evaluation: Evaluation) -> dict[str, bytes]:
    """Draw every figure that there are results for; file names to PNG bytes, the same bytes for the same results."""
    with mpl.rc_context(cast("Any", _STYLE)):
        drawn: dict[str, Figure] = {}
        for unit in _units(evaluation):
            drawn[f"severity-reduction-{unit}.png"] = reduction_heatmaps(evaluation, unit)
            for mode in _modes(evaluation):
                drawn[f"severity-bars-{_slug(mode)}-{unit}.png"] = severity_bars(evaluation, mode, unit)
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
        axis.set_title(mode_title(mode))
        axis.set_xticks(range(len(alphas)), [_budget(alpha) for alpha in alphas])
        axis.set_xlabel("budget α on exposure" if mode != MODES[0] else "fixed λ beside α")
        if mode == MODES[0]:
            axis.set_xticks(range(len(alphas)), [f"{_budget(a)}\nλ={1 - a:.2g}" for a in alphas])
        axis.set_yticks(range(len(results)), [short_name(result.name) for result in results])
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
    width = figure.get_size_inches()[0]
    _title(figure, f"Reduction of severity from held to shipped, % (unit {unit}: {UNIT_TITLES[unit]})")
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
        axis.set_xticks(places, [_budget(row.alpha) for row in rows])
        axis.set_xlabel("budget α")
        axis.set_ylim(0, 1)
        axis.grid(axis="y", color="#dddddd", lw=0.7)
    for row_start in range(0, len(results), across):
        axes[row_start].set_ylabel("mean severity (0 = fine)")
    _finish(figure, axes[0], f"{mode_title(mode)}: severity of shipped and held, unit {unit}")
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


def calibration_curves(evaluation: Evaluation) -> Figure:
    """Draw realised risk against the budget, and how much the threshold varies: one line a law of weights."""
    results = [result for result in evaluation.data_sets if result.stability]
    figure = Figure(figsize=(10.5, 0.9 + 3.3 * len(results)), dpi=144)
    axes = figure.subplots(len(results), 2, squeeze=False)
    alphas = evaluation.options.alphas
    places = np.arange(len(alphas), dtype=np.float64)
    for (left, right), result in zip(axes, results, strict=True):
        laws = list(dict.fromkeys(row.method for row in result.stability))
        left.hlines(
            alphas, places - 0.42, places + 0.42, color=BLACK, lw=1.4, ls=(0, (4, 2)), label="budget α"
        )
        for number, law in enumerate(laws):
            rows = [row for row in result.stability if row.method == law]
            colour, line, marker = _LINES[number]
            risks = np.array([row.exposure.mean or 0.0 for row in rows])
            errors = np.array([row.exposure.error or 0.0 for row in rows])
            left.errorbar(
                places + (number - (len(laws) - 1) / 2) * 0.17,
                risks,
                yerr=[np.minimum(risks, errors), errors],
                color=colour,
                ls="none",
                marker=marker,
                ms=6,
                lw=1.3,
                capsize=2.5,
                label=law,
            )
            right.plot(
                places,
                [np.nan if row.level.se is None else row.level.se for row in rows],
                color=colour,
                ls=line,
                marker=marker,
                ms=6,
                lw=1.4,
            )
            weights = [row.level_sd_of_weights for row in rows]
            if law != "mean":
                right.plot(
                    places,
                    [
                        np.nan if one is None else one / math.sqrt(evaluation.options.splits)
                        for one in weights
                    ],
                    color=colour,
                    ls="none",
                    marker=marker,
                    mfc="none",
                    ms=6,
                    clip_on=False,
                )
        left.set_title(f"{short_name(result.name)}: realised risk")
        left.set_ylabel("severity shipped per response")
        right.set_title(f"{short_name(result.name)}: stability of λ")
        right.set_ylabel(f"SE of λ, {evaluation.options.splits} splits")
        for axis in (left, right):
            axis.set_ylim(bottom=0)
            axis.set_xlim(-0.6, len(alphas) - 0.4)
            axis.set_xticks(places, [_budget(alpha) for alpha in alphas])
            axis.set_xlabel("budget α")
            axis.grid(axis="y", color="#dddddd", lw=0.7)
    axes[0, 0].plot(
        [], [], ls="none", marker="o", mfc="none", color=BLACK, label="hollow: random weights alone"
    )
    _finish(
        figure,
        axes[0, 0],
        "Do the laws of weights track the budget, and how steady is λ? (unit response, Gram energy)",
    )
    return figure


def coverage_risk(evaluation: Evaluation) -> Figure:
    """Draw selective risk against coverage for every score, with the Gram energy's 95 % band."""
    units = _units(evaluation)
    results = evaluation.data_sets
    figure, axes = _grid(results, units, width=4.1, height=3.1, margin=0.8)
    names = _scorer_names(evaluation)
    for down, unit in enumerate(units):
        for across, result in enumerate(results):
            axis = axes[down, across]
            rows = {row.scorer: row for row in result.ranking if row.unit == unit}
            if not rows:
                axis.text(0.5, 0.5, "too few severities", ha="center", transform=axis.transAxes)
                continue
            for name in names:
                row = rows.get(name)
                if row is None:
                    continue
                colour, line, _ = _LINES[names.index(name) % len(_LINES)]
                axis.plot(
                    row.curve.coverage,
                    row.curve.risk,
                    color=colour,
                    ls=line,
                    lw=2.2 if name == "gram" else 1.4,
                    label=scorer_title(name),
                    zorder=3 if name == "gram" else 2,
                )
                if name == "gram":
                    axis.fill_between(
                        row.curve.coverage, row.curve.low, row.curve.high, color=colour, alpha=0.18, lw=0
                    )
            axis.axhline(result.mean_severity[unit], color="#888888", lw=1, ls=(0, (2, 3)))
            axis.set_xlim(0, 1)
            axis.set_ylim(bottom=0)
            axis.set_title(f"{short_name(result.name)}, unit {unit}")
            axis.set_xlabel("coverage: share that ships")
            axis.grid(color="#dddddd", lw=0.7)
        axes[down, 0].set_ylabel("selective risk: severity\namong what ships")
    _finish(
        figure,
        axes[0, 0],
        "How well scores rank: risk among the shipped as more ships (band: 95 %, Gram energy)",
    )
    return figure


def scorer_dots(evaluation: Evaluation) -> Figure:
    """Draw what each score ships at one budget, the whiskers its error, data sets across and units down."""
    units, results = _units(evaluation), evaluation.data_sets
    alpha = headline_alpha(evaluation.options.alphas)
    names = _scorer_names(evaluation)
    figure, axes = _grid(results, units, width=3.4, height=1.05 + 0.36 * len(names), margin=2.6)
    places = np.arange(len(names))[::-1]
    for down, unit in enumerate(units):
        for across, result in enumerate(results):
            axis = axes[down, across]
            rows = {row.scorer: row for row in result.compared if row.unit == unit and row.alpha == alpha}
            for name, place in zip(names, places, strict=True):
                row = rows.get(name)
                if row is None or row.ship_rate.mean is None:
                    continue
                colour, _, marker = _LINES[names.index(name) % len(_LINES)]
                axis.errorbar(
                    100 * row.ship_rate.mean,
                    place,
                    xerr=100 * (row.ship_rate.error or 0.0),
                    color=colour,
                    marker=marker,
                    ms=7,
                    capsize=3,
                    lw=1.4,
                )
            gram = rows.get("gram")
            if gram is not None and gram.ship_rate.mean is not None:
                axis.axvline(100 * gram.ship_rate.mean, color=BLUE, lw=0.8, ls=":")
            titled = axis is axes.ravel()[0] or (across == 0 and len(results) > 1)
            axis.set_yticks(places, [scorer_title(name) if titled else "" for name in names])
            axis.set_ylim(-0.6, len(names) - 0.4)
            most = max(5.0, axis.get_xlim()[1])
            axis.set_xlim(-0.025 * most, most)
            axis.set_title(f"{short_name(result.name)}\nunit {unit}", fontsize=11)
            axis.grid(axis="x", color="#dddddd", lw=0.7)
            axis.set_xlabel("ship rate, %")
    _title(figure, f"What each score ships at the same budget, α = {_budget(alpha)} (method mean)")
    figure.tight_layout()
    return figure


def _grid(
    results: Sequence[DataSetResult], units: Sequence[str], *, width: float, height: float, margin: float
) -> tuple[Figure, Any]:
    """Panels by unit and data set; the units of a single data set stand side by side."""
    down, across = (len(units), len(results)) if len(results) > 1 else (1, len(units))
    figure = Figure(figsize=(max(7.0, margin + width * across), 1.1 + height * down), dpi=144)
    axes = figure.subplots(down, across, squeeze=False)
    return figure, axes if len(results) > 1 else axes.T


def _finish(figure: Figure, axis: Axes, title: str) -> None:
    """Set title and legend where they cover nothing and are not cut off."""
    handles, labels = axis.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    columns = max(1, min(len(labels), int(width / (0.65 + 0.085 * max(map(len, labels))))))
    below = (0.12 + 0.24 * math.ceil(len(labels) / columns)) / height
    _title(figure, title)
    figure.legend(handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, below, 1, 1))


def _title(figure: Figure, title: str) -> None:
    """Set the title at the left, broken where the figure ends; `tight_layout` keeps clear of it."""
    lines = textwrap.wrap(title, int(figure.get_size_inches()[0] / 0.106))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=12, fontweight="bold")


def _units(evaluation: Evaluation) -> list[str]:
    return [
        unit
        for unit in evaluation.options.units
        if any(unit in result.mean_severity for result in evaluation.data_sets)
    ]


def _modes(evaluation: Evaluation) -> list[str]:
    there = {row.mode for result in evaluation.data_sets for row in result.gates}
    return [mode for mode in MODES if mode in there]


def _of_mode(result: DataSetResult, unit: str, mode: str) -> list[GateRow]:
    return [row for row in result.modes(unit) if row.mode == mode]


def _scorer_names(evaluation: Evaluation) -> list[str]:
    return list(dict.fromkeys(name for result in evaluation.data_sets for name in result.scorers))


def _slug(mode: str) -> str:
    return mode.lower()


def _budget(alpha: float) -> str:
    return f"{alpha:g}".replace("0.", ".")


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %" if ratio >= 0.0995 or ratio == 0 else f"{100 * ratio:.1f} %"
