"""`streamer publish`: response batches, and the labels of response clouds, onto the topics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.batch_files import Publication
from streamer.cli.broker import require_broker
from streamer.cli.console import counted, note, print_json, progress, say
from streamer.cli.gate_names import gate_names
from streamer.cli.known_gate import WhatIsKnown, asking
from streamer.cli.pacing import Backpressure
from streamer.settings.settings import Settings

_AT_A_TIME = 200
"""Batches looked up in the record at once."""


@opt.in_groups
def publish(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Events or response clouds (.jsonl), or a table in CSV, JSON Lines or Parquet; - is standard input.",
        ),
    ],
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="GATE",
            autocompletion=gate_names,
            help="The gate that decides. Events name their own, and this replaces it.",
        ),
    ] = None,
    *,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels", help="Publish the severities of clouds and tables too, to the labels topic."
        ),
    ] = False,
    embeddings_of: Annotated[
        str | None,
        typer.Option(
            metavar="ENCODER",
            help="Send the embeddings of clouds and tables along, which this encoder made; for a gate that accepts them.",
        ),
    ] = None,
    labeller: Annotated[
        str | None,
        typer.Option(
            metavar="WHO", help="Labeller of those labels, for the record. Default: the file's name."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="R", min=0.001, help="At most this many batches per second.")
    ] = None,
    tables: opt.TableOptions,
    json: opt.JsonOption = False,
) -> None:
    """Publish response batches to the responses topic.

    A file holds events (streamer.responses.v1), or response clouds: question_id, question, references, and
    responses with text and label, or a table, with one answer or one prompt a row. Every line is checked before it is sent,
    and the first of every file before the broker is asked.

    If the database can be read, batches that were already decided are reported as repeats. Exit status 1 when a batch
    names an unknown gate: it is published, and workers refuse it until the gate is created.
    """
    from streamer.cli.batch_files import publications

    reading = tables.reading()
    settings = wiring.load_settings()
    topics, limits = wiring.topics(settings), wiring.limits(settings)
    batches_of = partial(
        publications,
        gate=gate,
        labels=labels,
        labeller=labeller,
        limits=limits,
        reading=reading,
        embeddings_of=embeddings_of,
    )
    for file in files:
        path = Path(file)
        # What can be read twice, or not at all; standard input and pipes are read once, below.
        if file != "-" and (path.is_file() or not path.exists()):
            next(batches_of(file), None)
    require_broker(settings)
    batches = label_count = 0
    start = monotonic()
    with (
        _pace(settings) as pace,
        wiring.publisher(settings) as publisher,
        progress("publishing") as advance,
        asking(settings, limits) as known,
    ):
        for file in files:
            # Slow input is sent as it arrives.
            ahead = 1 if file == "-" or rate is not None else _AT_A_TIME
            for one in _looked_at(batches_of(file, report=note), known, ahead):
                if rate is not None:
                    sleep(max(0.0, start + batches / rate - monotonic()))
                publisher.send(topics.responses, one.value, key=one.key)
                pace(len(one.value))
                for label in one.labels:
                    publisher.send(topics.labels, label, key=one.key)
                    pace(len(label))
                batches += 1
                label_count += len(one.labels)
                advance(batches)
    seconds = monotonic() - start
    if json:
        print_json(
            {
                "batches": batches,
                "labels": label_count,
                "seconds": round(seconds, 3),
                "repeats": known.repeats if known.readable else None,
                "conflicts": known.conflicts if known.readable else None,
                "unknown_gates": known.unknown_gates,
            }
        )
    else:
        say(
            f"published {counted(batches, 'batch', 'batches')}"
            + (f" and {counted(label_count, 'label', 'labels')}" if labels else "")
            + f" in {seconds:.1f} s"
        )
        if known.repeats:
            say(
                f"{counted(known.repeats - known.conflicts, 'repeat', 'repeats')} of batches that were there before: "
                "each gets its stored decision again"
            )
        if known.conflicts:
            say(
                f"{counted(known.conflicts, 'batch has', 'batches have')} other content than the one of that name before: "
                "refused (conflicting_content)"
            )
    if known.unknown_gates:
        raise typer.Exit(FAILED)


def _looked_at(batches: "Iterator[Publication]", known: "WhatIsKnown", ahead: int) -> "Iterator[Publication]":
    """Pass batches on when the record was asked about them, `ahead` at a time."""
    while group := list(islice(batches, ahead)):
        known.look([one.value for one in group], [label for one in group for label in one.labels])
        yield from group


@contextmanager
def _pace(settings: "Settings") -> "Iterator[Callable[[int], None]]":
    """Give what to call with each record's size: it waits for the worker when the broker is the embedded one."""
    from streamer.stream.embedded_broker import is_embedded

    log_id = settings.kafka.log_id
    if not is_embedded(log_id):
        yield lambda _size: None
        return
    with wiring.open_store(settings) as store:

        def recorded() -> int:
            heights = store.reports.log_sizes()
            return sum(height for partition, height in heights.items() if partition.log_id == log_id)

        yield Backpressure(recorded).sent
