"""`streamer publish`: response batches, and the labels of response clouds, onto the topics."""

from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import options as opt

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamer.settings import Settings


def publish(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Events or response clouds, one JSON object a line; .jsonl or .jsonl.gz; - is standard input.",
        ),
    ],
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="GATE", help="The gate that decides. Events name their own, and this replaces it."
        ),
    ] = None,
    labels: Annotated[
        bool, typer.Option("--labels", help="Publish the labels of response clouds too, to the labels topic.")
    ] = False,
    labeller: Annotated[
        str | None,
        typer.Option(metavar="WHO", help="Who gave those labels, for the record; default: the file's name."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="R", min=0.001, help="At most this many batches per second.")
    ] = None,
    json: opt.JsonOption = False,
) -> None:
    """Publish response batches to the responses topic.

    A file holds events (streamer.responses.v1), or response clouds: question_id, question, references, and
    responses with text and label. Every line is checked before it is sent.
    """
    from time import monotonic, sleep

    from streamer import wiring
    from streamer.cli.batch_files import publications
    from streamer.cli.console import print_json, progress, say
    from streamer.settings import load_settings

    settings = load_settings()
    topics, limits = wiring.topics(settings), wiring.limits(settings)
    batches = label_count = 0
    start = monotonic()
    pace = _pace(settings)
    with wiring.publisher(settings) as publisher, progress("publishing") as advance:
        for file in files:
            for one in publications(file, gate=gate, labels=labels, labeller=labeller, limits=limits):
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
        print_json({"batches": batches, "labels": label_count, "seconds": round(seconds, 3)})
    else:
        say(
            f"published {batches} batches"
            + (f" and {label_count} labels" if labels else "")
            + f" in {seconds:.1f} s"
        )


def _pace(settings: "Settings") -> "Callable[[int], None]":
    """Return what to call with each record's size: it waits when the broker is the embedded one of `streamer dev`."""
    from streamer.cli.pacing import Pace, worker_outcomes
    from streamer.dev_session import find_dev_session

    session = find_dev_session()
    if session is None or session.log_id != settings.kafka.log_id:
        return lambda _size: None
    return Pace(worker_outcomes(session.metrics_url)).sent
