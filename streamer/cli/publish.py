"""`streamer publish`: files of events or of response clouds, checked line by line, onto the topics; and what the record says of
them, as far as it can be read from here.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.broker import require_broker
from streamer.cli.console import counted, note, print_json, progress, say, warn
from streamer.cli.options import gate_names
from streamer.clouds.cloud import cloud_labels, cloud_message
from streamer.clouds.cloud_files import AS_IT_IS, content_of, read_clouds
from streamer.clouds.line_files import numbered_lines, shown_name
from streamer.clouds.simulation import QUESTION_ID_PREFIX
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.columns import NO_SEVERITIES
from streamer.clouds.tables.rows import json_object
from streamer.errors import BadMessage, StreamerError, Unavailable, UsageError
from streamer.events.labels import decode_label, encode_label
from streamer.events.limits import Limits
from streamer.events.responses import content_hash, decode_responses
from streamer.settings.settings import Settings

if TYPE_CHECKING:
    from streamer.store import Store


class WhatIsKnown:
    """What the record says of batches before they are published; nothing where it is not `readable`
    from here.

    `repeats` are decided already, or were there before in the same files; of `conflicts` among them
    the content is another. `unknown_gates` nobody has created, in the order in which batches named
    them.
    """

    def __init__(self, store: "Store | None", limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._gates: dict[str, str | None] = {}
        self._warned: set[tuple[str, str]] = set()
        self._seen: dict[tuple[str, str, int], bytes] = {}
        self.readable = store is not None
        self.unknown_gates: list[str] = []
        self.repeats = self.conflicts = 0

    def look(self, events: Sequence[bytes], labels: Sequence[bytes] = ()) -> list[bool]:
        """Look at what is to be published next, as the topics require it; labels are of those
        batches or of earlier ones.

        Warns of gates that nobody has created, and of labels that control none. Returns which
        batches will be refused, since others of their names have other content.
        """
        if self._store is None:
            return [False] * len(events)
        batches = [decode_responses(value, self._limits) for value in events]
        try:
            decided = self._store.known([batch.key for batch in batches])
            for gate in dict.fromkeys(batch.gate for batch in batches):
                if gate in self._gates:
                    continue
                if not self._store.policies.versions([gate]):
                    self._gates[gate] = None
                    self.unknown_gates.append(gate)
                    warn(_no_such_gate(gate, ""))
                    continue
                settings = self._store.gates.get(gate).settings
                self._gates[gate] = settings.severity_kind
                if settings.unit == "claim" and labels:
                    warn(f"{gate!r} counts labels of claims, and these are of whole answers: label its queue")
        except StreamerError:
            self._store, self.readable = None, False
            return [False] * len(events)
        refused = []
        for batch in batches:
            content = content_hash(batch)
            before = decided.get(batch.key, self._seen.get(batch.key))
            self._seen.setdefault(batch.key, content)
            if before is not None:
                self.repeats += 1
            # erased content compares with nothing
            refused.append(before not in (None, content, b""))
        self.conflicts += sum(refused)
        for gate, kind in dict.fromkeys((one.gate, one.kind) for one in (decode_label(v) for v in labels)):
            wanted = self._gates.get(gate)
            if wanted not in (None, kind) and (gate, kind) not in self._warned:
                self._warned.add((gate, kind))
                warn(_of_other_kind(gate, str(wanted), kind))
        return refused

    def kind_of(self, gate: str | None) -> str | None:
        """Return the kind of severities that controls a gate; None where the record does not say."""
        try:
            found = None if self._store is None or gate is None else self._store.gates.get(gate)
        except StreamerError:
            return None
        return None if found is None else found.settings.severity_kind


@contextmanager
def asking(settings: Settings, limits: Limits) -> Iterator[WhatIsKnown]:
    """Look up in the record what is to be published; a publisher need not be able to read it."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(wiring.open_store(settings))
        except StreamerError:
            store = None
        yield WhatIsKnown(store, limits)


def check_simulated(settings: Settings, gate: str, *, kind: str, into_real_gate: bool) -> None:
    """Raise `UsageError` when a gate has batches or labels that no simulation made, unless they may be there; say that it does
    not exist, or that labels of `kind` do not control it. Nothing is done where the record cannot be read from here.
    """
    try:
        with wiring.open_store(settings) as store:
            real = store.reports.has_others_than(gate, batch_prefix=QUESTION_ID_PREFIX)
            found = store.gates.get(gate).settings if store.policies.versions([gate]) else None
    except StreamerError:
        return
    if real and not into_real_gate:
        raise UsageError(
            f"the gate {gate!r} has batches or labels that no simulation made, and made-up labels would move its threshold; "
            "create another gate for the simulation (streamer gate create NAME --severity-kind simulated), or say "
            "--into-real-gate"
        )
    if found is None:
        warn(_no_such_gate(gate, f" --severity-kind {kind}"))
    elif found.severity_kind != kind:
        warn(_of_other_kind(gate, found.severity_kind, kind))


def _no_such_gate(gate: str, options: str) -> str:
    return (
        f"there is no gate {gate!r} in the database that is configured here: workers refuse its batches (unknown_gate) "
        f"until there is; streamer gate create {gate}{options}"
    )


def _of_other_kind(gate: str, wanted: str, kind: str) -> str:
    return (
        f"gate {gate!r} is controlled by severities of the kind {wanted!r}: those of the kind {kind!r} are recorded and do not "
        f"count; streamer gate create NAME --severity-kind {kind} makes one where they do"
    )


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
