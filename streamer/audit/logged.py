"""`audit verify --log`: the record against what the topics still hold, so far as their retention goes.

The topics are kept by other hands than the tables: what a row says of an event that is still there cannot be changed alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from streamer.audit.verification import UNREADABLE, Fault
from streamer.errors import BadMessage, UsageError
from streamer.events.actions import decode_action
from streamer.events.desk import DeskV1, decode_desk
from streamer.events.labels import decode_label, label_revision
from streamer.events.limits import Limits
from streamer.events.outgoing import TRUNCATED, Truncation
from streamer.events.receipts import without_receipt
from streamer.events.responses import content_hash, decode_responses
from streamer.gates.batch_key import BatchKey
from streamer.journal import Headers, OutboxMessage, Partition, RecordedOutcome

if TYPE_CHECKING:
    from streamer.events.topics import Topics

    RecordedDesk = tuple[DeskV1, bytes | None, str | None]
    """What became of a batch at the desk, its text None once erased; the key of its message; its receipt."""

_AT_ONCE = 500
_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Of one partition; a query is due after so many records, or bytes of their values."""

_MOST_FAULTS = 1_000

_BOUNDLESS = Limits(max_responses=2**31, max_text_bytes=2**31, max_value_bytes=2**31, max_dimension=2**31)
"""An event was decided within the limits of its time, which may have been wider than today's."""

_CLOCKS_APART = timedelta(minutes=1)
"""How far the database's clock may be from a publisher's."""

R = TypeVar("R")


class Rows(Protocol):
    """The record at one moment."""

    def ends(self, log_id: str) -> dict[tuple[str, int], int]:
        """The next offset of each partition of a log that was ever read, by topic and number."""

    def topic_id(self, log_id: str, topic: str) -> str | None:
        """The broker's id of a topic when it was read; None where it gave none."""

    def gaps(self, partition: Partition) -> list[tuple[int, int]]:
        """The offsets that are recorded as lost: first, and one past the last."""

    def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
        """The outcomes of the offsets from `first` to `end` - 1."""

    def actions(self, keys: Collection[BatchKey]) -> dict[BatchKey, OutboxMessage]:
        """The actions of those of these batches that are decided, with their receipts."""

    def published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        """Yield the batches whose action was sent to a topic, of decisions about a log's records, later than `since`."""

    def desk(self, keys: Collection[BatchKey]) -> Mapping[BatchKey, RecordedDesk]:
        """What became of those of these batches that a person, or the deadline, decided about at the desk."""

    def desk_published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        """Yield the batches, of a log's records, whose outcome at the desk was sent to a topic later than `since`.

        In the order of the record.
        """


class LogRecord(Protocol):
    """A record of a topic."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp_ms(self) -> int: ...


class Log(Protocol):
    """The topics."""

    @property
    def id(self) -> str:
        """The name by which the record knows them."""

    def topic_id(self, topic: str) -> str | None:
        """The broker's id of a topic, which a recreated one does not keep; None where it gives none."""

    def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Earliest and end offset of each partition; empty for a topic that does not exist."""

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[LogRecord]:
        """Yield what is committed, in order within a partition, up to these end offsets."""


@dataclass(slots=True)
class LogReport:
    """What a comparison found; as `streamer.audit.verification.VerificationReport`."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fault(self, place: str, detail: str) -> None:
        """Note something that does not fit."""
        self.counts["faults"] += 1
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(Fault("log", place, detail))

    def add(self, other: LogReport) -> None:
        """Take what another comparison found."""
        self.faults += other.faults[: _MOST_FAULTS - len(self.faults)]
        self.notes += other.notes
        self.counts.update(other.counts)


