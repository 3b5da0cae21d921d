"""What a notebook shows of results: sentences, tables, and the charts of the demo's report."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from streamer.calibration.registry import every
from streamer.clouds.measurement import Units, units_of
from streamer.clouds.sentence import UNIT_WORDS
from streamer.frames.held_out import HeldOut
from streamer.frames.results import Decisions, Report
from streamer.gates.declared import Unit
from streamer.report.charts import calibration_chart, decision_chart, score_chart, tradeoff_chart
from streamer.report.page import DECISION_KEY, TRADEOFF_KEY, picture, score_key, shares_figure
from streamer.report.style import scoped_style

CLASS = "streamer-report"
"""Of the element that holds what a notebook shows."""

_SHOWN = 10
"""Decisions in the table."""


def decisions_html(decisions: Decisions) -> str:
    """Show the first decisions, and where all of them lie; where all signals decide, the budget that each needed."""
    by_signals = bool(np.isnan(decisions.thresholds).any())
    rows = [
        (
            escape(row["prompt_id"][:80]),
            escape(row["answer_id"][:80]),
            _number(row["score"]),
            _number(row["budget_needed" if by_signals else "threshold"] or math.nan),
            "ship" if row["ship"] else "hold",
        )
        for row in decisions.rows()[:_SHOWN]
    ]
    more = f"<p>and {len(decisions) - _SHOWN} more</p>" if len(decisions) > _SHOWN else ""
    units, cuts = units_of(decisions.batches, decisions.unit), np.unique(decisions.thresholds)
    many = UNIT_WORDS[decisions.unit][1]
    chart = (
        ""
        if by_signals
        else picture(
            f"What becomes of {len(units)} {many}",
            decision_chart(units, decisions.unit, threshold=float(cuts[0]) if len(cuts) == 1 else None),
            "What scores above the threshold ships."
            if len(cuts) == 1
            else "Thresholds differ from prompt to prompt.",
            DECISION_KEY,
        )
    )
    what = "budget needed" if by_signals else "threshold"
    table = _table(("prompt_id", "answer_id", "score", what, ""), rows, numbers=(2, 3))
    return _shown(decisions.sentence, "", f"{table}{more}{chart}")


def report_html(report: Report, units: Units) -> str:
    """Show a report with its charts; `units` : what they are of."""
    threshold, alpha = report.threshold.value, report.threshold.alpha
    charts = _of_the_score(units, report.unit, alpha=alpha, threshold=threshold, of="of the table")
    if report.groups and report.risk == "exposure" and not every()[report.threshold.method].against_mean:
        charts += picture(
            "How the threshold was found",
            calibration_chart(report.groups, alpha=alpha, threshold=threshold),
            f"On the severities of {len(report.groups)} prompts: the bound on exposure at each threshold, one unseen "
            "prompt counted at its worst. The threshold is the smallest at which the bound is within the budget.",
        )
    return _shown(report.sentence, report.caveat, charts + _promise(report.threshold.guarantee))


def held_out_html(found: HeldOut, units: Units) -> str:
    """Show what a gate would have made of the judged half of a table; `units` : those that were judged."""
    rows = [tuple(map(escape, row)) for row in found.comparison()]
    parts = _table(("of the same prompts", "everything shipped", "what if"), rows)
    if found.threshold is not None:
        parts += _of_the_score(
            units,
            found.unit,
            alpha=found.threshold.alpha,
            threshold=found.threshold.value,
            of="that were judged",
        )
        parts += _promise(found.threshold.guarantee)
    elif len(units):
        parts += shares_figure(units, f"What becomes of {len(units)} {UNIT_WORDS[found.unit][1]}")
    return _shown(found.sentence, found.why_closed or found.basis, parts)


def _of_the_score(units: Units, unit: Unit, *, alpha: float, threshold: float, of: str) -> str:
    if not len(units):
        return ""
    many = UNIT_WORDS[unit][1]
    shares = shares_figure(units, f"What becomes of {len(units)} {many}")
    if math.isnan(threshold):  # all signals decide: no cut of a score to show
        return shares
    return (
        shares
        + picture(
            "Scores of right and wrong answers",
            score_chart(units, unit, threshold=threshold, of=of),
            "The gate sees the score and never the severity. Wrong answers to the right of the line get through.",
            score_key(many),
        )
        + picture(
            "What another threshold would do",
            tradeoff_chart(units, unit, alpha=alpha, threshold=threshold),
            "To look at, not to choose from: a threshold picked on this curve would have no guarantee.",
            TRADEOFF_KEY,
        )
    )


def _promise(guarantee: str) -> str:
    return (
        '<details class="card" style="margin-top:1.1rem"><summary>What is promised</summary>'
        f"<p>{escape(guarantee)}</p></details>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Write a table; its cells are HTML."""
    names = "".join(f"<th>{name}</th>" for name in head)
    cells = "".join(
        "<tr>"
        + "".join(
            f'<td class="n">{cell}</td>' if place in numbers else f"<td>{cell}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="card scroll"><table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table></div>'
    )


def _shown(sentence: str, caveat: str, parts: str) -> str:
    said = f'<p class="verdict">{escape(caveat)}</p>' if caveat else ""
    return (
        f'<div class="{CLASS}"><style>{scoped_style(CLASS)}</style>'
        f'<p class="result">{escape(sentence[:1].upper() + sentence[1:])}.</p>{said}{parts}</div>'
    )


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none" if math.isnan(value) else f"{value:g}"
