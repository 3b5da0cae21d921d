"""The report's pictures as inline SVG, in the look of the demo's."""

import math

import numpy as np

from streamer.calibration.guarantee import budget
from streamer.clouds.sentence import UNIT_WORDS, percent
from streamer.gates.declared import Unit
from streamer.report.charts import ScoreCounts, score_counts_chart, tradeoff_curves_chart
from streamer.research.evaluation.results import DataSetResult, GateRow, ScorePicture
from streamer.scoring.registry import GRAM
from streamer.web.plot import Plot

_ROOM_FOR_A_NUMBER = 0.07
_WIDEST = 0.36

OUTCOME_KEY = (
    ("k-fine", "right answer"),
    ("k-wrong", "wrong answer"),
    ("k-held", "no answer: held"),
    ("k-limit", "budget for wrong answers"),
)
"""The legend of `outcomes_chart`."""


def outcomes_chart(result: DataSetResult, unit: Unit, alphas: tuple[float, ...]) -> str:
    """Draw how many units ship right, ship wrong or are held at each budget, and without a gate, by the default method.

    Wrong counts by severity: an answer of severity .5 is half wrong and half right. Upright lines are the error of
    the wrong share for other questions.
    """
    budgets = sorted(alphas, reverse=True)
    rows = [result.default_row(unit, alpha) for alpha in budgets]
    many = UNIT_WORDS[unit][1]
    listed = "; ".join(
        f"budget {budget(row.alpha)}: {percent(row.ship_rate.mean)} ship, {percent(row.exposure.mean, 1)} ship wrong"
        for row in rows
    )
    plot = Plot(
        f"What becomes of {many} at each budget",
        f"Without a gate {percent(result.mean_severity[unit])} are wrong. {listed[:1].upper()}{listed[1:]}.",
        f"budget for wrong answers, of all {many}",
        0.0,
        1.0,
        right=float(len(rows) + 1),
    )
    names = ["no gate", *(budget(alpha) for alpha in budgets)]
    plot.frame(
        [(share / 4, f"{25 * share} %") for share in range(5)],
        [(place + 0.5, name) for place, name in enumerate(names)],
    )
    bars = [
        (1.0, result.mean_severity[unit]),
        *((row.ship_rate.mean or 0.0, row.exposure.mean or 0.0) for row in rows),
    ]
    half = min(_WIDEST, 0.075 * len(bars))
    for place, (shipped, wrong) in enumerate(bars):
        left, right = place + 0.5 - half, place + 0.5 + half
        for start, end, css in ((0.0, wrong, "wrong"), (wrong, shipped, "fine"), (shipped, 1.0, "held")):
            if end > start:
                plot.bar(left, right, end, css, base=start)
            if end - start >= _ROOM_FOR_A_NUMBER:
                y = plot.y((start + end) / 2) + 5
                plot.text(
                    plot.x(place + 0.5), y, f"{100 * (end - start):.0f}", anchor="middle", css=f"on-{css}"
                )
    for place, row in enumerate(rows, start=1):
        wrong, error = row.exposure.mean or 0.0, row.exposure.error or 0.0
        plot.whisker(place + 0.5 + 0.8 * half, max(0.0, wrong - error), wrong + error)
        plot.mark(place + 0.5 - 1.15 * half, place + 0.5 + 1.15 * half, row.alpha, "limit")
    return plot.svg()


def spread_chart(result: DataSetResult, unit: Unit, alpha: float) -> str:
    """Draw the scores of right and of wrong units of all questions; empty where they are not known."""
    picture = score_picture(result, unit)
    if picture is None:
        return ""
    counts = ScoreCounts(
        picture.fine,
        picture.wrong,
        math.nan if picture.fine_median is None else picture.fine_median,
        math.nan if picture.wrong_median is None else picture.wrong_median,
    )
    return score_counts_chart(
        counts,
        unit,
        threshold=usual_threshold(result.cut_row(unit, alpha)),
        of="of all questions",
        meaning="score: higher is safer",
    )


def thresholds_chart(result: DataSetResult, unit: Unit, alpha: float) -> str:
    """Draw what ships and what gets through at every threshold, on all questions; empty where it is not known."""
    picture = score_picture(result, unit)
    if picture is None:
        return ""
    return tradeoff_curves_chart(
        np.array(picture.thresholds),
        np.array(picture.ship_rate),
        np.array(picture.exposure),
        np.array([math.nan if value is None else value for value in picture.selective]),
        unit,
        alpha=alpha,
        threshold=usual_threshold(result.cut_row(unit, alpha)),
    )


def score_picture(result: DataSetResult, unit: str) -> ScorePicture | None:
    """Return what is drawn of the Gram energy's units."""
    return next((row.picture for row in result.ranking if (row.unit, row.scorer) == (unit, GRAM)), None)


def usual_threshold(row: GateRow) -> float:
    """Return a gate's mean threshold over splits; where none is a number, what most splits came to, open or closed."""
    if row.level.mean is not None:
        return row.level.mean
    return -math.inf if row.opened >= 0.5 else math.inf
