"""The curves: calibration, coverage against risk, and what each score ships."""

import math

import numpy as np
from matplotlib.figure import Figure

from streamer.research.evaluation.figure_style import (
    BLACK,
    BLUE,
    LINES,
    finish,
    panels,
    scorers_shown,
    set_title,
)
from streamer.research.evaluation.results import Evaluation
from streamer.research.evaluation.words import budget_label, headline_alpha, scorer_title, short_name


def calibration_curves(evaluation: Evaluation) -> Figure:
    """Draw realised risk against the budget, and how much the threshold varies: one line per weighting scheme."""
    results = [result for result in evaluation.data_sets if result.stability]
    figure = Figure(figsize=(10.5, 0.9 + 3.3 * len(results)), dpi=144)
    axes = figure.subplots(len(results), 2, squeeze=False)
    alphas = evaluation.options.alphas
    places = np.arange(len(alphas), dtype=np.float64)
    for (left, right), result in zip(axes, results, strict=True):
        schemes = list(dict.fromkeys(row.method for row in result.stability))
        left.hlines(
            alphas, places - 0.42, places + 0.42, color=BLACK, lw=1.4, ls=(0, (4, 2)), label="budget α"
        )
        for number, scheme in enumerate(schemes):
            rows = [row for row in result.stability if row.method == scheme]
            colour, line, marker = LINES[number]
            risks = np.array([row.exposure.mean or 0.0 for row in rows])
            errors = np.array([row.exposure.error or 0.0 for row in rows])
            left.errorbar(
                places + (number - (len(schemes) - 1) / 2) * 0.17,
                risks,
                yerr=[np.minimum(risks, errors), errors],
                color=colour,
                ls="none",
                marker=marker,
                ms=6,
                lw=1.3,
                capsize=2.5,
                label=scheme,
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
            if scheme != "mean":
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
        right.set_title(f"{short_name(result.name)}: stability of the threshold")
        right.set_ylabel(f"SE of the threshold, {evaluation.options.splits} splits")
        for axis in (left, right):
            axis.set_ylim(bottom=0)
            axis.set_xlim(-0.6, len(alphas) - 0.4)
            axis.set_xticks(places, [budget_label(alpha) for alpha in alphas])
            axis.set_xlabel("budget α")
            axis.grid(axis="y", color="#dddddd", lw=0.7)
    axes[0, 0].plot(
        [], [], ls="none", marker="o", mfc="none", color=BLACK, label="hollow: random weights alone"
    )
    finish(
        figure,
        axes[0, 0],
        "Do the weighting schemes track the budget, and how stable is the threshold? (unit response, Gram energy)",
    )
    return figure


def coverage_risk(evaluation: Evaluation) -> Figure:
    """Draw selective risk against coverage for every score, with the Gram energy's 95 % band."""
    units = evaluation.units_shown
    results = evaluation.data_sets
    figure, axes = panels(results, units, width=4.1, height=3.1, margin=0.8)
    names = scorers_shown(evaluation)
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
                colour, line, _ = LINES[names.index(name) % len(LINES)]
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
    finish(
        figure,
        axes[0, 0],
        "How well scores rank: risk among the shipped as more ships (band: 95 %, Gram energy)",
    )
    return figure


def scorer_dots(evaluation: Evaluation) -> Figure:
    """Draw what each score ships at one budget, the whiskers its error, data sets across and units down."""
    units, results = evaluation.units_shown, evaluation.data_sets
    alpha = headline_alpha(evaluation.options.alphas)
    names = scorers_shown(evaluation)
    figure, axes = panels(results, units, width=3.4, height=1.05 + 0.36 * len(names), margin=2.6)
    places = np.arange(len(names))[::-1]
    for down, unit in enumerate(units):
        for across, result in enumerate(results):
            axis = axes[down, across]
            rows = {row.scorer: row for row in result.compared if row.unit == unit and row.alpha == alpha}
            for name, place in zip(names, places, strict=True):
                row = rows.get(name)
                if row is None or row.ship_rate.mean is None:
                    continue
                colour, _, marker = LINES[names.index(name) % len(LINES)]
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
    set_title(figure, f"What each score ships at the same budget, α = {budget_label(alpha)} (method mean)")
    figure.tight_layout()
    return figure
