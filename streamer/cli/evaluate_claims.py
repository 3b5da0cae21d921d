"""Claims in `streamer evaluate`, `try` and `plan`: what of long answers would ship."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamer.calibration.claims import LOSSES
from streamer.cli.console import print_json, print_table, say, warn
from streamer.cli.options import share, share_from
from streamer.clouds.line_files import shown_name
from streamer.clouds.sentence import percent
from streamer.errors import UsageError

if TYPE_CHECKING:
    from streamer.clouds.cloud import Cloud
    from streamer.clouds.evaluated_claims import ClaimOptions, ClaimResult, ClaimRow
    from streamer.clouds.stored_answers import StoredBatch
    from streamer.gates.settings import GateSettings
    from streamer.research.evaluation.results import Options


StoredGate = tuple[str, "GateSettings", "Sequence[StoredBatch]"]
"""A gate by its name and settings, and what it has decided and drawn."""

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
        from streamer.clouds.evaluated_claims import ALL_LOSSES, ClaimOptions

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
        self,
        files: "Sequence[tuple[str, Sequence[Cloud]]]",
        gates: "Sequence[StoredGate]",
        options: "Options",
        *,
        out: Path,
    ) -> "tuple[ClaimResult, ...]":
        """Evaluate the claims of each file and gate, and write `claims.json` to a folder.

        Of gates those of the first answer, by the gate's loss unless others are named.
        """
        import msgspec

        from streamer.clouds.evaluated_claims import evaluate_claims, evaluate_prompts
        from streamer.frames.recorded import claimed
        from streamer.research.evaluation.outputs import write_file

        asked = self.asked(
            alphas=options.alphas,
            calibrate=self.calibrate,
            splits=options.splits,
            seed=options.seed,
            unlabelled=options.unlabelled,
        )
        if gates and self.answer != "first":
            raise UsageError("of a gate's batch the first answer is cut, and --answer goes with files")
        found = (
            *(evaluate_claims(shown_name(name), some, asked) for name, some in files),
            *(
                evaluate_prompts(
                    f"gate {name}",
                    claimed(batches, settings, self.rests_on),
                    replace(asked, losses=tuple(self.loss or (settings.loss,))),
                )
                for name, settings, batches in gates
            ),
        )
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
    """Print a sentence and a table for each file or gate."""
    from streamer.clouds.evaluated_claims import claims_sentence

    if json:
        _print_json(results)
        return
    for result in results:
        say(f"{result.name}: {claims_sentence(result.rows)}")
        _print_notes(result)
        print_table(
            tuple(_COLUMNS),
            [tuple(cell(row) for cell in _COLUMNS.values()) for row in result.rows],
            title=f"{_counted(result)}; {result.calibrating} calibrate, the others are measured",
        )


def print_plan(results: "Sequence[ClaimResult]", *, json: bool) -> None:
    """Print what ever more labelled prompts would give, a table for each loss."""
    from streamer.clouds.evaluated_claims import claims_sentence

    if json:
        _print_json(results)
        return
    last = results[-1]
    say(f"{last.name}: with {last.calibrating} labelled prompts, {claims_sentence(last.rows)}")
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


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