def compare_with_log(
    opened: Callable[[], AbstractContextManager[Rows]], log: Log, *, topics: Topics
) -> LogReport:
    """Compare the record, which `opened` opens at the present moment, with `responses`, `labels`, `actions` and `desk`.

    Raises `Unavailable` or `UsageError` when a topic or the database cannot be read.
    """
    report = LogReport()
    before = {topic: log.bounds(topic) for topic in (topics.actions, topics.desk)}
    with opened() as rows:
        recorded = rows.ends(log.id)
        if not any(topic in (topics.responses, topics.labels) for topic, _ in recorded):
            report.notes.append(
                f"the record knows nothing of the log {log.id}: these topics were never read into this database"
            )
            return report
        try:
            for topic in (topics.responses, topics.labels):
                ends = {number: end for (name, number), end in recorded.items() if name == topic}
                report.add(_Inputs(rows, log, topic, labels=topic == topics.labels).compare(ends))
            _compare_published(log, report, topics.actions, _actions(rows, report), before)
            _compare_published(log, report, topics.desk, _at_the_desk(rows, report), before)
        except UsageError:
            raise  # of the topics: the broker does not let us read one
        except UNREADABLE as error:
            report.fault("the record", f"a row cannot be read: {type(error).__name__}: {error}")
            report.notes.append("whatever of the topics follows the row that cannot be read")
    return report


class _Inputs:
    """One topic of events, compared with the outcomes of its offsets."""

    def __init__(self, rows: Rows, log: Log, topic: str, *, labels: bool) -> None:
        self._rows, self._log, self._topic = rows, log, topic
        self._labels = labels
        self._report, self._agreed = LogReport(), 0

    def compare(self, recorded: Mapping[int, int]) -> LogReport:
        """Compare every partition up to where the record has come, which `recorded` says."""
        self._compare(recorded)
        read, there = self._rows.topic_id(self._log.id, self._topic), self._log.topic_id(self._topic)
        if read is None or there is None or read == there:
            return self._report
        if 2 * self._agreed <= self._report.counts["events compared with the log"]:
            another = f"{self._topic}: it was deleted and recreated, and is another topic than the one that was read"
            return LogReport(notes=[another])
        # The id on record is in no log. Whoever changes it must not keep the events from being compared.
        id_alone = f"{self._topic}: the broker's id of it is not the one on record, and its events are"
        self._report.notes.append(id_alone)
        return self._report

    def _compare(self, recorded: Mapping[int, int]) -> None:
        bounds = self._log.bounds(self._topic)
        reached = {number: first for number, (first, _) in bounds.items()}
        waiting: dict[int, list[LogRecord]] = {number: [] for number in bounds}
        sizes = dict.fromkeys(bounds, 0)
        for record in self._log.read(self._topic, {number: end for number, (_, end) in bounds.items()}):
            if record.offset >= recorded.get(record.partition, 0):
                self._report.counts["events not decided yet"] += 1
                continue
            number = record.partition
            waiting[number].append(record)
            sizes[number] += len(record.value or b"")
            if len(waiting[number]) == _AT_ONCE or sizes[number] >= _BYTES_AT_ONCE:
                some, waiting[number], sizes[number] = waiting[number], [], 0
                self._range(number, some, reached[number], record.offset + 1)
                reached[number] = record.offset + 1
        there = [(number, end) for number, end in sorted(recorded.items()) if number in bounds]
        for number, end in there:
            self._range(number, waiting[number], reached[number], end)
            if end > (last := bounds[number][1]):
                beyond = f"the record has come to offset {end}, and the topic ends at {last}"
                self._report.fault(f"{self._topic}[{number}]", beyond)
        kept = self._log.bounds(self._topic)  # retention goes on while it is read
        for number, _ in there:
            if (first := kept.get(number, (0, 0))[0]) > 0:
                gone = f"{self._topic}[{number}] before offset {first}: the topic does not keep it any more"
                self._report.notes.append(gone)
        for number, end in sorted(recorded.items()):
            if number not in bounds and end > 0:
                nowhere = "the record has outcomes, and there is no such partition"
                self._report.fault(f"{self._topic}[{number}]", nowhere)

    def _range(self, number: int, records: Sequence[LogRecord], first: int, end: int) -> None:
        """Compare the offsets from `first` to `end` - 1."""
        partition = Partition(self._log.id, self._topic, number)
        found = self._rows.outcomes(partition, first, end)
        gaps = self._rows.gaps(partition) if len(found) < len(records) else []
        for record in records:
            place = f"{self._topic}[{number}], offset {record.offset}"
            outcome = found.pop(record.offset, None)
            self._report.counts["events compared with the log"] += 1
            if outcome is None:
                wrong = "the topic has an event here, and the record has no outcome"
                if any(start <= record.offset < stop for start, stop in gaps):
                    wrong = "it is recorded as lost, and the topic has it"
                self._report.fault(place, wrong)
            elif (said := self._contradiction(record, outcome)) is not None:
                self._report.fault(place, said)
            else:
                self._agreed += 1
        # Retention goes on while the topic is read.
        kept_from = self._log.bounds(self._topic).get(number, (0, 0))[0] if found else 0
        for offset, outcome in sorted(found.items()):
            if offset >= kept_from:
                nothing = f"the record has a {outcome.kind}, and the topic has no event here"
                self._report.fault(f"{self._topic}[{number}], offset {offset}", nothing)

    def _contradiction(self, record: LogRecord, outcome: RecordedOutcome) -> str | None:
        """Say how a recorded outcome contradicts its event; None where it does not."""
        if outcome.kind == "dead_letter":
            if self._is_readable(record):
                self._report.counts["refused events that can be read"] += 1
            cut = outcome.refused_headers and outcome.refused_headers[-1][0] == TRUNCATED
            if outcome.refused is None or cut:
                self._report.counts["refused events that are not kept whole"] += 1
                return None
            return None if outcome.refused == record.value else "it was refused, and other bytes are recorded"
        if (outcome.kind == "label") != self._labels:
            return f"the record has a {outcome.kind} of an event of this topic"
        if record.headers and isinstance(record.headers[-1], Truncation):
            self._report.counts["events too large to be read whole"] += 1
            return None
        try:
            if outcome.kind == "label":
                return self._of_label(record, outcome)
            return self._of_batch(record, outcome)
        except BadMessage as bad:
            return f"the record has a {outcome.kind}, and the event cannot be decoded: {bad.detail}"

    def _is_readable(self, record: LogRecord) -> bool:
        """Whether an event is one that a worker can take: why it was refused then is on record, and nobody can check it."""
        try:
            (decode_label if self._labels else decode_responses)(record.value, _BOUNDLESS)
        except BadMessage:
            return False
        return True

    def _of_label(self, record: LogRecord, outcome: RecordedOutcome) -> str | None:
        said = label_revision(decode_label(record.value, _BOUNDLESS))
        event = (
            *said.key, said.response_id, said.kind, said.labeller, said.severity, said.labelled_at,
            said.signature, said.key_id,
        )  # fmt: skip
        if outcome.label == event:
            return None
        told, recorded = (", ".join(map(str, one)) for one in (event, outcome.label or ("nothing",)))
        return f"the label is {told}; recorded is {recorded}"

    def _of_batch(self, record: LogRecord, outcome: RecordedOutcome) -> str | None:
        event = decode_responses(record.value, _BOUNDLESS)
        if outcome.key != event.key:
            return f"the event is batch {event.key}, and {outcome.key} is recorded"
        if outcome.content_hash is None:
            self._report.counts["events whose content was erased"] += 1
            return None
        same = content_hash(event) == outcome.content_hash
        if same and outcome.kind == "conflict":
            return "its content is the one that was decided about, and a conflict is recorded"
        return (
            None
            if same or outcome.kind == "conflict"
            else f"a {outcome.kind} about other content is recorded"
        )


