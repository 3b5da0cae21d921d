"""The report's pictures as inline SVG: they follow the page's colours, light or dark, and carry their own words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamer.calibration import LabelledGroup, LossCurve
from streamer.calibration.guarantee import budget
from streamer.clouds.measurement import Floats, Units
from streamer.clouds.sentence import UNIT_WORDS, percent
from streamer.gates.declared import Unit
from streamer.gates.rule import INDICATOR, Cut
from streamer.web.plot import Plot, ceiling, percent_ticks
from streamer.wording.policies import cut_text

BINS = 25


def threshold_words(threshold: float) -> str:
    """Name a threshold for people; one that is infinite by what it does."""
    if threshold == math.inf:
        return "closed: nothing ships"
    if threshold == -math.inf:
        return "open: everything ships"
    return cut_text(Cut.at(threshold), INDICATOR)


def calibration_chart(groups: Sequence[LabelledGroup], *, alpha: float, threshold: float) -> str:
    """Draw the bound on exposure, (sum_g L_g(l) + 1) / (G + 1), over thresholds l, against the budget alpha.

    Groups count equally and so do the items of each (the scheme `mean`).
    """
    scores = np.concatenate([g.scores for g in groups]) if groups else np.empty(0)
    losses = np.concatenate([g.severities / len(g.severities) for g in groups]) if groups else np.empty(0)
    curve = LossCurve.of(scores, losses)
    bounds = (np.concatenate([[0.0], curve.totals]) + 1) / (len(groups) + 1)
    starts = [0.0, *(float(level) for level in curve.levels[::-1] if level > 0)]
    values = [float(bound) for bound in bounds[::-1]][-len(starts) :]
    plot = Plot(
        "How the threshold was found",
        f"The bound on exposure falls from {percent(values[0], 1)} when everything ships to {percent(values[-1], 1)} "
        f"when nothing does. The budget is {budget(alpha)}; {threshold_words(threshold)}.",
        "threshold: ship what scores above it",
        0.0,
        ceiling(max(*values, alpha)),
    )
    plot.frame(percent_ticks(plot.high))
    plot.steps(starts, values, "exposure")
    plot.level(alpha, f"budget {budget(alpha)}")
    plot.cut(threshold, threshold_words(threshold))
    reached = [value for start, value in zip(starts, values, strict=True) if start <= max(threshold, 0.0)]
    plot.dot(threshold, reached[-1], "exposure")
    return plot.svg()


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """How many fine units and wrong ones (severity .5 or more) have their scores in each of `BINS` equal parts of [0, 1].

    Medians are None where there is no unit.
    """

    fine: tuple[int, ...]
    wrong: tuple[int, ...]
    fine_median: float | None
    wrong_median: float | None

    @classmethod
    def of(cls, units: Units) -> "ScoreCounts":
        """Count the units that have a score."""
        known, wrong = ~np.isnan(units.scores), units.severities >= 0.5
        kinds = units.scores[known & ~wrong], units.scores[known & wrong]
        fine, bad = (np.histogram(kind, np.linspace(0, 1, BINS + 1))[0].tolist() for kind in kinds)
        middle = [float(np.median(kind)) if len(kind) else None for kind in kinds]
        return cls(tuple(fine), tuple(bad), *middle)


def score_counts_chart(counts: ScoreCounts, unit: Unit, *, threshold: float, of: str, meaning: str) -> str:
    """Draw counts of scores; `of` says which units these are, `meaning` what stands along the axis."""
    many = UNIT_WORDS[unit][1]
    fine, wrong = sum(counts.fine), sum(counts.wrong)
    plot = Plot(
        "Scores of right and wrong answers",
        f"Of the {fine + wrong} scored {many} {of} {fine} are right, with "
        f"a median score of {_median(counts.fine_median)}, and {wrong} wrong, with a "
        f"median of {_median(counts.wrong_median)}.",
        meaning,
        -float(max(1, *counts.wrong)) * 1.12,
        float(max(1, *counts.fine)) * 1.25,
    )
    _two_ways(plot, counts.fine, counts.wrong, ("fine", "wrong"))
    plot.cut(threshold, threshold_words(threshold))
    return plot.svg()


def decision_chart(units: Units, unit: Unit, *, threshold: float | None) -> str:
    """Draw how the scores of what ships (upwards) and of what is held (downwards) are spread.

    `threshold` : of all of them; None: there are several.
    """
    known = ~np.isnan(units.scores)
    ship, hold = (
        tuple(int(one) for one in np.histogram(units.scores[known & kind], np.linspace(0, 1, BINS + 1))[0])
        for kind in (units.shipped, ~units.shipped)
    )
    unknown = int(len(units) - known.sum())
    plot = Plot(
        "What ships and what is held",
        f"Of {len(units)} {UNIT_WORDS[unit][1]} {sum(ship)} ship and {sum(hold) + unknown} are held"
        + (f", {unknown} of them without a score." if unknown else "."),
        "score: higher is safer",
        -float(max(1, *hold)) * 1.12,
        float(max(1, *ship)) * 1.25,
    )
    _two_ways(plot, ship, hold, ("fine", "hold"))
    if threshold is not None:
        plot.cut(threshold, threshold_words(threshold))
    return plot.svg()


def _two_ways(plot: Plot, ups: Sequence[int], downs: Sequence[int], css: tuple[str, str]) -> None:
    """Draw counts of scores in `BINS` equal parts of [0, 1], upwards and downwards."""
    value = (plot.high - plot.low) / 6
    power = 10 ** max(0, math.floor(math.log10(max(value, 1))))
    step = int(next(f * power for f in (1, 2, 5, 10) if f * power >= value))
    ticks = range(-int(-plot.low // step) * step, int(plot.high) + 1, step)
    plot.frame([(float(count), str(abs(count))) for count in ticks])
    for place, (up, down) in enumerate(zip(ups, downs, strict=True)):
        left, right = place / BINS, (place + 1) / BINS
        if up:
            plot.bar(left, right, float(up), css[0])
        if down:
            plot.bar(left, right, -float(down), css[1])


def tradeoff_curves_chart(
    starts: Floats,
    ship: Floats,
    exposure: Floats,
    selective: Floats,
    unit: Unit,
    *,
    alpha: float,
    threshold: float,
) -> str:
    """Draw ship rate, selective risk and exposure risk over every threshold, as `tradeoff` has them, the chosen one marked."""
    many = UNIT_WORDS[unit][1]
    at = int(np.searchsorted(starts, max(threshold, 0.0), side="right")) - 1 if threshold < math.inf else -1
    chosen = [float(curve[at]) for curve in (ship, selective, exposure)]
    plot = Plot(
        "What another threshold would have done",
        f"At the chosen threshold {percent(chosen[0])} of the {many} ship, "
        f"{percent(None if math.isnan(chosen[1]) else chosen[1])} of what ships is wrong, and exposure is "
        f"{percent(chosen[2], 1)} against a budget of {budget(alpha)}.",
        "threshold: ship what scores above it",
        0.0,
        1.0,
    )
    plot.frame([(share / 4, f"{25 * share} %") for share in range(5)])
    for curve, css in ((ship, "ship"), (selective, "selective"), (exposure, "exposure")):
        plot.steps(starts.tolist(), curve.tolist(), css)
    plot.level(alpha, f"budget {budget(alpha)}", at_left=True)
    plot.cut(threshold, threshold_words(threshold))
    for value, css in zip(chosen, ("ship", "selective", "exposure"), strict=True):
        if not math.isnan(value):
            plot.dot(threshold, value, css)
    return plot.svg()


def budget_chart(
    alphas: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    unit: Unit,
    *,
    alpha: float,
    chosen: Mapping[str, float],
) -> str:
    """Draw what ships at each budget; `curves` and `chosen` (at `alpha`) are `ship`, `selective` and `exposure`, NaN where undefined."""
    said = ", ".join(
        f"{words} {percent(None if math.isnan(chosen[name]) else chosen[name], 1)}"
        for name, words in (
            ("ship", "share served"),
            ("selective", "error rate among shipped"),
            ("exposure", "exposure"),
        )
    )
    plot = Plot(
        "What another budget would serve",
        f"At a budget of {budget(alpha)}, of {UNIT_WORDS[unit][1]}: {said}.",
        "budget",
        0.0,
        1.0,
        right=max(alphas),
    )
    ticks = [(step / 10, f"{10 * step} %") for step in range(int(10 * max(alphas)) + 1)]
    plot.frame([(share / 4, f"{25 * share} %") for share in range(5)], ticks)
    for name, values in curves.items():
        known = [(at, value) for at, value in zip(alphas, values, strict=True) if not math.isnan(value)]
        plot.curve([at for at, _ in known], [value for _, value in known], name)
    plot.cut(alpha, f"budget {budget(alpha)}")
    for name, value in chosen.items():
        if not math.isnan(value):
            plot.dot(alpha, value, name)
    return plot.svg()


def tradeoff(units: Units) -> tuple[Floats, Floats, Floats, Floats]:
    """Return, from each threshold on at which something changes: that start, ship rate, exposure
    risk and selective risk.

    All of shape (k,), k >= 1, starts rising from 0; selective risk is NaN where nothing ships. A
    threshold of 0 ships whatever may ship and scores above 0.
    """
    may = units.shippable
    starts = np.unique(np.concatenate([[0.0], units.scores[may]]))
    order = np.argsort(units.scores[may])
    scores, severities = units.scores[may][order], units.severities[may][order]
    below = np.searchsorted(scores, starts, side="right")
    lost = np.concatenate([[0.0], np.cumsum(severities)])
    shipped = (len(scores) - below).astype(np.float64)
    wrong = np.maximum(lost[-1] - lost[below], 0.0)
    total = max(len(units), 1)
    selective = np.full(len(starts), np.nan)
    np.divide(wrong, shipped, out=selective, where=shipped > 0)
    return starts, shipped / total, wrong / total, selective


def _median(median: float | None) -> str:
    return "none" if median is None else f"{median:.2f}"
