"""The demo's report: one self-contained HTML page that says what happened, why, and what it does not mean."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from streamer.calibration.registry import every
from streamer.clouds.measurement import Units, units_of
from streamer.clouds.sentence import UNIT_WORDS, percent, sentence
from streamer.report.charts import (
    ScoreCounts,
    calibration_chart,
    score_counts_chart,
    tradeoff,
    tradeoff_curves_chart,
)
from streamer.report.demo_run import Case, DemoRun, bounded, cases, excerpt, figure_rows, verdict
from streamer.report.style import STYLE
from streamer.wording.numbers import unbroken

__all__ = ["DemoRun", "render_report", "write_report"]


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
            f'<p class="result">{escape(unbroken(said[:1].upper() + said[1:]))}.</p>',
            f'<p class="verdict">{escape(unbroken(verdict(run)))}</p>',
            _banner(run),
            "</header>",
            shares_figure(units, f"What became of {len(units)} {UNIT_WORDS[run.unit][1]} of the second half"),
            "<h2>The risk in pictures</h2>",
            *_pictures(run, units),
            "<h2>The figures</h2>",
            _figures(run),
            "<h2>Decisions to look at</h2>",
            _all_cases(run),
            "<h2>What the guarantee says, and what it does not</h2>",
            _guarantee(run),
            "<h2>Where this came from</h2>",
            f"<p>{_shown(run.origin)} A seeded shuffle halved the prompts: the first half was published to a closed gate, "
            "labelled and used for calibration; the second half was decided by the gate as it then stood. Severities are of "
            f"the kind <code>{_shown(run.severity_kind)}</code>; {'scores choose the answer, by Gram energy and chrF, with' if run.state == 'full' else 'scores are the Gram energy of'} "
            f"embeddings by <code>{_shown(run.encoder)}</code>.</p>"
            f"<p>The record of every decision is in <code>{_shown(run.database)}</code>.</p>",
            "<h2>What to try next</h2>",
            _next(run),
            f"<footer>{'' if run.state == 'full' else 'An answer ships if its score Q is above the threshold. '}Severity 0 is fine, 1 is worst."
            "</footer>",
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
        "their severities, so that you can try the program at once. They say nothing about any language model.</p>"
    )


def shares_figure(units: Units, title: str) -> str:
    """Draw what became of units, right and wrong, as one bar with its key; empty for no units."""
    if not len(units):
        return ""
    shipped, severity = units.shipped, units.severities
    return shares_bar(
        title, float(shipped.mean()), float((shipped * severity).mean()), float(severity.mean())
    )


def shares_bar(title: str, shipped: float, exposure: float, everything: float) -> str:
    """Draw shares as one bar with its key: of what ships, of what ships and is wrong, and of what is wrong."""
    parts = (
        ("s-fine", "served and right", shipped - exposure),
        ("s-wrong", "served and wrong (exposure)", exposure),
        ("h-fine", "held, would have been right", max(0.0, 1 - shipped - (everything - exposure))),
        ("h-wrong", "held, would have been wrong", max(0.0, everything - exposure)),
    )
    words = ", ".join(f"{label} {percent(share, 1)}" for _, label, share in parts)
    bars = "".join(
        f'<div class="{css}" style="flex:{share:.4f} 1 0">{percent(share) if share >= 0.045 else ""}</div>'
        for css, _, share in parts
        if share > 0
    )
    key = "".join(
        f'<li><i class="{css}"></i>{escape(label)} <strong>{percent(share, 1)}</strong></li>'
        for css, label, share in parts
    )
    return (
        f'<figure class="card"><h3>{escape(title)}</h3>'
        f'<div class="share" role="img" aria-label="{escape(words)}">{bars}</div><ul class="key">{key}</ul></figure>'
    )


def _pictures(run: DemoRun, units: Units) -> Iterator[str]:
    many = UNIT_WORDS[run.unit][1]
    if run.state == "full":  # no cut of a score, and so no threshold to show
        yield f"<p>Each answer is compared with {len(run.calibration)} labelled prompts by all signals: it ships if few wrong ones look at least as good.</p>"
        return
    if run.calibration:
        yield picture(
            "How the threshold was found",
            calibration_chart(run.calibration, alpha=run.alpha, threshold=run.bar),
            f"On the labels of the first half ({len(run.calibration)} groups): the bound on exposure at each threshold, "
            f"one unseen prompt counted at its worst. {_against_the_curve(run.method)}",
        )
    if len(units):
        yield picture(
            "Scores of right and wrong answers",
            score_counts_chart(
                ScoreCounts.of(units),
                run.unit,
                threshold=run.bar,
                of="of the second half",
                meaning="score: agreement with the other answers",
            ),
            "On the second half. The gate sees the score and never the label. Wrong answers to the right of the line "
            "are those on which the responses agree with one another and are wrong all the same: consensus is not truth.",
            score_key(many),
        )
        yield picture(
            "What another threshold would have done",
            tradeoff_curves_chart(*tradeoff(units), run.unit, alpha=run.alpha, threshold=run.bar),
            "On the second half. To look at, not to choose from: a threshold picked on this curve would have no guarantee.",
            TRADEOFF_KEY,
        )


def score_key(many: str) -> tuple[tuple[str, str], ...]:
    """The legend of `score_counts_chart`; `many` is what units are called."""
    return (("k-fine", f"right {many}, upwards"), ("k-wrong", f"wrong {many}, downwards"))


DECISION_KEY = (("k-fine", "ship, upwards"), ("k-held", "hold, downwards"))
"""The legend of `decision_chart`."""

TRADEOFF_KEY = BUDGET_KEY = (
    ("k-ship", "ship rate"),
    ("k-selective", "error rate among shipped (selective risk)"),
    ("k-exposure", "exposure risk: average harm, held ones counting 0"),
)
"""The legend of `tradeoff_curves_chart` and of `budget_chart`."""


def _against_the_curve(method: str) -> str:
    """Say how the method's threshold relates to the curve, which is that of `mean`."""
    difference = every()[method].against_mean
    if not difference:
        return "The threshold is the smallest at which the bound is within the budget."
    curve = "The curve is that of the method mean, whose threshold is where it meets the budget;"
    return f"{curve} {escape(method)} {difference}"


