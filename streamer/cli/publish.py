"""`streamer publish`: response batches, and the labels of response clouds, onto the topics."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import options as opt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    from streamer.cli.console import counted, print_json, progress, say
    from streamer.cli.known_gate import warn_of_unknown
    from streamer.cli.reachability import require_broker
    from streamer.settings import load_settings

    settings = load_settings()
    require_broker(settings)
    if gate is not None:
        warn_of_unknown(settings, gate)
    topics, limits = wiring.topics(settings), wiring.limits(settings)
    batches = label_count = 0
    start = monotonic()
    with (
        _pace(settings) as pace,
        wiring.publisher(settings) as publisher,
        progress("publishing") as advance,
    ):
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
            f"published {counted(batches, 'batch', 'batches')}"
            + (f" and {counted(label_count, 'label', 'labels')}" if labels else "")
            + f" in {seconds:.1f} s"
        )


@contextmanager
def _pace(settings: "Settings") -> "Iterator[Callable[[int], None]]":
    """Give what to call with each record's size: it waits for the worker when the broker is the embedded one."""
    from streamer import wiring
    from streamer.cli.pacing import Pace
    from streamer.stream.embedded_broker import is_embedded

    log_id = settings.kafka.log_id
    if not is_embedded(log_id):
        yield lambda _size: None
        return
    with wiring.open_store(settings) as store:

        def recorded() -> int:
            heights = store.reports.chain_heights()
            return sum(height for partition, height in heights.items() if partition.log_id == log_id)

        yield Pace(recorded).sent
