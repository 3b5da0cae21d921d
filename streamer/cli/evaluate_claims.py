"""Claims in `streamer evaluate`, `try` and `plan`: what of long answers would ship."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.calibration.claims import LOSSES
from streamer.cli.console import print_json, print_table, say, warn
from streamer.cli.options import share, share_from
from streamer.clouds.line_files import shown_name
from streamer.clouds.sentence import percent

if TYPE_CHECKING:
    from streamer.clouds.cloud import Cloud
    from streamer.research.evaluation.claims import ClaimOptions, ClaimResult, ClaimRow
    from streamer.research.evaluation.results import Options


AnswerOption = Annotated[
    str, typer.Option(metavar="first|MODEL", help="Which answer is cut: the first, or a model's.")
]


@dataclass(frozen=True, slots=True)
class OfClaims:
    """Claims of long answers."""

    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(LOSSES),
            help="What the budget bounds: any wrong claim, wrong claims as a share of the answer, "
            "their number in units of C, or as a share of what ships. May be repeated. Default: "
            "each, with C = 3.",
        ),
    ] = None
    answer: AnswerOption = "first"
    least_kept: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            parser=share_from(0),
            help="Ship nothing of an answer of which less than this share of claims is left.",
        ),
    ] = 0.0
    rests_on: Annotated[
        Literal["named", "prefix"],
        typer.Option(
            help="What a claim never ships without: the claims that it names as rests_on, or all "
            "before it, as in a derivation.",
        ),
    ] = "named"

    def asked(self, *losses: str, **others: Any) -> "ClaimOptions":
        """Return what is evaluated; `losses` : unless others are named; all where there are none."""
        from streamer.research.evaluation.claims import ALL_LOSSES, ClaimOptions

        return ClaimOptions(
            losses=tuple(self.loss or losses or ALL_LOSSES),
            answer=self.answer,
            least_kept=self.least_kept,
            rests_on=self.rests_on,
            **others,
        )


@dataclass(frozen=True, slots=True)
class Calibrating(OfClaims):
    """Claims of long answers."""

    calibrate: Annotated[
        float,
        typer.Option(metavar="SHARE", parser=share, help="Share of prompts that calibrates."),
    ] = 0.5

    def results(
        self, files: "Sequence[tuple[str, Sequence[Cloud]]]", options: "Options", *, out: Path
    ) -> "tuple[ClaimResult, ...]":
        """Evaluate the claims of each file and write `claims.json` to a folder."""
        import msgspec

        from streamer.research.evaluation.claims import evaluate_claims
        from streamer.research.evaluation.outputs import write_file

        asked = self.asked(
            alphas=options.alphas,
            calibrate=self.calibrate,
            splits=options.splits,
            seed=options.seed,
            unlabelled=options.unlabelled,
        )
        found = tuple(evaluate_claims(shown_name(name), some, asked) for name, some in files)
        write_file(
            out / "claims.json",
            msgspec.json.format(msgspec.json.encode([asked, found]), indent=1) + b"\n",
        )
        return found


_COLUMNS: "dict[str, Callable[[ClaimRow], str | None]]" = {
    "loss": lambda row: row.loss,
    "alpha": lambda row: f"{row.alpha:g}",
    "loss measured": lambda row: _figure(row.risk.mean),
    "prompts with something": lambda row: _figure(row.something.mean),
    "kept of an answer": lambda row: _figure(row.kept.mean),
    "wrong among shipped": lambda row: _figure(row.wrong.mean),
    "whole answers": lambda row: _figure(row.whole.mean),
    "of them with an error": lambda row: _figure(row.whole_wrong.mean),
    "labels": lambda row: f"{row.labels.mean:.0f}",
}


def print_claims(results: "Sequence[ClaimResult]", *, json: bool) -> None:
    """Print a sentence and a table for each file."""
    if json:
        _print_json(results)
        return
    for result in results:
        say(f"{result.name}: {_sentence(result.rows)}")
        _print_notes(result)
        print_table(
            tuple(_COLUMNS),
            [tuple(cell(row) for cell in _COLUMNS.values()) for row in result.rows],
            title=f"{_counted(result)}; {result.calibrating} calibrate, the others are measured",
        )


def print_plan(results: "Sequence[ClaimResult]", *, json: bool) -> None:
    """Print what ever more labelled prompts would give, a table for each loss."""
    if json:
        _print_json(results)
        return
    last = results[-1]
    say(f"{last.name}: with {last.calibrating} labelled prompts, {_sentence(last.rows)}")
    _print_notes(last)
    for place in range(len(last.rows)):
        print_table(
            ("labelled prompts", *_COLUMNS),
            [
                (str(one.calibrating), *(cell(one.rows[place]) for cell in _COLUMNS.values()))
                for one in results
            ],
            title=f"{_counted(last)}; those that do not calibrate are measured",
        )


def _print_json(results: "Sequence[ClaimResult]") -> None:
    from msgspec import to_builtins

    print_json(to_builtins(results))


def _counted(result: "ClaimResult") -> str:
    return f"{result.claims} claims of {result.prompts} prompts, {percent(result.wrong)} wrong"


def _print_notes(result: "ClaimResult") -> None:
    for remark in result.notes:
        warn(f"{result.name}: {remark}")
    say("")


def _sentence(rows: "Sequence[ClaimRow]") -> str:
    """What ships at the largest budget up to 10 %, or else the smallest."""
    first = [row for row in rows if row.loss == rows[0].loss]
    small = [row for row in first if row.alpha <= 0.1]
    row = max(small, key=lambda one: one.alpha) if small else first[0]
    budget = f"at a budget of {percent(row.alpha)} ({row.loss})"
    if not row.something.mean:
        return f"{budget} nothing ships; at least {row.prompts} labelled prompts are needed"
    kept, wrong, whole = row.kept.mean, row.wrong.mean, row.whole.mean
    error = f", {percent(row.whole_wrong.mean)} of them with an error" if whole else ""
    return (
        f"{budget} {percent(row.something.mean)} of prompts get something, {percent(kept)} of an "
        f"answer on average, with {percent(wrong)} of it wrong; whole answers would reach "
        f"{percent(whole)} of prompts{error}"
    )


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