@dataclass(frozen=True)
class _Published(Generic[R]):
    """Messages that the record has caused, one about a batch; `R` is what it has of one.

    In words, such a message, several, and what is on record for it, are `one`, `many`, `recorded_as`. `key_of` says which batch
    a message is about, or raises `BadMessage`, `ValueError` or `TypeError`; `on_record` what the record has of batches, and
    `differs` how a message contradicts that, in words. `published` has the batches whose message the broker must have, in the
    order of the record; from the log's id, the topic, and the moment since which it has them.
    """

    one: str
    many: str
    recorded_as: str
    key_of: Callable[[bytes | None], BatchKey]
    on_record: Callable[[Collection[BatchKey]], Mapping[BatchKey, R]]
    differs: Callable[[LogRecord, R], str | None]
    published: Callable[[str, str, datetime | None], Iterator[BatchKey]]


def _actions(rows: Rows, report: LogReport) -> _Published[OutboxMessage]:
    def key_of(value: bytes | None) -> BatchKey:
        event = decode_action(value)
        return BatchKey(event.gate, event.batch_id, event.attempt)

    def differs(record: LogRecord, recorded: OutboxMessage) -> str | None:
        own, link = without_receipt(recorded.headers)
        headers, given = without_receipt(record.headers)
        report.counts["receipts compared with the log"] += given is not None
        if recorded.value is None:
            report.counts["actions that are not kept"] += 1
        elif (recorded.key, recorded.value, own) != (record.key, record.value, headers):
            return "is another one than on record"
        return None if given in (None, link) else "has a receipt of another leaf than the record's"

    return _Published("action", "actions", "decision", key_of, rows.actions, differs, rows.published)


