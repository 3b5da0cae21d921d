"""Claims in `streamer evaluate`, `try` and `plan`: what of long answers would ship."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.claims import LOSSES
from streamer.calibration.registry import every
from streamer.cli.console import print_json, print_table, say, warn
from streamer.cli.options import option, share, share_from
from streamer.clouds.cloud import Cloud
from streamer.clouds.evaluated_claims import (
    ALL_LOSSES,
    COLUMNS,
    ClaimOptions,
    ClaimResult,
    claims_sentence,
    evaluate_claims,
    evaluate_prompts,
)
from streamer.clouds.line_files import shown_name
from streamer.clouds.stored_answers import StoredBatch
from streamer.errors import UsageError
from streamer.gates.settings import GateSettings
from streamer.scoring.registry import OF_CLAIMS, SUPPORT

if TYPE_CHECKING:
    from streamer.research.evaluation.results import Options


StoredGate = tuple[str, "GateSettings", "Sequence[StoredBatch]"]
"""A gate by its name and settings, and what it has decided and drawn."""

_METHODS = [name for name, one in every().items() if one.by_sum]
AnswerOption = Annotated[str, option("first|MODEL", "Which answer is cut: the first, or a model's.", ...)]


@dataclass(frozen=True, slots=True)
class OfClaims:
    """Claims of long answers."""

    loss: list[str] | None = option(
        "|".join(LOSSES),
        "What the budget bounds: any wrong claim, wrong claims as a share of the answer, "
        "their number in units of C, or as a share of what ships. May be repeated. Default: "
        "each, with C = 3.",
    )
    answer: AnswerOption = "first"
    least_kept: float | None = option(
        "SHARE",
        "Ship nothing of an answer of which less than this share of claims is left. Default: 0; of a "
        "gate's record, the gate's.",
        parser=share_from(0),
    )
    rests_on: Literal["named", "prefix"] = option(
        None,
        "What a claim never ships without: the claims that it names as rests_on, or all "
        "before it, as in a derivation.",
        "named",
    )

    def asked(self, *losses: str, **others: Any) -> "ClaimOptions":
        """Return what is evaluated; `losses` : unless others are named; all where there are none."""
        return ClaimOptions(
            losses=tuple(self.loss or losses or ALL_LOSSES),
            answer=self.answer,
            least_kept=self.least_kept or 0.0,
            rests_on=self.rests_on,
            **others,
        )


@dataclass(frozen=True, slots=True)
class ScoredClaims(OfClaims):
    """Claims of long answers."""

    scorer: str | None = option(
        "|".join(OF_CLAIMS), f"What scores claims. Default: {SUPPORT}; of a gate's record, what decided."
    )


@dataclass(frozen=True, slots=True)
class Calibrating(ScoredClaims):
    """Claims of long answers."""

    calibrate: float = option("SHARE", "Share of prompts that calibrates.", 0.5, parser=share)
    method: str = option(
        "|".join(_METHODS),
        "Calibrator of claims; a gate has its own. With age the oldest calibrate, once.",
        Mean.name,
    )

    def results(
        self,
        files: "Sequence[tuple[str, Sequence[Cloud]]]",
        gates: "Sequence[StoredGate]",
        options: "Options",
        *,
        out: Path,
    ) -> "list[ClaimResult]":
        """Evaluate the claims of each file and gate, and write `claims.json` to a folder.

        Of gates those of the first answer, by the gate's loss and least kept unless others are named.
        """
        import msgspec

        from streamer.frames.recorded import calibrator_of, claimed
        from streamer.research.evaluation.outputs import write_file

        asked = self.asked(
            alphas=options.alphas,
            calibrate=self.calibrate,
            splits=options.splits,
            seed=options.seed,
            unlabelled=options.unlabelled,
            scorer=self.scorer or SUPPORT,
            method=self.method,
        )
        if gates and self.answer != "first":
            raise UsageError("of a gate's batch the first answer is cut, and --answer goes with files")
        found = [evaluate_claims(shown_name(name), some, asked) for name, some in files]
        for name, settings, batches in gates:
            scorer = self.scorer or settings.scorer
            prompts, left = claimed(batches, settings, scorer, self.rests_on)
            for text in left:
                warn(f"gate {name}: {text}")
            losses = tuple(self.loss or (settings.loss,))
            least = settings.least_kept if self.least_kept is None else self.least_kept
            how: Any = {"losses": losses, "least_kept": least, "scorer": scorer}
            own = replace(asked, **how, **calibrator_of(settings))
            found.append(evaluate_prompts(f"gate {name}", prompts, own))
        write_file(
            out / "claims.json",
            msgspec.json.format(msgspec.json.encode([asked, found]), indent=1) + b"\n",
        )
        return found


def print_claims(results: "Sequence[ClaimResult]", *, json: bool) -> None:
    """Print a sentence and a table for each file or gate."""
    if json:
        _print_json(results)
        return
    for result in results:
        say(f"{result.name}: {claims_sentence(result.rows)}")
        _print_notes(result)
        print_table(
            tuple(COLUMNS),
            [tuple(cell(row) for cell in COLUMNS.values()) for row in result.rows],
            title=result.counted,
        )


def print_plan(results: "Sequence[ClaimResult]", *, json: bool) -> None:
    """Print what ever more labelled prompts would give, a table for each loss."""
    if json:
        _print_json(results)
        return
    last = results[-1]
    say(f"{last.name}: with {last.calibrating} labelled prompts, {claims_sentence(last.rows)}")
    _print_notes(last)
    for place in range(len(last.rows)):
        print_table(
            ("labelled prompts", *COLUMNS),
            [
                (str(one.calibrating), *(cell(one.rows[place]) for cell in COLUMNS.values()))
                for one in results
            ],
            title=last.counted,
        )


def _print_json(results: "Sequence[ClaimResult]") -> None:
    from msgspec import to_builtins

    print_json(to_builtins(results))


def _print_notes(result: "ClaimResult") -> None:
    for remark in result.notes:
        warn(f"{result.name}: {remark}")
    say("")
