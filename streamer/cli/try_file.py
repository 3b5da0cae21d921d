"""`streamer try`: what a gate would make of a labelled file of your own, on one page."""

import sys
import webbrowser
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import ArrayLike

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, print_json, print_table, say, warn
from streamer.cli.evaluate_claims import OfClaims, print_claims
from streamer.cli.gate_options import with_settings
from streamer.cli.review import has_screen
from streamer.clouds.line_files import shown_name
from streamer.clouds.tables.columns import Role, parse_mapping
from streamer.clouds.unlabelled import check_unlabelled, counts, unlabelled_note
from streamer.errors import UsageError, why
from streamer.frames.answers import Read
from streamer.frames.results import AtBudget, Report, spread_text
from streamer.gates.settings import NO_ENCODER, PARAMETERS
from streamer.settings.settings import Settings
from streamer.wording.numbers import percent

ASKED = (
    "alpha",
    "unit",
    "method",
    "label_floor",
    "segment_by",
    "segment_fallback",
    "group_by",
    "scorer",
    "encoder",
)
"""The settings of a gate that a file can be asked about, beside the parameters of methods."""

_SHOWN = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
_WRONG = 5


@partial(with_settings, only={*ASKED, *PARAMETERS})
@opt.in_groups
def try_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Your own answers with severities: CSV, JSON Lines or Parquet; - is standard input.",
        ),
    ],
    *,
    given: dict[str, Any],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page; written anew.")] = Path("try.html"),
    show: Annotated[
        bool,
        typer.Option(
            "--open/--no-open", help="Open the page in a browser, where there is a terminal with a screen."
        ),
    ] = True,
    unlabelled: opt.UnlabelledOption = "worst",
    seed: Annotated[
        int,
        typer.Option(
            metavar="S", min=0, max=2**62, help="Seed of the first halves, as in `streamer evaluate`."
        ),
    ] = 0,
    tables: opt.TableOptions,
    claims: OfClaims,
    json: opt.JsonOption = False,
) -> None:
    """Say whether a gate is worth it on your own answers: what it would serve at each budget, what would get through, what it costs.

    A random half of the prompts calibrates and the other is decided, 50 times, as `streamer evaluate` does it; no label judges
    a threshold that it found. No gate and no database are needed. Of answers with claims it says what
    of them would ship, and writes no page.
    """
    report = _report(file, given, tables, unlabelled, seed, claims, json=json)
    if report is None:
        return
    if json:
        print_json(report_json(report))
        return
    _print(report)
    from streamer.frames.notebook import report_page

    try:
        out.write_text(
            report_page(report, "standard input" if str(file) == "-" else file.name), encoding="utf-8"
        )
    except OSError as error:
        raise UsageError(f"cannot write {out}: {why(error)}; name another file with --out") from error
    say(f"The page, with a slider over all budgets: {out}")
    if show and has_screen() and not webbrowser.open(out.resolve().as_uri()):
        note("No browser could be opened; open the page yourself.")


def _asked(table: Read) -> dict[Role, tuple[str, ...]]:
    """Ask once, at a terminal, what the severities are where the table leaves it open; returns the columns that were named."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return {}
    if table.doubted:
        shown = ", ".join(table.doubted)
        if typer.confirm(f"In {shown}, is 0 fine and 1 wrong? (no: 1 means right)", default=True, err=True):
            return {"severity": table.doubted}
        return {"severity": (), "correct": table.doubted}
    missing, answers = counts(table.clouds)
    if missing < answers or table.recognised == "response clouds":
        return {}
    named: str = typer.prompt(
        "Which column says how bad an answer is, from 0 (fine) to 1? NAME, or correct=NAME where 1 means right",
        default="",
        show_default=False,
        err=True,
    )
    return parse_mapping([named if "=" in named else f"severity={named}"]) if named else {}


def _report(
    file: Path,
    given: Mapping[str, Any],
    tables: opt.TableOptions,
    choice: str,
    seed: int,
    claims: OfClaims,
    *,
    json: bool,
) -> Report | None:
    """Return the report; None: it is of claims, and is printed."""
    from streamer.frames.answers import read
    from streamer.frames.gate import Gate
    from streamer.research.evaluation.claims import evaluate_claims, has_claims

    settings, named, reading = wiring.load_settings(), dict(given), tables.reading()
    unlabelled = check_unlabelled(choice)
    with ExitStack() as until:
        gate = Gate(
            encoder=_Encode(settings, named.pop("encoder", None), until),
            unlabelled=unlabelled,
            seed=seed,
            signals=reading.signals,
            models=reading.models,
            parameters={name: named.pop(name) for name in PARAMETERS if name in named},
            **named,
        )
        table = read(str(file), reading, gate.kept_columns, advice=lambda text: text)
        if str(file) != "-" and not json and (answered := _asked(table)):
            reading = replace(reading, columns={**reading.columns, **answered})
            table = read(str(file), reading, gate.kept_columns, advice=lambda text: text)
        for said in (f"{file}: {table.recognised}", *table.notes):
            note(said)
        if "unit" not in given and has_claims(table.clouds):
            budgets = sorted({given.get("alpha", 0.05), *_SHOWN})
            asked = claims.asked("any", alphas=tuple(budgets), seed=seed, unlabelled=unlabelled)
            print_claims([evaluate_claims(shown_name(file), table.clouds, asked)], json=json)
            return None
        missing, answers = counts(table.clouds)
        if missing == answers:
            raise UsageError(
                f"{file}: no answer has a severity, so there is nothing to judge by; say which column has them: "
                "--column severity=NAME, or --column correct=NAME where 1 means right"
            )
        if said := unlabelled_note(missing, answers, unlabelled):
            warn(said)
        try:
            return gate.fit(table).report()
        except ValueError as error:
            raise UsageError(str(error)) from None


def _print(report: Report) -> None:
    say(report.worth)
    say(report.basis)
    print_budgets(
        [
            report.at,
            *(one for one in report.budgets if one.alpha in _SHOWN and one.alpha != report.at.alpha),
        ]
    )
    print_through(report, _WRONG, "on the page")


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


class _Encode:
    """The configured encoder, or the named one, loaded when the first text needs it."""

    def __init__(self, settings: Settings, name: str | None, until: ExitStack) -> None:
        self._settings, self._name, self._until = settings, name or settings.encoder.name, until
        self._loaded: Any = None

    def __call__(self, texts: list[str]) -> ArrayLike:
        from streamer.scoring.encoders.registry import load_encoder

        if self._name == NO_ENCODER:
            raise UsageError("answers are scored by their embeddings, and encoder.name is none: set one")
        if self._loaded is None:
            asked = wiring.endpoint_encoder(self._settings, self._name)
            if asked is not None:
                self._until.callback(asked.close)
            chosen = self._settings.encoder
            self._loaded = asked or load_encoder(self._name, device=chosen.device, threads=chosen.threads)
        found: ArrayLike = self._loaded.encode(texts)
        return found
