"""What a notebook shows of results: sentences, tables, and the charts of the demo's report."""

import json
import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape

import numpy as np

from streamer.calibration.guarantee import budget
from streamer.clouds.measurement import units_of
from streamer.clouds.sentence import UNIT_WORDS, percent
from streamer.frames.results import Decisions, Report
from streamer.report.charts import budget_chart, decision_chart
from streamer.report.demo_run import excerpt
from streamer.report.page import BUDGET_KEY, DECISION_KEY, picture, shares_bar
from streamer.report.style import STYLE, scoped_style
from streamer.wording.numbers import unbroken
from streamer.wording.policies import MOST_WEIGHTS

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


def report_html(report: Report) -> str:
    """Show a report: what ships and gets through, at each budget, the wrong answers that get through, what signals weigh."""
    return _shown(report.sentence, report.caveat, report_parts(report) + _through(report))


def report_parts(report: Report) -> str:
    """Return the charts and tables of a report."""
    at, many = report.at, UNIT_WORDS[report.unit][1]
    ship, exposure = at.ship_rate.mean or 0.0, at.exposure.mean or 0.0
    parts = shares_bar(f"What becomes of 100 {many} at {budget(at.alpha)}", ship, exposure, report.everything)
    if report.budgets:
        columns = report.columns()
        names = {"ship": "ship_rate", "selective": "selective", "exposure": "exposure"}
        parts += picture(
            "What another budget would serve",
            budget_chart(
                columns["alpha"][1:],
                {css: columns[name][1:] for css, name in names.items()},
                report.unit,
                alpha=at.alpha,
                chosen={css: columns[name][0] for css, name in names.items()},
            ),
            "Each point is measured on prompts that did not calibrate. A budget that is chosen on this curve has no promise on these labels.",
            BUDGET_KEY,
        )
    if report.weights:
        rows = [
            (escape(name.replace("_", " ")), f"{weight:+.2f}")
            for name, weight in list(report.weights.items())[:MOST_WEIGHTS]
        ]
        parts += _table(("what each signal weighs", "+ speaks for an answer"), rows, numbers=(1,))
    return parts + _promise(report.threshold.guarantee)


def _through(report: Report, most: int = _SHOWN) -> str:
    """The wrong answers that get through at the report's budget, or, with more of them, at every other too."""
    found = report.through if most == _SHOWN else list(report.wrong)
    rows = [
        (escape(excerpt(one.prompt) or one.prompt_id), escape(excerpt(one.answer)), percent(one.budget, 1))
        for one in found[:most]
    ]
    if not rows:
        return ""
    more = f"<p>and {len(found) - most} more</p>" if len(found) > most else ""
    table = _table(("prompt", "answer", "gets through from"), rows, numbers=(2,))
    return f'<h3 style="margin-top:1.1rem">Wrong answers that would have got through{report.often}: <span id="count">{len(report.through)}</span></h3>{table}{more}'


_SLIDER = """
const said = JSON.parse(document.getElementById("said").textContent), at = document.getElementById("at");
at.oninput = () => {
  document.getElementById("now").textContent = said[at.value - 1];
  let shown = 0;
  for (const row of document.querySelectorAll("#wrong tbody tr")) {
    row.hidden = parseFloat(row.lastElementChild.textContent) > +at.value;
    shown += !row.hidden;
  }
  const count = document.getElementById("count");
  if (count) count.textContent = shown;
};
at.oninput();
"""
PAGE_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{b64encode(sha256(_SLIDER.encode()).digest()).decode()}'"
)
"""The content security policy of `report_page`, which has its style and script in it and reads nothing else."""


def report_page(report: Report, name: str, notes: Sequence[str] = (), *, back: str = "") -> str:
    """Return a report as a page of its own, with a slider over all budgets where one calibration answers for them.

    Parameters
    ----------
    notes : how the file was read, in sentences.
    back : the address at which another file is tried; empty: none.
    """
    slider = ""
    crumb = f'<p><a href="{escape(back)}">Try another file</a></p>' if back else ""
    about = "".join(f'<p class="verdict">{escape(unbroken(one))}</p>' for one in (report.caveat, *notes))
    if report.budgets:
        said = [replace(report, at=one, why_closed="").sentence for one in report.budgets]
        listed = json.dumps([f"{unbroken(one[:1].upper() + one[1:])}." for one in said]).replace(
            "<", "\\u003c"
        )
        slider = (
            f'<div class="card"><label for="at">Another budget</label><input type="range" id="at" min="1" max="{len(said)}" '
            f'value="{max(1, round(100 * report.at.alpha))}" style="width:100%"><p id="now"></p></div>'
            f'<script type="application/json" id="said">{listed}</script>'
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        f'initial-scale=1"><title>{escape(report.worth)}</title><style>{STYLE}</style></head><body><main><header>{crumb}'
        f'<h1>{escape(name)}</h1><p class="result">{escape(unbroken(report.worth))}</p>{about}</header>'
        f'{slider}<div id="wrong">{_through(report, 200)}</div>{report_parts(report)}</main>'
        f"{'<script>' + _SLIDER + '</script>' if slider else ''}</body></html>"
    )


def _promise(guarantee: str) -> str:
    return (
        '<details class="card" style="margin-top:1.1rem"><summary>What is promised</summary>'
        f"<p>{escape(unbroken(guarantee))}</p></details>"
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
    said = f'<p class="verdict">{escape(unbroken(caveat))}</p>' if caveat else ""
    return (
        f'<div class="{CLASS}"><style>{scoped_style(CLASS)}</style>'
        f'<p class="result">{escape(unbroken(sentence[:1].upper() + sentence[1:]))}.</p>{said}{parts}</div>'
    )


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none" if math.isnan(value) else f"{value:g}"
