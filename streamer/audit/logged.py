"""`audit verify --log`: the record against what the topics still hold, so far as their retention goes.

The topics are kept by other hands than the tables: what a row says of an event that is still there cannot be changed alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from streamer.audit.verification import UNREADABLE, Fault
from streamer.errors import BadMessage, UsageError
from streamer.events.actions import decode_action
from streamer.events.labels import decode_label, label_revision
from streamer.events.limits import Limits
from streamer.events.oversize import TRUNCATED, Truncation
from streamer.events.receipts import without_receipt
from streamer.events.responses import content_hash, decode_responses
from streamer.gates.batch_key import BatchKey
from streamer.journal import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from streamer.events.topics import Topics
    from streamer.journal import Headers, OutboxMessage, RecordedOutcome

_AT_ONCE = 500
_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Of one partition; a query is due after so many records, or bytes of their values."""

_MOST_FAULTS = 1_000

_BOUNDLESS = Limits(max_responses=2**31, max_text_bytes=2**31, max_value_bytes=2**31, max_dimension=2**31)
"""An event was decided within the limits of its time, which may have been wider than today's."""

_CLOCKS_APART = timedelta(minutes=1)
"""How far the database's clock may be from a publisher's."""


class Rows(Protocol):
    """The record at one moment."""

    def ends(self, log_id: str) -> dict[tuple[str, int], int]:
        """The next offset of each partition of a log that was ever read, by topic and number."""
        ...

    def topic_id(self, log_id: str, topic: str) -> str | None:
        """The broker's id of a topic when it was read; None where it gave none."""
        ...

    def gaps(self, partition: Partition) -> list[tuple[int, int]]:
        """The offsets that are recorded as lost: first, and one past the last."""
        ...

    def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
        """The outcomes of the offsets from `first` to `end` - 1."""
        ...

    def actions(self, keys: Collection[BatchKey]) -> dict[BatchKey, OutboxMessage]:
        """The actions of those of these batches that are decided, with their receipts."""
        ...

    def published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        """Yield the batches whose action was sent to a topic, of decisions about a log's records, later than `since`."""
        ...

    def left_in_outbox(self) -> bool:
        """Whether the outbox of an earlier version still has messages; which actions these are is not on record."""
        ...


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
        ...

    def topic_id(self, topic: str) -> str | None:
        """The broker's id of a topic, which a recreated one does not keep; None where it gives none."""
        ...

    def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Earliest and end offset of each partition; empty for a topic that does not exist."""
        ...

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[LogRecord]:
        """Yield what is committed, in order within a partition, up to these end offsets."""
        ...


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


def compare_with_log(
    opened: Callable[[], AbstractContextManager[Rows]], log: Log, *, topics: Topics
) -> LogReport:
    """Compare the record with the topics `responses`, `labels` and `actions`.

    Parameters
    ----------
    opened : opens the record at the present moment.

    Raises
    ------
    Unavailable, UsageError
        When a topic or the database cannot be read.
    """
    report = LogReport()
    before = log.bounds(topics.actions)
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
                _Inputs(rows, log, report, topic, labels=topic == topics.labels).compare(ends)
            _actions(rows, log, report, topics.actions, before)
        except UsageError:
            raise  # of the topics: the broker does not let us read one
        except UNREADABLE as error:
            report.fault("the record", f"a row cannot be read: {type(error).__name__}: {error}")
            report.notes.append("whatever of the topics follows the row that cannot be read")
    return report


class _Inputs:
    """One topic of events, compared with the outcomes of its offsets."""

    def __init__(self, rows: Rows, log: Log, report: LogReport, topic: str, *, labels: bool) -> None:
        self._rows, self._log, self._report, self._topic = rows, log, report, topic
        self._labels = labels

    def compare(self, recorded: Mapping[int, int]) -> None:
        """Compare every partition up to where the record has come, which `recorded` says."""
        read, there = self._rows.topic_id(self._log.id, self._topic), self._log.topic_id(self._topic)
        if read is not None and there is not None and read != there:
            self._report.notes.append(
                f"{self._topic}: it was deleted and recreated, and is another topic than the one that was read"
            )
            return
        bounds = self._log.bounds(self._topic)
        reached = {number: first for number, (first, _) in bounds.items()}
        waiting: dict[int, list[LogRecord]] = {number: [] for number in bounds}
        sizes = dict.fromkeys(bounds, 0)
        for record in self._log.read(self._topic, {number: end for number, (_, end) in bounds.items()}):
            if record.offset >= recorded.get(record.partition, 0):
                self._report.counts["events not decided yet"] += 1
                continue
            waiting[record.partition].append(record)
            sizes[record.partition] += len(record.value or b"")
            if len(waiting[record.partition]) == _AT_ONCE or sizes[record.partition] >= _BYTES_AT_ONCE:
                sizes[record.partition] = 0
                some, waiting[record.partition] = waiting[record.partition], []
                self._range(record.partition, some, reached[record.partition], record.offset + 1)
                reached[record.partition] = record.offset + 1
        for number, end in sorted(recorded.items()):
            if number in bounds:
                self._range(number, waiting[number], reached[number], end)
        kept = self._log.bounds(self._topic)  # retention goes on while it is read
        for number, end in sorted(recorded.items()):
            if number in bounds:
                if (first := kept.get(number, (0, 0))[0]) > 0:
                    self._report.notes.append(
                        f"{self._topic}[{number}] before offset {first}: the topic does not keep it any more"
                    )
            elif end > 0:
                self._report.fault(
                    f"{self._topic}[{number}]", "the record has outcomes, and there is no such partition"
                )

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
                lost = any(start <= record.offset < stop for start, stop in gaps)
                self._report.fault(
                    place,
                    "it is recorded as lost, and the topic has it"
                    if lost
                    else "the topic has an event here, and the record has no outcome",
                )
            elif (wrong := self._contradiction(record, outcome)) is not None:
                self._report.fault(place, wrong)
        # Retention goes on while the topic is read.
        kept_from = self._log.bounds(self._topic).get(number, (0, 0))[0] if found else 0
        for offset, outcome in sorted(found.items()):
            if offset < kept_from:
                continue
            self._report.fault(
                f"{self._topic}[{number}], offset {offset}",
                f"the record has a {outcome.kind}, and the topic has no event here",
            )

    def _contradiction(self, record: LogRecord, outcome: RecordedOutcome) -> str | None:
        """Say how a recorded outcome contradicts its event; None where it does not."""
        if outcome.kind == "dead_letter":
            if outcome.refused is None or (
                outcome.refused_headers and outcome.refused_headers[-1][0] == TRUNCATED
            ):
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
        if same == (outcome.kind != "conflict"):
            return None
        return (
            "its content is the one that was decided about, and a conflict is recorded"
            if same
            else f"a {outcome.kind} about other content is recorded"
        )


def _actions(
    rows: Rows, log: Log, report: LogReport, topic: str, before: Mapping[int, tuple[int, int]]
) -> None:
    """Compare the actions that were published with those that are recorded.

    What is on the topic at `before`, bounds that were read before the record was opened, must be recorded.
    """
    bounds = log.bounds(topic)
    seen: set[BatchKey] = set()
    oldest: dict[int, int] = {}
    waiting: list[tuple[LogRecord, BatchKey]] = []

    def compare() -> None:
        found = rows.actions({key for _, key in waiting})
        for record, key in waiting:
            place = f"{topic}[{record.partition}], offset {record.offset}"
            recorded = found.get(key)
            if recorded is None:
                if record.offset < before.get(record.partition, (0, 0))[1]:
                    report.fault(
                        place, f"an action about batch {key} was published, and no decision is recorded"
                    )
                continue
            seen.add(key)
            own, link = without_receipt(recorded.headers)
            headers, given = without_receipt(record.headers)
            if recorded.value is None:
                report.counts["actions that are not kept"] += 1
            elif (recorded.key, recorded.value, own) != (record.key, record.value, headers):
                report.fault(place, f"another action about batch {key} was published than the one on record")
            elif given is not None and given != link:
                report.fault(
                    place, f"the action about batch {key} has a receipt of another link than the record's"
                )
            report.counts["receipts compared with the log"] += given is not None
        waiting.clear()

    for record in log.read(topic, {number: end for number, (_, end) in bounds.items()}):
        report.counts["actions compared with the log"] += 1
        oldest.setdefault(record.partition, record.timestamp_ms)
        try:
            event = decode_action(record.value)
        except (BadMessage, ValueError, TypeError):
            report.fault(f"{topic}[{record.partition}], offset {record.offset}", "this is no action event")
            continue
        waiting.append((record, BatchKey(event.gate, event.batch_id, event.attempt)))
        if len(waiting) == _AT_ONCE:
            compare()
    compare()
    if rows.left_in_outbox():
        report.notes.append(
            "whether every action was published: the outbox of an earlier version has messages left"
        )
        return
    bounds = log.bounds(topic)  # retention goes on while we read
    cut = [number for number, (first, _) in bounds.items() if first > 0]
    if any(number not in oldest for number in cut):
        report.notes.append(f"whether every action was published: a partition of {topic} keeps none")
        return
    since = None
    if cut:
        newest = max(oldest[number] for number in cut) / 1000
        since = datetime.fromtimestamp(newest, UTC) + _CLOCKS_APART
        report.notes.append(
            f"whether actions were published before {since:%Y-%m-%d %H:%M:%S} UTC: {topic} does not keep them"
        )
    for key in rows.published(log.id, topic, since):
        if key not in seen:
            report.fault(
                f"{topic}",
                f"batch {key} is decided and nothing waits to be published, and its action is not there",
            )
