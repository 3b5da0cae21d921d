"""`streamer try`: what a gate would make of a labelled file of your own, on one page."""

import sys
import threading
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from streamer import wiring
from streamer.calibration.calibrators.mean import Mean
from streamer.cli import options as opt
from streamer.cli.console import note, print_json, print_table, say, warn
from streamer.cli.evaluate_claims import OfClaims, print_claims
from streamer.cli.gate_options import with_settings
from streamer.cli.review import has_screen
from streamer.cli.services import begin
from streamer.clouds.cloud import Cloud
from streamer.clouds.evaluated_claims import evaluate_claims
from streamer.clouds.line_files import shown_name
from streamer.clouds.tables.columns import Role, parse_mapping
from streamer.clouds.unlabelled import check_unlabelled
from streamer.errors import UsageError, cannot
from streamer.frames.answers import Doubt
from streamer.frames.results import AtBudget, Report, report_page, spread_text
from streamer.gates.settings import PARAMETERS
from streamer.scoring.registry import SUPPORT
from streamer.settings.settings import Settings
from streamer.wiring.trying import tried
from streamer.wording.numbers import percent

ASKED = [
    "alpha",
    "unit",
    "method",
    "label_floor",
    "segment_by",
    "segment_fallback",
    "group_by",
    "scorer",
    "encoder",
]
"""The settings of a gate that a file can be asked about, beside the parameters of methods."""

_SHOWN = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)


@partial(with_settings, only={*ASKED, *PARAMETERS})
@opt.in_groups
def try_(
    file: Path | None = opt.argument(
        "FILE", "Your own answers with severities: CSV, JSON Lines or Parquet; - is standard input.", None
    ),
    *,
    given: dict[str, Any],
    out: Path = opt.option("FILE", "The page; written anew.", Path("try.html")),
    show: bool = opt.flag(
        "--open/--no-open", "Open the page in a browser, where there is a terminal with a screen.", True
    ),
    http: int | None = opt.port(
        "In place of FILE: take it as an upload, on a page at this port of 127.0.0.1"
    ),
    unlabelled: opt.UnlabelledOption = "worst",
    seed: int = opt.option("S", "Seed of the first halves, as in `streamer evaluate`.", 0, min=0, max=2**62),
    tables: opt.TableOptions,
    claims: OfClaims,
    json: opt.JsonOption = False,
) -> None:
    """Say whether a gate is worth it on your own answers: what it would serve at each budget, what would get through, what it costs.

    A random half of the prompts calibrates and the other is decided, 50 times, as `streamer evaluate` does it; no label judges
    a threshold that it found. No gate and no database are needed. Of answers with claims it says what
    of them would ship, and writes no page.
    """
    if (file is None) == (http is None):
        raise UsageError("name a FILE, or have --http PORT take it as an upload")
    settings = wiring.load_settings()
    if file is None:
        _serve(settings, http or 0, show)
        return

    from streamer.cli.demo import DemoProgress

    def of_claims(clouds: Sequence[Cloud]) -> None:
        for name in given.keys() & {"label_floor", "segment_by", "segment_fallback", "group_by"}:
            raise UsageError(f"claims are not tried with --{name.replace('_', '-')}: leave it out")
        budgets = tuple(sorted({given.get("alpha", 0.05), *_SHOWN}))
        asked = claims.asked(
            "any",
            alphas=budgets,
            seed=seed,
            unlabelled=check_unlabelled(unlabelled),
            scorer=given.get("scorer", SUPPORT),
            method=given.get("method", Mean.name),
            parameters=tuple((name, given[name]) for name in PARAMETERS if name in given),
        )
        print_claims([evaluate_claims(shown_name(file), clouds, asked)], json=json)

    with DemoProgress() as watch:
        report, said = tried(
            settings,
            file,
            given,
            reading=tables.reading(),
            unlabelled=unlabelled,
            seed=seed,
            ask=(lambda _doubt: {}) if json or str(file) == "-" else _ask,
            of_claims=of_claims,
            note=note,
            warn=warn,
            watch=watch,
        )
    if report is None:
        return
    if json:
        print_json(report_json(report))
        return
    _print(report)

    with cannot(f"write {out}", "; name another file with --out"):
        name = "standard input" if str(file) == "-" else file.name
        out.write_text(report_page(report, name, said), encoding="utf-8")
    say(f"The page, with a slider over all budgets: {out}")
    if show and has_screen() and not webbrowser.open(out.resolve().as_uri()):
        note("No browser could be opened; open the page yourself.")


def _serve(settings: Settings, port: int, show: bool) -> None:
    from streamer.wiring.trying import run_trials

    def announce(url: str) -> None:
        say(f"Files are tried at {url}; Ctrl-C ends it.")
        if show and has_screen():
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    begin(settings)
    try:
        run_trials(settings, port, announce)
    except KeyboardInterrupt:
        note("Stopped.")


def _ask(doubt: Doubt) -> Mapping[Role, tuple[str, ...]]:
    """Ask once, at a terminal, what the severities are; returns the columns that were named."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return {}
    if doubt.found:
        fine = typer.confirm(
            f"In {', '.join(doubt.columns)}, is 0 fine and 1 wrong? (no: 1 means right)",
            default=None,
            err=True,
        )
        return doubt.settled("", right=not fine)
    named: str = typer.prompt(
        "Which column says how bad an answer is, from 0 (fine) to 1? NAME, or correct=NAME where 1 means right",
        default="",
        show_default=False,
        err=True,
    )
    return parse_mapping([named if "=" in named else f"severity={named}"]) if named else {}


def _print(report: Report) -> None:
    say(report.worth)
    say(report.basis)
    print_budgets(
        [
            report.at,
            *(one for one in report.budgets if one.alpha in _SHOWN and one.alpha != report.at.alpha),
        ]
    )
    print_through(report, 5, "on the page")


def print_budgets(shown: Iterable[AtBudget], title: str | None = None) -> None:
    """Print what ships at budgets of prompts that did not calibrate, and what gets through: mean and standard error."""
    print_table(
        ["budget", "served", "error rate among shipped", "exposure"],
        [
            [
                percent(one.alpha),
                *(spread_text(spread) for spread in (one.ship_rate, one.selective, one.exposure)),
            ]
            for one in sorted(shown, key=lambda one: one.alpha)
        ],
        title=title,
    )


def print_through(report: Report, most: int, where: str) -> None:
    """Print the wrong answers that get through at the report's budget."""
    through = report.through
    for one in through[:most]:
        say(f"would have got through: {one.prompt[:80]} -> {one.answer[:120]}")
    if len(through) > most:
        say(f"... and {len(through) - most} more, {where}")


def report_json(report: Report) -> dict[str, Any]:
    """Return a report as JSON values."""
    told = asdict(replace(report, _frame=None, _at=None))
    guarantee = told.pop("threshold")["guarantee"]
    return {name: value for name, value in told.items() if not name.startswith("_")} | {
        "worth": report.worth,
        "basis": report.basis,
        "guarantee": guarantee,
    }
