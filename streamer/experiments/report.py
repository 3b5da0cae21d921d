"""The demo's report: one self-contained HTML page that says what happened, why, and what it does not mean."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from streamer.experiments.charts import calibration_chart, score_chart, threshold_words, tradeoff_chart
from streamer.experiments.measurement import units_of
from streamer.experiments.report_style import STYLE
from streamer.experiments.sentence import UNIT_WORDS, budget, percent, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streamer.calibration import LabelledGroup
    from streamer.experiments.measurement import DecidedBatch, RiskReport, Units
    from streamer.policy import ThresholdState, Unit

CASES_SHOWN = 3
_LONGEST_EXCERPT = 240


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemoRun:
    """Everything that the report tells of one run.

    Attributes
    ----------
    threshold : lambda; None unless `state` is `cut`.
    guarantee : what the policy promises, in words.
    calibration : the labelled groups of the first half.
    decided : the decisions of the second half, with the severities that are known.
    report : `measure(decided, unit)`.
    origin : where the clouds came from, one sentence; `simulated` tells whether a program made them up.
    severity_kind : how the severities arose, as gates name it.
    encoder : the encoder's identity.
    database : where the record of every decision is.
    seconds, batches_per_second : of the streaming; None for a run without a stream.
    next_steps : commands to try, each with what it does.
    """

    unit: Unit
    alpha: float
    method: str
    state: ThresholdState
    threshold: float | None
    guarantee: str
    calibration: Sequence[LabelledGroup]
    decided: Sequence[DecidedBatch]
    report: RiskReport
    origin: str
    simulated: bool
    severity_kind: str
    encoder: str
    database: str
    seconds: float | None = None
    batches_per_second: float | None = None
    next_steps: Sequence[tuple[str, str]] = ()

    @property
    def bar(self) -> float:
        """The threshold as a number: -inf when open, +inf when closed."""
        if self.threshold is not None:
            return self.threshold
        return -math.inf if self.state == "open" else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One decided unit to look at; `score` is None when it was held unscored."""

    prompt: str
    answer: str
    score: float | None
    severity: float | None
    shipped: bool


def cases(run: DemoRun, *, shipped: bool, wrong: bool, limit: int = CASES_SHOWN) -> list[Case]:
    """Pick decisions of one kind: not by hand, but by the order of a hash of the batch's id.

    `wrong` asks for severities of .5 or more. At most one unit of a batch is shown; units without a severity are not.
    """
    units = units_of(run.decided, run.unit)
    order = sorted(
        range(len(units)),
        key=lambda i: hashlib.sha256(run.decided[int(units.batch[i])].batch_id.encode()).digest(),
    )
    found: dict[int, Case] = {}
    for i in order:
        place = int(units.batch[i])
        if units.unlabelled[i] or bool(units.shipped[i]) != shipped or (units.severities[i] >= 0.5) != wrong:
            continue
        batch = run.decided[place]
        score = float(units.scores[i])
        found.setdefault(
            place,
            Case(
                prompt=batch.prompt,
                answer=batch.texts[int(units.response[i])],
                score=None if math.isnan(score) else score,
                severity=float(units.severities[i]),
                shipped=shipped,
            ),
        )
        if len(found) == limit:
            break
    return list(found.values())


def verdict(run: DemoRun) -> str:
    """Say how the measured exposure stands to the budget, as far as one run can tell."""
    report = run.report
    if run.state == "closed":
        return (
            f"The gate stayed closed: {len(run.calibration)} calibration groups cannot support a budget of "
            f"{budget(run.alpha)}. Ask for a larger budget, or label more."
        )
    if report.exposure_risk is None:
        return "The second half held no batch to decide."
    within = "inside the budget" if report.exposure_risk <= run.alpha else "above the budget"
    if report.exposure_risk_se is None:
        return f"Measured exposure is {within}; one batch is too little to say how exactly it is known."
    error = percent(report.exposure_risk_se, 1)
    words = f"Measured exposure is {within}, give or take {error} (one standard error)."
    if report.exposure_risk > run.alpha + 2 * report.exposure_risk_se:
        return (
            f"{words} That is more than two standard errors: rare under the guarantee, or a sign that "
            "the two halves are not alike."
        )
    if report.exposure_risk > run.alpha:
        return f"{words} The guarantee bounds the average over many such runs, so single runs may land a little above."
    return words


def render_report(run: DemoRun) -> str:
    """Return the page; it refers to nothing outside itself and runs no script."""
    units = units_of(run.decided, run.unit)
    said = sentence(run.report, run.alpha)
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(said[:1].upper() + said[1:])}</title><style>{STYLE}</style></head><body><main>",
            "<header><h1>conformal-streamer: what the gate did</h1>",
            f'<p class="result">{escape(said[:1].upper() + said[1:])}.</p>',
            f'<p class="verdict">{escape(verdict(run))}</p>',
            _banner(run),
            "</header>",
            _shares(run, units),
            "<h2>The risk in pictures</h2>",
            *_pictures(run, units),
            "<h2>The figures</h2>",
            _figures(run),
            "<h2>Decisions to look at</h2>",
            _all_cases(run),
            "<h2>What the guarantee says, and what it does not</h2>",
            _guarantee(run),
            "<h2>Where this came from</h2>",
            _origin(run),
            "<h2>What to try next</h2>",
            _next(run),
            "<footer>Ship iff score &gt; λ, strictly. Severity 0 is fine, 1 is worst.</footer>",
            "</main></body></html>",
        )
    )