def picture(title: str, svg: str, caption: str, key: Sequence[tuple[str, str]] = ()) -> str:
    """Put a chart on a card with its title, a legend of styles and words, and a caption, which may hold HTML."""
    entries = "".join(f'<li><i class="l {css}"></i>{escape(words)}</li>' for css, words in key)
    legend = f'<ul class="key">{entries}</ul>' if key else ""
    return f'<figure class="card"><h3>{escape(title)}</h3>{svg}{legend}<figcaption>{unbroken(caption)}</figcaption></figure>'


def _figures(run: DemoRun) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="n">{escape(value)}</td><td>{escape(unbroken(meaning))}</td></tr>'
        for name, value, meaning in figure_rows(run)
    )
    return (
        '<div class="scroll card" tabindex="0" role="region" aria-label="Figures"><table><caption>Counted on the second half, which played no part in calibration.'
        '</caption><thead><tr><th scope="col">Figure</th><th scope="col">Value</th><th scope="col">What it means</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


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
        "<p>Taken in the order of a hash of their ids, not picked by hand. Right means a severity below 0.5.</p>"
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


def _shown(text: str) -> str:
    return escape(excerpt(text))


def _guarantee(run: DemoRun) -> str:
    one, many = UNIT_WORDS[run.unit]
    limits = (
        f"It bounds exposure: severity per {one}, held ones counting 0. Among what is served the rate is larger "
        f"({percent(run.report.selective_risk)} here), and it does not bound that.",
        "It holds for a calibration with the probability that it names, and not with certainty. A single prompt may be "
        "wrong."
        if bounded(run.method)
        else "It bounds an average over calibrations and future prompts. A single run may land above, a single prompt may "
        "be wrong.",
        f"It is one number for all {many} together. One kind of question may run above the budget while another runs "
        "below.",
        "It holds as long as new prompts are like the labelled ones. When models, prompts or users change, calibrate "
        "again.",
        "A score measures how far answers agree. Where a model errs the same way each time, the score is high and wrong; "
        "calibration pays for it with a stricter threshold, it cannot see it.",
    )
    return (
        f'<div class="card"><p><strong>In the policy\'s own words.</strong> {escape(unbroken(run.guarantee or "Nothing."))}</p><ul>'
        + "".join(f"<li>{escape(unbroken(limit))}</li>" for limit in limits)
        + "</ul></div>"
    )


def _next(run: DemoRun) -> str:
    entries = "".join(
        f"<dt><code>{_shown(command)}</code></dt><dd>{_shown(does)}</dd>"
        for command, does in run.next_steps or _suggestions(run)
    )
    return f'<dl class="next">{entries}</dl>'


def _suggestions(run: DemoRun) -> list[tuple[str, str]]:
    other_unit = "response" if run.unit == "best" else "best"
    other_words = (
        "each response on its own" if run.unit == "best" else "the best answer to each prompt, or none"
    )
    other_alpha = f"{min(2 * run.alpha, (1 + run.alpha) / 2):.2g}"
    return [
        (f"streamer demo --alpha {other_alpha}", "a larger budget: more is served, and more of it is wrong"),
        (f"streamer demo --gate-unit {other_unit}", f"another unit: {other_words}"),
        ("streamer demo --data FILE", "your own prompts and answers, as response clouds with severities"),
        ("streamer dev", "a broker and a worker to publish your own events to"),
    ]
