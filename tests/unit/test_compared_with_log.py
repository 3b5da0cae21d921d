"""`audit verify --log` on a record and topics that are made up: what is honest is told of and is no fault."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamer.audit import logged
from streamer.audit.logged import compare_with_log
from streamer.events.limits import Limits
from streamer.events.oversize import TRUNCATED, Truncation
from streamer.events.responses import content_hash, decode_responses
from streamer.events.topics import Topics
from streamer.gates.batch_key import BatchKey
from streamer.journal import OutboxMessage, Partition, RecordedOutcome
from streamer.stream.tail import TailedRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    import pytest

    from streamer.audit.logged import LogReport

TOPICS = Topics()
WIDE = Limits(max_responses=1000)


def event(number: int, responses: int = 2) -> bytes:
    said = {
        "schema": "streamer.responses.v1", "gate": "g", "batch_id": f"b{number}", "prompt": "p",
        "responses": [{"id": f"r{one}", "text": "t"} for one in range(responses)],
    }  # fmt: skip
    return json.dumps(said).encode()


def decided(value: bytes) -> RecordedOutcome:
    read = decode_responses(value, WIDE)
    return RecordedOutcome(
        kind="decision", key=read.key, content_hash=content_hash(read, None), code=None, refused=None, refused_headers=(),
        label=None,
    )  # fmt: skip


@dataclass
class Topic:
    """A topic of one partition."""

    values: list[bytes | None]
    first: int = 0
    id: str | None = None
    headers: Any = ()


@dataclass
class MadeUpLog:
    """Topics; `retention` says how many offsets more are gone each time that bounds are asked for."""

    topics: dict[str, Topic]
    retention: int = 0
    id: str = "log"

    def topic_id(self, topic: str) -> str | None:
        return self.topics[topic].id

    def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        of = self.topics[topic]
        if topic == TOPICS.responses:
            of.first = min(len(of.values), of.first + self.retention)
        return {0: (of.first, len(of.values))}

    def read(self, topic: str, ends: Mapping[int, int]) -> Iterator[TailedRecord]:
        of = self.topics[topic]
        for offset in range(of.first + self.retention, ends.get(0, 0)):
            yield TailedRecord(topic, 0, offset, None, of.values[offset], of.headers, 0)


@dataclass
class MadeUpRows:
    """The outcomes of `responses`, by offset."""

    outcomes_: dict[int, RecordedOutcome]
    ids: dict[str, str] = field(default_factory=dict)
    left: bool = False
    asked: list[int] = field(default_factory=list)

    def ends(self, log_id: str) -> dict[tuple[str, int], int]:
        return {(TOPICS.responses, 0): max(self.outcomes_) + 1}

    def topic_id(self, log_id: str, topic: str) -> str | None:
        return self.ids.get(topic)

    def gaps(self, partition: Partition) -> list[tuple[int, int]]:
        return []

    def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
        self.asked.append(end)
        return {offset: one for offset, one in self.outcomes_.items() if first <= offset < end}

    def actions(self, keys: Collection[BatchKey]) -> dict[BatchKey, OutboxMessage]:
        return {}

    def published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        yield from [BatchKey("g", "b0", 1)] if self.left else []

    def left_in_outbox(self) -> bool:
        return self.left


def topics(*values: bytes | None, **of: Any) -> dict[str, Topic]:
    return defaultdict(lambda: Topic([]), {TOPICS.responses: Topic(list(values), **of)})


def compare(rows: MadeUpRows, log: MadeUpLog) -> LogReport:
    return compare_with_log(lambda: nullcontext(rows), log, topics=TOPICS)


def test_what_retention_removes_meanwhile_is_not_missed() -> None:
    values = [event(number) for number in range(20)]
    rows = MadeUpRows({number: decided(value) for number, value in enumerate(values)})
    report = compare(rows, MadeUpLog(topics(*values), retention=3))
    assert report.faults == []
    assert any("before offset" in note for note in report.notes)


def test_a_recreated_topic_is_another_one() -> None:
    rows = MadeUpRows({0: decided(event(0))}, ids={TOPICS.responses: "old"})
    report = compare(rows, MadeUpLog(topics(event(7), id="new")))
    assert report.faults == []
    assert any("deleted and recreated" in note for note in report.notes)
    report = compare(rows, MadeUpLog(topics(event(7), id="old")))
    assert report.faults, "the same topic has another event there"


def test_an_event_within_the_limits_of_its_time_needs_no_room_in_those_of_today() -> None:
    value = event(0, responses=300)
    report = compare(MadeUpRows({0: decided(value)}), MadeUpLog(topics(value)))
    assert report.faults == []


def test_an_event_of_which_an_excerpt_was_read_is_counted() -> None:
    cut = (Truncation(TRUNCATED, b"value: 9 bytes"),)
    report = compare(MadeUpRows({0: decided(event(0))}), MadeUpLog(topics(b"{", headers=cut)))
    assert report.faults == []
    assert report.counts["events too large to be read whole"] == 1
    said = ((TRUNCATED, b"by the publisher"),)
    report = compare(MadeUpRows({0: decided(event(0))}), MadeUpLog(topics(event(1), headers=said)))
    assert report.faults, "an event that was read whole is compared, whatever its publisher says"


def test_messages_left_by_an_earlier_version_are_told_of() -> None:
    report = compare(MadeUpRows({0: decided(event(0))}, left=True), MadeUpLog(topics(event(0))))
    assert report.faults == []
    assert any("outbox of an earlier version" in note for note in report.notes)


def test_a_row_that_cannot_be_read_is_a_fault() -> None:
    class Broken(MadeUpRows):
        def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
            raise ValueError("headers are no list")

    report = compare(Broken({0: decided(event(0))}), MadeUpLog(topics(event(0))))
    assert [fault.detail for fault in report.faults] == [
        "a row cannot be read: ValueError: headers are no list"
    ]
    assert report.notes


def test_large_events_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [event(number) for number in range(20)]
    monkeypatch.setattr(logged, "_BYTES_AT_ONCE", 3 * len(values[0]))
    rows = MadeUpRows({number: decided(value) for number, value in enumerate(values)})
    assert compare(rows, MadeUpLog(topics(*values))).faults == []
    assert rows.asked[:3] == [3, 6, 9]
