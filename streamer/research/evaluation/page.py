"""The report: one page that refers to nothing outside itself and runs no script."""

import math
import shlex
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np

from streamer.calibration.guarantee import budget
from streamer.clouds.sentence import UNIT_WORDS, percent
from streamer.gates.declared import Unit
from streamer.report.charts import score_counts_chart, tradeoff_curves_chart
from streamer.report.page import TRADEOFF_KEY, picture, score_key
from streamer.report.style import STYLE
from streamer.research.evaluation.findings import LIMITS, findings, headline, headline_unit
from streamer.research.evaluation.measures import RESAMPLES
from streamer.research.evaluation.results import (
    JUDGE_FIELD,
    DataSetResult,
    Evaluation,
    GateRow,
    Options,
    ScorePicture,
)
from streamer.research.evaluation.tables import all_tables, method_table
from streamer.research.evaluation.words import headline_alpha
from streamer.scoring.registry import GRAM, SCORER_NAMES, SCORERS
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


def score_picture(result: DataSetResult, unit: str) -> ScorePicture | None:
    """Return what is drawn of the Gram energy's units."""
    return next((row.picture for row in result.ranking if (row.unit, row.scorer) == (unit, GRAM)), None)


def usual_threshold(row: GateRow) -> float:
    """Return a gate's mean threshold over splits; where none is a number, what most splits came to, open or closed."""
    if row.level.mean is not None:
        return row.level.mean
    return -math.inf if row.opened >= 0.5 else math.inf


_MORE_STYLE = """
.three { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; margin: .8rem 0 0; }
.three h3 { font-size: .95rem; color: var(--soft); } .three h2 { font-size: .95rem; color: var(--soft); margin: 0 0 .4rem; }
.three p { margin: .3rem 0 0; font-size: .95rem; }
.three .big { font-size: 1.75rem; line-height: 1.2; font-weight: 650; margin: 0; font-variant-numeric: tabular-nums; }
h2.name { margin-top: 1.6rem; overflow-wrap: anywhere; } .result { overflow-wrap: anywhere; }
nav ol { columns: 2 16rem; padding-left: 1.9rem; margin: 1.6rem 0 0; } a { color: var(--fine); }
ul.findings li { margin: .35rem 0; max-width: 50rem; overflow-wrap: anywhere; }
.tabled { margin-top: 1rem; container-type: inline-size; }
p.caption { color: var(--soft); font-size: .9rem; margin: 0 0 .5rem; max-width: 52rem; }
table.figures { font-size: .86rem; } table.figures th, table.figures td { padding: .3rem .7rem .3rem 0; overflow-wrap: anywhere; }
table.figures tbody th { white-space: normal; min-width: 5rem; } table.figures thead th { vertical-align: bottom; overflow-wrap: normal; }
table.figures th.n, table.figures td.n { text-align: right; font-weight: 400; font-variant-numeric: tabular-nums; white-space: normal;
  overflow-wrap: normal; }
table.figures tr > :last-child { padding-right: 0; } table.figures.wide { font-size: .76rem; }
table.figures.wide th, table.figures.wide td { padding-right: .5rem; }
@container (max-width: 40rem) {
  table.figures, table.figures.wide { font-size: .9rem; }
  table.figures, table.figures tbody, table.figures tr { display: block; } table.figures thead { position: absolute; clip-path: inset(50%);
    height: 1px; width: 1px; overflow: hidden; }
  table.figures tr { border-top: 1px solid var(--rule); padding: .5rem 0; }
  table.figures tr > *, table.figures th.n, table.figures td.n { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    padding: .1rem 0; text-align: right; }
  table.figures tbody th { text-align: left; } table.figures td::before { content: attr(data-head); color: var(--soft); text-align: left; }
  table.figures td > span { max-width: 62%; }
}
.k-held { background: var(--rule); } .key i.l.k-limit { height: .2rem; background: var(--ink); }
.note { margin-top: 1rem; border-left: 4px solid var(--selective); } .note ul { margin: .3rem 0 0; padding-left: 1.2rem; }
details { margin-top: .8rem; } summary { cursor: pointer; font-weight: 600; padding: .3rem 0; overflow-wrap: anywhere; }
dl.says { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: .6rem 0 0; }
dl.says dd { margin: 0; color: var(--soft); } ul.files { padding-left: 1.2rem; } ul.files code { white-space: nowrap; }
dl.next { grid-template-columns: minmax(8rem, max-content) 1fr; } dl.next dt { overflow-wrap: anywhere; }
@media (max-width: 44rem) { .three { grid-template-columns: 1fr; gap: .7rem; } dl.says { grid-template-columns: 1fr; }
  .three .card { padding: .7rem .9rem; } .three .big { font-size: 1.45rem; } dl.says dd { margin-bottom: .5rem; }
  main { padding: 1.4rem .9rem 3rem; } dl.next { grid-template-columns: 1fr; } ul.files code { white-space: normal; } }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
"""