def _at_the_desk(rows: Rows, report: LogReport) -> _Published[RecordedDesk]:
    def key_of(value: bytes | None) -> BatchKey:
        event = decode_desk(value, _BOUNDLESS)
        return BatchKey(event.gate, event.batch_id, event.attempt)

    def differs(record: LogRecord, recorded: RecordedDesk) -> str | None:
        said, (event, key, link) = decode_desk(record.value, _BOUNDLESS), recorded
        _, given = without_receipt(record.headers)
        report.counts["receipts compared with the log"] += given is not None
        if event.text is None and said.text is not None:
            report.counts["released texts that are not kept"] += 1
            said = msgspec.structs.replace(said, text=None)
        if (key, event) != (record.key, said):
            return "is another one than on record"
        same = given is None or (link is not None and given == link.encode())
        return None if same else "has a receipt of another leaf than the record's"

    what = "outcome at the desk"
    return _Published(what, "outcomes at the desk", what, key_of, rows.desk, differs, rows.desk_published)


Bounds = Mapping[str, Mapping[int, tuple[int, int]]]


def _compare_published(log: Log, report: LogReport, topic: str, kind: _Published[R], before: Bounds) -> None:
    """Compare what was published with what is recorded, both ways.

    What is on the topic at `before`, bounds that were read before the record was opened, must be recorded.
    """
    bounds, due = log.bounds(topic), before[topic]
    seen: set[BatchKey] = set()
    oldest: dict[int, int] = {}
    waiting: list[tuple[LogRecord, BatchKey]] = []

    def compare() -> None:
        found = kind.on_record({key for _, key in waiting})
        for record, key in waiting:
            place = f"{topic}[{record.partition}], offset {record.offset}"
            if key not in found:
                if record.offset < due.get(record.partition, (0, 0))[1]:
                    nothing = f"and no {kind.recorded_as} is recorded"
                    report.fault(place, f"an {kind.one} about batch {key} was published, {nothing}")
                continue
            seen.add(key)
            if (wrong := kind.differs(record, found[key])) is not None:
                report.fault(place, f"the {kind.one} about batch {key} that was published {wrong}")
        waiting.clear()

    for record in log.read(topic, {number: end for number, (_, end) in bounds.items()}):
        report.counts[f"{kind.many} compared with the log"] += 1
        oldest.setdefault(record.partition, record.timestamp_ms)
        try:
            waiting.append((record, kind.key_of(record.value)))
        except (BadMessage, ValueError, TypeError):
            report.fault(f"{topic}[{record.partition}], offset {record.offset}", f"this is no {kind.one}")
        if len(waiting) == _AT_ONCE:
            compare()
    compare()
    bounds = log.bounds(topic)  # retention goes on while we read
    cut = [number for number, (first, _) in bounds.items() if first > 0]
    if any(number not in oldest for number in cut):
        report.notes.append(f"whether all {kind.many} were published: a partition of {topic} keeps none")
        return
    since = None
    if cut:
        newest = max(oldest[number] for number in cut) / 1000
        since = datetime.fromtimestamp(newest, UTC) + _CLOCKS_APART
        until = f"{since:%Y-%m-%d %H:%M:%S} UTC"
        report.notes.append(f"whether {kind.many} were published before {until}: {topic} does not keep them")
    begun, older = bool(cut), 0
    for key in kind.published(log.id, topic, since):
        if key in seen:
            begun = True
        elif begun:
            decided = f"batch {key} is decided and nothing waits to be published"
            report.fault(topic, f"{decided}, and its {kind.one} is not there")
        else:
            older += 1
    if older:
        # A topic that was recreated begins at 0 again, and no id of it is on record.
        report.notes.append(
            f"whether {older} {kind.many} were published: they are older than all that {topic} has, which was deleted and"
            " recreated or never had them"
        )
