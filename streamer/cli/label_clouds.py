"""`streamer label clouds`: severities for the responses of a file, without a gate."""

from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli import FAILED
from streamer.cli import options as opt

if TYPE_CHECKING:
    from streamer.labels.filling import Labeller
    from streamer.settings.settings import Settings

By = Literal["lexical", "bertscore", "judge"]


def clouds(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Response clouds, .jsonl or .jsonl.gz; - is standard input."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File for the labelled clouds; clouds it already holds are not labelled again.",
        ),
    ],
    by: Annotated[
        By, typer.Option(help="What labels; each has a group of settings of the same name.")
    ] = "lexical",
    match: Annotated[
        Literal["exact", "contained"],
        typer.Option(help="lexical: the answer is a reference, or has the words of one in it."),
    ] = "exact",
    whole: Annotated[
        bool, typer.Option("--whole", help="lexical: compare whole answers, not their heads.")
    ] = False,
    json: opt.JsonOption = False,
) -> None:
    """Label the responses of a file of clouds, for planning, evaluation and the demo.

    Responses that have a label keep it. A cloud is written when all its responses are labelled; until then its labels
    are kept in FILE.labels. Stop when you like, the same command does the rest. Clouds without references stay unlabelled by lexical and bertscore.
    """
    from streamer.cli.console import counted, note, print_json, progress, say, warn
    from streamer.labels.cloud_labels import CloudLabelling
    from streamer.labels.filling import Tally, fill
    from streamer.settings.settings import load_settings

    tally = Tally()
    with (
        _labeller(load_settings(), by, match, whole=whole) as labeller,
        CloudLabelling(file, out, labeller) as labelling,
    ):
        with (
            progress("labelling") as advance,
            closing(fill(labelling.tasks(), labeller, labelling.keep)) as tallies,
        ):
            for tally in tallies:
                advance(tally.seen)
        written, before, who = labelling.clouds, labelling.there_before, labeller.id
    if json:
        print_json(
            {
                "file": str(out),
                "clouds": written,
                "there_before": before,
                "labelled": tally.labelled,
                "failed": tally.failures,
                "failures": tally.failed,
                "labeller": who,
                "tokens": {"input": tally.input_tokens, "output": tally.output_tokens},
            }
        )
    else:
        say(
            f"{out}: {counted(written, 'cloud', 'clouds')} written, "
            f"{counted(tally.labelled, 'response', 'responses')} labelled by {who}"
        )
        if before:
            note(f"{counted(before, 'cloud was', 'clouds were')} labelled already")
        if tally.failures:
            warn(
                f"{counted(tally.failures, 'response', 'responses')} could not be labelled; their clouds are not written:"
            )
            for example in tally.examples:
                warn(f"  {example}")
    if tally.failures:
        raise typer.Exit(FAILED)


def _labeller(
    settings: "Settings", by: By, match: Literal["exact", "contained"], *, whole: bool
) -> "AbstractContextManager[Labeller]":
    from streamer import wiring
    from streamer.labels.reference_labellers import LexicalLabeller

    if by == "judge":
        return wiring.judge_labeller(wiring.judge_endpoint(settings))
    if by == "bertscore":
        return nullcontext(wiring.bertscore_labeller(settings))
    return nullcontext(LexicalLabeller(match, whole=whole))
