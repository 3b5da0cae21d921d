"""`streamer publish`: files of events or of response clouds, checked line by line, onto the topics."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.broker import require_broker
from streamer.cli.console import counted, note, print_json, progress, say
from streamer.cli.known_gate import WhatIsKnown, asking
from streamer.cli.options import gate_names
from streamer.clouds.cloud import cloud_labels, cloud_message
from streamer.clouds.cloud_files import AS_IT_IS, content_of, read_clouds
from streamer.clouds.line_files import numbered_lines, shown_name
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import NO_SEVERITIES
from streamer.clouds.tables.rows import json_object
from streamer.errors import BadMessage, Unavailable, UsageError
from streamer.events.labels import encode_label
from streamer.events.limits import Limits
from streamer.events.responses import decode_responses
from streamer.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Publication:
    """One batch to send, as the responses topic requires it, and the labels that go with it, as the labels topic does.

    `key` : of all these messages, so that attempts and labels of one batch keep their order. `alone` :
    it has one answer, and nothing that says how safe that is.
    """

    key: bytes
    value: bytes
    labels: tuple[bytes, ...] = ()
    alone: bool = False


def publications(
    file: str,
    *,
    gate: str | None,
    labels: bool,
    labeller: str | None,
    limits: Limits,
    kind: str | None = None,
    reading: Reading = AS_IT_IS,
    embeddings_of: str | None = None,
    report: Callable[[str], None] = lambda _text: None,
) -> Iterator[Publication]:
    """Iterate over what a file asks to publish, in its order, one line in memory at a time.

    `file` is a path, or ``-`` for standard input; plain or gzip, detected by content. `gate` is needed for clouds and tables, and
    replaces the gate of events. With `labels` severities of clouds and tables go along, given by `labeller` (None: ``file:NAME``);
    so do their embeddings, where `embeddings_of` says what made them. `kind` is of severities whose file states none. `reading` and `report` as `read_clouds` has them.

    Raises `UsageError` where the file cannot be read, or a line is not fit to be published; the text names the line.
    """
    content = content_of(file)
    if content == "events":
        for option, given in (
            ("--labels", labels),
            ("--column", reading.columns),
            ("--signal", reading.signals),
            ("--embeddings-of", embeddings_of),
        ):
            if given:
                raise UsageError(
                    f"{_name(file)} holds events, which have their own fields and carry no labels; {option} is for "
                    "response clouds and tables"
                )
        yield from _events(file, gate, limits)
        return
    if gate is None:
        raise UsageError(f"{_name(file)} names no gate, as only events do; say which with --gate")
    at = datetime.now(UTC)
    who = labeller or f"file:{_name(file)}"[:200]
    if not labels and content == "table":  # what nobody asked for is not looked at
        reading = replace(reading, columns={**NO_SEVERITIES, **reading.columns})
    for cloud in read_clouds(file, reading, report=report, hold=False, needs_answers=True):
        if embeddings_of is not None and not cloud.embedded:
            raise UsageError(
                f"question {cloud.question_id!r} has no embeddings to send with --embeddings-of; a table has them in a "
                "column: --column embedding=NAME"
            )
        yield Publication(
            key=cloud.batch_id.encode(),
            value=cloud_message(cloud, gate, limits, embeddings_of=embeddings_of),
            labels=tuple(map(encode_label, cloud_labels(cloud, gate, who, at, kind=kind))) if labels else (),
            alone=cloud.has_too_few(likely=True),
        )


def _events(file: str, gate: str | None, limits: Limits) -> Iterator[Publication]:
    for number, line in numbered_lines(file):
        yield _event(line.strip(), gate, limits, _name(file), number)


def _event(line: bytes, gate: str | None, limits: Limits, name: str, number: int) -> Publication:
    if gate is not None:
        line = json.dumps(json_object(line, name, number) | {"gate": gate}, ensure_ascii=False).encode()
    try:
        return Publication(key=decode_responses(line, limits).batch_id.encode(), value=line)
    except BadMessage as error:
        raise UsageError(f"{name}, line {number} would be refused: {error.detail}") from None


def _name(file: str) -> str:
    return shown_name(file) if file == "-" else Path(file).name


AHEAD_BYTES = 2 * 2**20
"""How much may be published and not yet recorded: less than half of what one partition of the mock broker keeps."""

_PATIENCE_SECONDS = 120.0


class Backpressure:
    """Blocks publishing while the worker is too far behind; `outcomes` : how many records of this log have been recorded."""

    def __init__(
        self,
        outcomes: Callable[[], int],
        *,
        sleep: Callable[[float], None] = sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._outcomes = outcomes
        self._sleep = sleep
        self._clock = clock
        self._before = outcomes()
        self._sizes: list[int] = []
        self._recorded = 0
        self._ahead = 0

    def sent(self, size: int) -> None:
        """Note a record of `size` bytes, and wait until there is room. Raises `Unavailable` when nothing moves."""
        self._sizes.append(size)
        self._ahead += size
        since = self._clock()
        while self._ahead > AHEAD_BYTES:
            recorded = min(self._outcomes() - self._before, len(self._sizes))
            if recorded > self._recorded:
                self._ahead -= sum(self._sizes[self._recorded : recorded])
                self._recorded, since = recorded, self._clock()
                continue
            if self._clock() - since > _PATIENCE_SECONDS:
                raise Unavailable(
                    f"the worker has recorded nothing for {_PATIENCE_SECONDS:.0f} s; see `streamer doctor`"
                )
            self._sleep(0.05)


_AT_A_TIME = 200
"""Batches looked up in the record at once."""


@opt.in_groups
def publish(
    files: list[str] = opt.argument(
        "FILE",
        "Events or response clouds (.jsonl), or a table in CSV, JSON Lines or Parquet; - is standard input.",
    ),
    gate: str | None = opt.option(
        "GATE",
        "The gate that decides. Events name their own, and this replaces it.",
        parser=opt.gate_name,
        autocompletion=gate_names,
    ),
    *,
    labels: bool = opt.flag(
        "--labels",
        "Publish the severities of clouds and tables too: of the gate's kind, unless they state one.",
    ),
    embeddings_of: str | None = opt.option(
        "ENCODER",
        "Send the embeddings of clouds and tables along, which this encoder made; for a gate that accepts them.",
    ),
    labeller: str | None = opt.option(
        "WHO", "Labeller of those labels, for the record. Default: the file's name."
    ),
    rate: float | None = opt.option("R", "At most this many batches per second.", min=0.001),
    tables: opt.TableOptions,
    json: opt.JsonOption = False,
) -> None:
    """Publish response batches to the responses topic.

    A file holds events (streamer.responses.v1), or response clouds: question_id, question, references, and
    responses with text and label, or a table, with one answer or one prompt a row. Every line is checked before it is sent,
    and the first of every file before the broker is asked.

    If the database can be read, batches that were already decided are reported as repeats. Exit status 1 when
    workers refuse a batch: its gate is unknown, until that is created, or its name has other content.
    """
    settings = wiring.load_settings()
    topics, limits = wiring.topics(settings), wiring.limits(settings)
    batches_of = partial(
        publications,
        gate=gate,
        labels=labels,
        labeller=labeller,
        limits=limits,
        reading=tables.reading(),
        embeddings_of=embeddings_of,
    )
    for file in files:
        path = Path(file)
        # What can be read twice, or not at all; standard input and pipes are read once, below.
        if file != "-" and (path.is_file() or not path.exists()):
            next(batches_of(file), None)
    require_broker(settings)
    sent, start = Counter(batches=0, labels=0, one_answer=0), monotonic()
    with (
        _pace(settings) as pace,
        wiring.publisher(settings) as publisher,
        progress("publishing") as advance,
        asking(settings, limits) as known,
    ):
        for file in files:
            # Slow input is sent as it arrives.
            ahead = 1 if file == "-" or rate is not None else _AT_A_TIME
            read = batches_of(file, report=note, kind=known.kind_of(gate))
            for one in _looked_at(read, known, ahead):
                if rate is not None:
                    sleep(max(0.0, start + sent["batches"] / rate - monotonic()))
                publisher.send(topics.responses, one.value, key=one.key)
                pace(len(one.value))
                for label in one.labels:
                    publisher.send(topics.labels, label, key=one.key)
                    pace(len(label))
                sent.update(batches=1, labels=len(one.labels), one_answer=one.alone)
                advance(sent["batches"])
    seconds = monotonic() - start
    if json:
        counts = {name: getattr(known, name) if known.readable else None for name in ("repeats", "conflicts")}
        print_json({**sent, "seconds": round(seconds, 3), **counts, "unknown_gates": known.unknown_gates})
    else:
        with_labels = f" and {counted(sent['labels'], 'label', 'labels')}" if labels else ""
        say(f"published {counted(sent['batches'], 'batch', 'batches')}{with_labels} in {seconds:.1f} s")
        if sent["one_answer"]:
            alone = counted(sent["one_answer"], "batch has", "batches have")
            say(f"{alone} one answer only: held (too_few_responses), unless the gate compares none")
        _say_known(known)
    if known.unknown_gates or known.conflicts:
        raise typer.Exit(FAILED)


def _say_known(known: WhatIsKnown) -> None:
    """Say what becomes of batches that were there before."""
    if known.repeats:
        say(
            f"{counted(known.repeats - known.conflicts, 'repeat', 'repeats')} of batches that were there before: "
            "each gets its stored decision again"
        )
    if known.conflicts:
        say(
            f"{counted(known.conflicts, 'batch has', 'batches have')} other content than the one of that name before: "
            "refused (conflicting_content), and no labels sent with it"
        )


def _looked_at(batches: Iterator[Publication], known: WhatIsKnown, ahead: int) -> Iterator[Publication]:
    """Pass batches on when the record was asked about them, `ahead` at a time."""
    while group := list(islice(batches, ahead)):
        labels = [label for one in group for label in one.labels]
        for one, refused in zip(group, known.look([one.value for one in group], labels), strict=True):
            yield replace(one, labels=()) if refused else one  # they would be taken for the first's


@contextmanager
def _pace(settings: Settings) -> Iterator[Callable[[int], None]]:
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