_OUTCOMES = (
    "Means over the measured halves, by the method of the figures above. Wrong counts by severity: an answer of severity .5 is half wrong. The wrong "
    "part must end at or below the thick line on average; the thin upright line is its error for other questions."
)
_SPREAD = (
    "All questions. The gate sees the score and never the severity; what stands to the right of the line ships. The further "
    "apart the two colours, the better the score. The line is the average threshold at the budget above, method mean."
)
_THRESHOLDS = (
    "All questions, so that figures differ a little from those above. To look at, not to choose from: a threshold picked on "
    "this curve would have no guarantee."
)


def render_page(evaluation: Evaluation) -> str:
    """Return the report as HTML."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        files("streamer.research.evaluation").joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    many_scores = any(len({row.scorer for row in result.compared}) > 1 for result in evaluation.data_sets)
    return template.render(
        evaluation=evaluation,
        style=STYLE + _MORE_STYLE,
        verdict=_verdict(evaluation),
        headlines=[headline(evaluation, result) for result in evaluation.data_sets],
        charts=[_charts(evaluation, result) for result in evaluation.data_sets],
        findings=findings(evaluation),
        limits=LIMITS,
        tables=all_tables(evaluation),
        many_scores=many_scores,
        meanings=[(one.title, one.says) for one in SCORERS if one.name in evaluation.options.scorers],
        resamples=RESAMPLES,
        contents=[
            ("pictures", "What it would do, in pictures"),
            ("methods", "Ways to find the threshold"),
            ("score", "How good is the score?"),
            *([("scorers", "Which score ships most at the same risk?")] if many_scores else []),
            ("held", "Did the budgets hold?"),
            ("came", "Findings"),
            ("asked", "How it was measured"),
            ("not", "What this does not tell you"),
            ("paper", "The paper's tables"),
            ("repeat", "Run it again"),
        ],
        command=command(evaluation),
    )


def _charts(evaluation: Evaluation, result: DataSetResult) -> dict[str, Any]:
    """The pictures and the table of methods of one data set, for the unit that most products use."""
    alphas, unit = evaluation.options.alphas, headline_unit(result)
    alpha = headline_alpha(alphas)
    many = UNIT_WORDS[unit][1]
    drawn = [
        picture(f"What 100 {many} get", outcomes_chart(result, unit, alphas), _OUTCOMES, OUTCOME_KEY),
    ]
    if (shown := score_picture(result, unit)) is not None:
        threshold = usual_threshold(result.cut_row(unit, alpha))
        meaning, of = "score: higher is safer", "of all questions"
        spread = score_counts_chart(shown, unit, threshold=threshold, of=of, meaning=meaning)
        starts, ship, exposure = map(np.array, (shown.thresholds, shown.ship_rate, shown.exposure))
        selective = np.array(shown.selective, dtype=np.float64)
        others = tradeoff_curves_chart(
            starts, ship, exposure, selective, unit, alpha=alpha, threshold=threshold
        )
        drawn += [
            picture("Scores of right and wrong answers", spread, _SPREAD, score_key(many)),
            picture("What another threshold would do", others, _THRESHOLDS, TRADEOFF_KEY),
        ]
    return {"name": result.name, "drawn": drawn, "methods": method_table(result, unit, alpha)}


def _verdict(evaluation: Evaluation) -> str:
    questions = sum(result.questions for result in evaluation.data_sets)
    responses = sum(result.responses for result in evaluation.data_sets)
    alpha = headline_alpha(evaluation.options.alphas)
    return (
        f"{questions:,} questions with {responses:,} answers whose severities are known, {evaluation.options.splits} seeded "
        f"splits. At a budget of {budget(alpha)}{_by_what(evaluation)}:"
    )


def _by_what(evaluation: Evaluation) -> str:
    """What decides, where it is the same for all data sets."""
    alpha = headline_alpha(evaluation.options.alphas)
    methods = {result.default_row(headline_unit(result), alpha).method for result in evaluation.data_sets}
    if methods == {"full"}:
        return ", where every label fits and calibrates one score of all signals (method full)"
    if methods == {"mean"}:
        return ", with the score that gates use (Gram energy, or the file's own) and the method mean"
    return ", by method full, and by mean where it has too few questions or no texts"


def command(evaluation: Evaluation) -> str:
    """Return the command that evaluates the same again."""
    options = evaluation.options
    words = ["streamer", "evaluate"]
    for source in dict.fromkeys(result.source for result in evaluation.data_sets):
        gate = source.removeprefix("gate ")
        words += [source] if gate == source else ["--from-store", gate]
    words += ["--out", "DIR"]
    for alpha in options.alphas:
        words += ["--alpha", f"{alpha:g}"]
    for unit in options.units:
        words += ["--unit", unit]
    words += ["--splits", str(options.splits), "--seed", str(options.seed)]
    words += [
        "--scorers",
        "all" if set(options.scorers) == set(SCORER_NAMES) else ",".join(options.scorers),
    ]
    for field in options.external:
        words += ["--score-field", field]
    for name, least, most in options.signals:
        words += ["--signal", f"{name}={least:g}..{most:g}"]
    for name in options.models:
        words += ["--signal", f"model={name}"]
    if options.judged != Options().judged:
        for one in options.judged:
            words += ["--judged", one]
    if options.judge_field != JUDGE_FIELD:
        words += ["--judge-field", options.judge_field]
    return shlex.join(words)
