"""The report: one page that refers to nothing outside itself and runs no script."""

from __future__ import annotations

import base64
import shlex
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2

from streamer.clouds.sentence import budget
from streamer.dev.report.style import STYLE
from streamer.research.evaluation.findings import LIMITS, findings, headline
from streamer.research.evaluation.measures import JUDGE, MODES
from streamer.research.evaluation.ranking import RESAMPLES
from streamer.research.evaluation.results import JUDGE_FIELD
from streamer.research.evaluation.tables import (
    calibrator_table,
    data_table,
    mode_table,
    over_budget_table,
    ranking_table,
    reduction_table,
    scorer_table,
    stability_table,
)
from streamer.research.evaluation.words import headline_alpha
from streamer.scoring.learned import Learned
from streamer.scoring.registry import LEARNED, SCORERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.research.evaluation.results import Evaluation

_MORE_STYLE = """
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem; }
.cards h2.name { font-size: 1rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
.cards p { margin: .6rem 0 0; font-size: .95rem; }
dl.three { display: grid; grid-template-columns: repeat(3, 1fr); gap: .6rem; margin: 0; }
dl.three > div { display: flex; flex-direction: column; justify-content: flex-end; }
dl.three dt { color: var(--soft); font-size: .82rem; line-height: 1.25; }
dl.three dd { margin: 0; font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; }
nav ol { columns: 2 16rem; padding-left: 1.3rem; margin: 1.6rem 0 0; } nav a { color: var(--fine); }
ul.findings li { margin: .35rem 0; max-width: 50rem; }
.tabled { margin-top: 1rem; } .scroll table { min-width: 0; } table.figures { font-size: .88rem; }
p.caption { color: var(--soft); font-size: .9rem; margin: 0 0 .5rem; max-width: 52rem; } p.caption strong { color: var(--ink); }
table.figures th, table.figures td { padding: .3rem .9rem .3rem 0; white-space: nowrap; }
table.figures th.n, table.figures td.n { text-align: right; font-weight: 400; font-variant-numeric: tabular-nums; }
table.figures thead th { vertical-align: bottom; white-space: normal; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption .file { font-size: .85rem; opacity: .8; } figcaption .file::before { content: "· "; }
.note { margin-top: 1rem; border-left: 4px solid var(--selective); } .note ul { margin: .3rem 0 0; padding-left: 1.2rem; }
details { margin-top: .8rem; } summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
dl.says { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: .6rem 0 0; }
dl.says dd { margin: 0; color: var(--soft); }
dl.next { grid-template-columns: minmax(8rem, max-content) 1fr; } dl.next dt { overflow-wrap: anywhere; }
@media (max-width: 44rem) { figure .scroll img { max-width: none; width: 40rem; } dl.says { grid-template-columns: 1fr; }
  dl.says dd { margin-bottom: .5rem; } dl.three dd { font-size: 1.25rem; } main { padding: 1.4rem .9rem 3rem; } }
"""


def render_page(evaluation: Evaluation, pictures: Mapping[str, bytes]) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    pictures : PNG bytes by file name, as `streamer.research.evaluation.figures.all_figures` draws them.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        files("streamer.research.evaluation").joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    units = [
        unit
        for unit in evaluation.options.units
        if any(unit in result.mean_severity for result in evaluation.data_sets)
    ]
    places = [
        (result, unit) for result in evaluation.data_sets for unit in units if unit in result.mean_severity
    ]
    many_scores = any(len(result.scorers) > 1 for result in evaluation.data_sets)
    there = {row.mode for result in evaluation.data_sets for row in result.gates}
    stability = [stability_table(result) for result in evaluation.data_sets if result.stability]
    return template.render(
        evaluation=evaluation,
        style=STYLE + _MORE_STYLE,
        verdict=_verdict(evaluation),
        headlines=[headline(evaluation, result) for result in evaluation.data_sets],
        findings=findings(evaluation),
        limits=LIMITS,
        units=units,
        modes=[(mode, mode.lower()) for mode in MODES if mode in there],
        has_judge=any(JUDGE in result.scorers for result in evaluation.data_sets),
        pictures={name: base64.b64encode(content).decode() for name, content in pictures.items()},
        data_table=data_table(evaluation),
        reduction_tables=[reduction_table(evaluation, unit) for unit in units],
        mode_tables=[mode_table(result, unit) for result, unit in places],
        over_table=over_budget_table(evaluation),
        stability_tables=stability,
        ranking_table=ranking_table(evaluation),
        scorer_tables=[scorer_table(evaluation, unit) for unit in units] if many_scores else [],
        calibrator_tables=[
            calibrator_table(result, unit, evaluation.options.alphas) for result, unit in places
        ],
        meanings=[
            *((one.title, one.says) for one in SCORERS if one.name in evaluation.options.scorers),
            *([(Learned.title, Learned.says)] if LEARNED in evaluation.options.scorers else []),
        ],
        resamples=RESAMPLES,
        contents=[
            ("asked", "How it was measured"),
            ("came", "Results"),
            ("reduction", "Severity, shipped against held"),
            ("held", "Did the budgets hold?"),
            *([("calibration", "How stable is the threshold?")] if stability else []),
            ("score", "How good is the score?"),
            *([("scorers", "Which score ships most at the same risk?")] if many_scores else []),
            ("calibrators", "Every calibrator"),
            ("not", "What it does not mean"),
            ("errors", "How to read ± and SE"),
            ("again", "Do it again"),
        ],
        command=command(evaluation),
    )


def _verdict(evaluation: Evaluation) -> str:
    questions = sum(result.questions for result in evaluation.data_sets)
    responses = sum(result.responses for result in evaluation.data_sets)
    alpha = headline_alpha(evaluation.options.alphas)
    return (
        f"{questions:,} questions with {responses:,} answers whose severities are known, {evaluation.options.splits} seeded "
        f"splits. The cards are for a budget of {budget(alpha)} on exposure, the Gram energy and the method mean."
    )


def command(evaluation: Evaluation) -> str:
    """Return the command that evaluates the same again."""
    options = evaluation.options
    words = ["streamer", "evaluate"]
    for result in evaluation.data_sets:
        words += (
            ["--from-store", result.source.removeprefix("gate ")]
            if result.source.startswith("gate ")
            else [result.source]
        )
    words += ["--out", "DIR"]
    for alpha in options.alphas:
        words += ["--alpha", f"{alpha:g}"]
    for unit in options.units:
        words += ["--unit", unit]
    words += ["--splits", str(options.splits), "--seed", str(options.seed)]
    words += ["--scorers", "all" if len(options.scorers) == len(SCORERS) + 1 else ",".join(options.scorers)]
    for field in options.external:
        words += ["--score-field", field]
    if options.judge_field != JUDGE_FIELD:
        words += ["--judge-field", options.judge_field]
    if options.answer_pattern is not None:
        words += ["--answer-pattern", options.answer_pattern]
    return shlex.join(words)