def write_report(run: DemoRun, path: Path) -> None:
    """Write the page to `path`, making its folder; raises `OSError` when that cannot be done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_report(run), encoding="utf-8")


def _banner(run: DemoRun) -> str:
    if not run.simulated:
        return ""
    return (
        '<p class="banner"><strong>These are simulated data.</strong> A program made up the questions, the answers and '
        "their severities, so that there is something to look at at once. They say nothing about any language model.</p>"
    )


def _shares(run: DemoRun, units: Units) -> str:
    if not len(units):
        return ""
    many = UNIT_WORDS[run.unit][1]
    shipped, severity = units.shipped, units.severities
    parts = (
        ("s-fine", "served and right", float((shipped * (1 - severity)).mean())),
        ("s-wrong", "served and wrong (exposure)", float((shipped * severity).mean())),
        ("h-fine", "held, would have been right", float((~shipped * (1 - severity)).mean())),
        ("h-wrong", "held, would have been wrong", float((~shipped * severity).mean())),
    )
    words = ", ".join(f"{label} {percent(share)}" for _, label, share in parts)
    bars = "".join(
        f'<div class="{css}" style="flex:{share:.4f} 1 0">{percent(share) if share >= 0.045 else ""}</div>'
        for css, _, share in parts
        if share > 0
    )
    key = "".join(
        f'<li><i class="{css}"></i>{escape(label)} <strong>{percent(share)}</strong></li>'
        for css, label, share in parts
    )
    return (
        f'<figure class="card"><h3>What became of {len(units)} {many} of the second half</h3>'
        f'<div class="share" role="img" aria-label="{escape(words)}">{bars}</div><ul class="key">{key}</ul></figure>'
    )


def _pictures(run: DemoRun, units: Units) -> Iterator[str]:
    if run.calibration:
        drawn = (
            ""
            if run.method == "mean"
            else (
                f" It is drawn with equal weights; the method {escape(run.method)} draws its weights at random, so that its "
                "own curve, and where it meets the budget, differ a little."
            )
        )
        yield _picture(
            "How the threshold was found",
            calibration_chart(run.calibration, alpha=run.alpha, threshold=run.bar),
            f"On the labels of the first half ({len(run.calibration)} groups): the bound on exposure at each threshold, "
            f"one unseen prompt counted at its worst. The threshold is the smallest at which the bound is within the "
            f"budget.{drawn}",
        )
    if len(units):
        yield _picture(
            "Scores of right and wrong answers",
            score_chart(units, run.unit, threshold=run.bar),
            "On the second half. The gate sees the score and never the label. Wrong answers to the right of the line "
            "are those on which the responses agree with one another and are wrong all the same: consensus is not truth.",
        )
        yield _picture(
            "What another threshold would have done",
            tradeoff_chart(units, run.unit, alpha=run.alpha, threshold=run.bar),
            "On the second half. To look at, not to choose from: a threshold picked on this curve would have no guarantee.",
            (
                ("k-ship", "ship rate"),
                ("k-selective", "selective risk: severity among what ships"),
                ("k-exposure", "exposure risk: severity that reaches people, held ones counting 0"),
            ),
        )


def _picture(title: str, svg: str, caption: str, key: Sequence[tuple[str, str]] = ()) -> str:
    entries = "".join(f'<li><i class="l {css}"></i>{escape(words)}</li>' for css, words in key)
    legend = f'<ul class="key">{entries}</ul>' if key else ""
    return f'<figure class="card"><h3>{escape(title)}</h3>{svg}{legend}<figcaption>{caption}</figcaption></figure>'


def _figures(run: DemoRun) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="n">{escape(value)}</td><td>{escape(meaning)}</td></tr>'
        for name, value, meaning in figure_rows(run)
    )
    return (
        '<div class="scroll card"><table><caption>Counted on the second half, which played no part in calibration.'
        '</caption><thead><tr><th scope="col">Figure</th><th scope="col">Value</th><th scope="col">What it means</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def figure_rows(run: DemoRun) -> list[tuple[str, str, str]]:
    """Return the figures of a run for people: name, value, meaning."""
    report = run.report
    one, many = UNIT_WORDS[run.unit]
    error = "" if report.exposure_risk_se is None else f" ± {percent(report.exposure_risk_se, 1)}"
    rows = [
        ("Ship rate", percent(report.ship_rate, 1), f"{report.shipped} of {report.units} {many} were served"),
        (
            "Exposure risk",
            f"{percent(report.exposure_risk, 1)}{error}",
            f"severity that reaches people per {one}, held ones counting 0, with its standard error; this is what the "
            "budget bounds",
        ),
        ("Budget alpha", budget(run.alpha), "the most that exposure may be on average"),
        (
            "Selective risk",
            percent(report.selective_risk, 1),
            "mean severity among what was served: what somebody who gets an answer feels; no guarantee bounds it",
        ),
        (
            "Severity reduction",
            percent(report.severity_reduction, 1),
            "how much lower the mean severity of the served is than that of the held",
        ),
        ("Without a gate", percent(report.mean_severity, 1), f"exposure if every {one} were served"),
        (
            "Threshold",
            threshold_words(run.bar),
            f"calibrated by the method {run.method} for the unit {run.unit}",
        ),
        ("Calibration groups", str(len(run.calibration)), "labelled prompts of the first half"),
        ("Batches decided", str(report.batches), f"with {report.responses} responses"),
    ]
    if report.unlabelled:
        rows.append(
            ("Without a label", str(report.unlabelled), f"{many} whose severity nobody knows, counted as 1")
        )
    if run.seconds is not None:
        speed = "" if run.batches_per_second is None else f"{run.batches_per_second:.0f} batches a second"
        rows.append(("Time", f"{run.seconds:.1f} s", speed or "from start to finish"))
    return rows


def _all_cases(run: DemoRun) -> str:
    kinds = (
        ("s-fine", "Served and right", True, False),
        ("s-wrong", "Served and wrong", True, True),
        ("h-fine", "Held, though right", False, False),
        ("h-wrong", "Held, and wrong", False, True),
    )
    blocks = []
    for css, title, shipped, wrong in kinds:
        shown = cases(run, shipped=shipped, wrong=wrong)
        items = "".join(_case(case) for case in shown) or "<li>There was none.</li>"
        blocks.append(
            f'<section class="card"><h3 class="case-head"><i class="{css}"></i>{title}</h3><ul>{items}</ul></section>'
        )
    return (
        "<p>Taken in the order of a hash of their ids, not picked by hand. Right means a severity below .5.</p>"
        f'<div class="cases">{"".join(blocks)}</div>'
    )


def _case(case: Case) -> str:
    score = "never scored" if case.score is None else f"score {case.score:.3f}"
    severity = "" if case.severity is None else f", severity {case.severity:.2g}"
    answer = _shown(case.answer)
    said = f'<bdi dir="auto">{answer}</bdi>' if answer else "<em>(blank)</em>"
    return (
        f'<li><div class="ask"><bdi dir="auto">{_shown(case.prompt)}</bdi></div>'
        f'<blockquote>{said}</blockquote><div class="score">{score}{severity}</div></li>'
    )


def excerpt(text: str, longest: int = _LONGEST_EXCERPT) -> str:
    """Return `text` on one line without control characters, cut to `longest` characters with an ellipsis."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def _shown(text: str) -> str:
    return escape(excerpt(text))


