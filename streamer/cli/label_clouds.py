"""`streamer label clouds` and `label claims`: severities for a file, without a gate."""

import inspect
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.console import counted, note, print_json, progress, say, warn
from streamer.cli.evaluate_claims import AnswerOption
from streamer.cli.label_filling import parameter, tally_json, warn_failed
from streamer.clouds.claims import WHY_HELD
from streamer.errors import UsageError
from streamer.labels.claim_files import write_claims
from streamer.labels.cloud_labels import CloudLabelling
from streamer.labels.filling import FillingTally, fill
from streamer.labels.kinds.lexical import Lexical
from streamer.labels.registry import by_programs, program_kind
from streamer.labels.severity_kind import ProgramKind
from streamer.scoring.judged import FORMS, form

_WITHOUT_SETTINGS = {name: kind for name, kind in by_programs().items() if kind.group is None}
"""Those whose options are not settings."""
_ByForClaims: Any = Annotated[
    Literal["people", *(name for name, kind in by_programs().items() if kind.labels_claims)],
    opt.option(None, "Who labels: people, who fill FILE in, or a program by its settings.", ...),
]
_File = Annotated[
    str,
    opt.argument(
        "FILE",
        "Response clouds (.jsonl), or a table in CSV, JSON Lines or Parquet; - is standard input.",
    ),
]


def clouds(file: str, out: Path, by: str, judged: str, json: bool, **options: Any) -> None:
    """Label the responses of a file of clouds or of a table, for planning, evaluation and the demo.

    Claims of long answers are labelled by `streamer label claims`. Responses that have a label keep
    it. A cloud is written when all its responses are labelled; until then its labels are kept in
    FILE.labels. Stop when you like, the same command does the rest. Clouds without references stay
    unlabelled where a kind compares with them.
    """
    try:
        read = form(judged)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    kind = program_kind(by)
    tables = opt.TableOptions(**{one.name: options.pop(one.name) for one in fields(opt.TableOptions)})
    chosen = kind(**{name: value for name, value in options.items() if name in kind.options()})
    _label(file, out, chosen, tables, "response", json=json, judged=read)


@opt.in_groups
def claims(
    file: _File,
    out: Path = opt.option("FILE", "New file: .csv for a table, one claim a row, or .jsonl for clouds.", ...),
    by: _ByForClaims = "people",
    answer: AnswerOption = "first",
    *,
    tables: opt.TableOptions,
    json: opt.JsonOption = False,
) -> None:
    """Cut one answer to each prompt into claims, for people to label in a file or for a judge.

    What people get is to be filled in: 0 right, 1 wrong, or between, each claim as it reads in the
    whole answer. `streamer evaluate`, `try` and `plan` read it. Answers that bring claims are not
    cut, and claims that have a label keep it. A judge's labels are kept one by one: stop when you
    like, the same command does the rest.
    """
    if by != "people":
        if out.suffix == ".csv":
            raise UsageError(
                f"{out}: a judge's labels are written to clouds; name a file that ends in .jsonl"
            )
        _label(file, out, program_kind(by)(), tables, "claim", json=json, claims=answer)
        return

    written = write_claims(file, out, answer, reading=tables.reading(), report=note)
    if json:
        print_json({"file": str(out), **asdict(written)})
        return
    prompts = counted(written.prompts, "prompt", "prompts")
    say(f"{out}: {counted(written.claims, 'claim', 'claims')} of {prompts}")
    for why, count in written.held.items():
        prompts = counted(count, "prompt is", "prompts are")
        note(f"{prompts} held whatever the threshold: {WHY_HELD[why]}")
    if written.missing:
        _warn_missing(written.missing, answer)
    whose = "" if answer == "first" or out.suffix == ".csv" else f" --answer {answer}"
    field = "severity" if out.suffix == ".csv" else "label"
    note(f"Fill in {field} (0 right, 1 wrong), then: streamer evaluate {out}{whose}")


def _warn_missing(prompts: int, answer: str) -> None:
    warn(f"{counted(prompts, 'prompt', 'prompts')} without an answer by {answer} left out")


def _label(
    file: str,
    out: Path,
    kind: ProgramKind,
    tables: opt.TableOptions,
    what: str,
    *,
    json: bool,
    **of: Any,
) -> None:
    tally, many, reading = FillingTally(), f"{what}s", tables.reading()
    with (
        kind.labeller(wiring.load_settings()) as labeller,
        CloudLabelling(file, out, labeller, reading=reading, report=note, **of) as labelling,
    ):
        with (
            progress("labelling") as advance,
            closing(fill(labelling.tasks(), labeller, labelling.keep)) as tallies,
        ):
            for tally in tallies:
                advance(tally.seen)
        written, before, who = labelling.clouds, labelling.there_before, labeller.id
        missing = labelling.missing
    if json:
        print_json(
            {
                "file": str(out),
                "clouds": written,
                "there_before": before,
                "missing": missing,
                **tally_json(tally),
                "labeller": who,
            }
        )
    else:
        say(
            f"{out}: {counted(written, 'cloud', 'clouds')} written, "
            f"{counted(tally.labelled, what, many)} labelled by {who}"
        )
        if before:
            note(f"{counted(before, 'cloud was', 'clouds were')} labelled already")
        if missing:
            _warn_missing(missing, of["claims"])
        warn_failed(
            tally,
            f"{counted(tally.failures, what, many)} not labelled; their clouds are not written:",
        )
    if tally.failures:
        raise typer.Exit(FAILED)


def _options() -> Iterator[inspect.Parameter]:
    """Make the options of kinds that have no settings, each once."""
    whose: dict[str, list[str]] = {}
    for name, kind in _WITHOUT_SETTINGS.items():
        for one in kind.options():
            whose.setdefault(one, []).append(name)
    for one, names in whose.items():
        yield parameter(one, _WITHOUT_SETTINGS[names[0]].options()[one], ", ".join(names))


_KEPT = "The clouds with labels; what it holds already is not labelled again."
_PARTS = f"What of the answers is read: {', '.join(FORMS)}."
_By: Any = Annotated[
    Literal[tuple(by_programs())],
    opt.option(None, "Who labels; settings in the groups of these names.", ...),
]
opt.with_parameters(
    clouds,
    [
        opt.keyword("file", _File),
        opt.keyword("out", Annotated[Path, opt.option("FILE", _KEPT, ...)]),
        opt.keyword("by", _By, Lexical.name),
        opt.keyword("judged", Annotated[str, opt.option("PART", _PARTS, ...)], "whole"),
        *opt.of_group(opt.TableOptions),
        *_options(),
        opt.keyword("json", opt.JsonOption, default=False),
    ],
)