def _guarantee(run: DemoRun) -> str:
    one, many = UNIT_WORDS[run.unit]
    limits = (
        f"It bounds exposure: severity per {one}, held ones counting 0. Among what is served the rate is larger "
        f"({percent(run.report.selective_risk)} here), and nothing above bounds it.",
        "It bounds an average over calibrations and future prompts. A single run may land above, a single prompt may "
        "be wrong.",
        f"It is one number for all {many} together. One kind of question may run above the budget while another runs "
        "below.",
        "It holds as long as new prompts are like the labelled ones. When models, prompts or users change, calibrate "
        "again.",
        "A score tells how far answers agree. Where a model errs the same way each time, the score is high and wrong; "
        "calibration pays for it with a stricter threshold, it cannot see it.",
    )
    return (
        f'<div class="card"><p><strong>In the policy\'s own words.</strong> {escape(run.guarantee or "Nothing.")}</p><ul>'
        + "".join(f"<li>{escape(limit)}</li>" for limit in limits)
        + "</ul></div>"
    )


def _origin(run: DemoRun) -> str:
    return (
        f"<p>{_shown(run.origin)} A seeded shuffle halved the prompts: the first half was published to a closed gate, "
        "labelled and used for calibration; the second half was decided by the gate as it then stood. Severities are of "
        f"the kind <code>{_shown(run.severity_kind)}</code>; scores are the Gram energy of embeddings by "
        f"<code>{_shown(run.encoder)}</code>.</p>"
        f"<p>The record of every decision is in <code>{_shown(run.database)}</code>.</p>"
    )


def _next(run: DemoRun) -> str:
    entries = "".join(
        f"<dt><code>{_shown(command)}</code></dt><dd>{_shown(does)}</dd>" for command, does in run.next_steps
    )
    return (
        f'<dl class="next">{entries}</dl>'
        if entries
        else "<p>Run it again with another budget or your own data.</p>"
    )
