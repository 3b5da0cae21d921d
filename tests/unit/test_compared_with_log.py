"""`audit verify --log` on a record and topics that are made up: what is honest is told of and is no fault."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streamer.events
from streamer.audit import logged
from streamer.audit.logged import LogReport, compare_with_log
from streamer.events.codec import encode
from streamer.events.desk import DeskV1, decode_desk
from streamer.events.limits import Limits
from streamer.events.outgoing import TRUNCATED, Truncation
from streamer.events.receipts import RECEIPT_HEADER
from streamer.events.responses import content_hash, decode_responses
from streamer.events.topics import Topics
from streamer.gates.batch_key import BatchKey
from streamer.journal import OutboxMessage, Partition, RecordedOutcome
from streamer.stream.tail import TailedRecord
from tests.made import an_event

TOPICS = Topics()
WIDE = Limits(max_responses=1000)


def event(number: int, responses: int = 2) -> bytes:
    return json.dumps(an_event("g", f"b{number}", ["t"] * responses)).encode()


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
    asked: list[int] = field(default_factory=list)
    further: int = 0
    sent: dict[BatchKey, OutboxMessage] = field(default_factory=dict)
    desk_: dict[BatchKey, Any] = field(default_factory=dict)

    def ends(self, log_id: str) -> dict[tuple[str, int], int]:
        return {(TOPICS.responses, 0): max(self.outcomes_) + 1 + self.further}

    def topic_id(self, log_id: str, topic: str) -> str | None:
        return self.ids.get(topic)

    def gaps(self, partition: Partition) -> list[tuple[int, int]]:
        return []

    def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
        self.asked.append(end)
        return {offset: one for offset, one in self.outcomes_.items() if first <= offset < end}

    def actions(self, keys: Collection[BatchKey]) -> dict[BatchKey, OutboxMessage]:
        return {key: one for key, one in self.sent.items() if key in keys}

    def published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        yield from self.sent

    def desk(self, keys: Collection[BatchKey]) -> Mapping[BatchKey, Any]:
        return {key: one for key, one in self.desk_.items() if key in keys}

    def desk_published(self, log_id: str, topic: str, since: datetime | None) -> Iterator[BatchKey]:
        yield from self.desk_


def topics(*values: bytes | None, **of: Any) -> dict[str, Topic]:
    return defaultdict(lambda: Topic([]), {TOPICS.responses: Topic(list(values), **of)})


def compare(rows: MadeUpRows, log: MadeUpLog) -> LogReport:
    return compare_with_log(lambda: nullcontext(rows), log, topics=TOPICS)


def test_what_retention_removes_meanwhile_is_not_missed():
    values = [event(number) for number in range(20)]
    rows = MadeUpRows({number: decided(value) for number, value in enumerate(values)})
    report = compare(rows, MadeUpLog(topics(*values), retention=3))
    assert report.faults == []
    assert any("before offset" in note for note in report.notes)


def test_a_recreated_topic_is_another_one():
    rows = MadeUpRows({0: decided(event(0))}, ids={TOPICS.responses: "old"})
    report = compare(rows, MadeUpLog(topics(event(7), id="new")))
    assert report.faults == []
    assert any("deleted and recreated" in note for note in report.notes)
    report = compare(rows, MadeUpLog(topics(event(7), id="old")))
    assert report.faults, "the same topic has another event there"


def test_an_event_within_the_limits_of_its_time_needs_no_room_in_those_of_today():
    value = event(0, responses=300)
    assert compare(MadeUpRows({0: decided(value)}), MadeUpLog(topics(value))).faults == []


def test_an_event_of_which_an_excerpt_was_read_is_counted():
    cut = (Truncation(TRUNCATED, b"value: 9 bytes"),)
    report = compare(MadeUpRows({0: decided(event(0))}), MadeUpLog(topics(b"{", headers=cut)))
    assert report.faults == []
    assert report.counts["events too large to be read whole"] == 1
    said = ((TRUNCATED, b"by the publisher"),)
    report = compare(MadeUpRows({0: decided(event(0))}), MadeUpLog(topics(event(1), headers=said)))
    assert report.faults, "an event that was read whole is compared, whatever its publisher says"


def test_a_refused_event_that_can_be_read_is_counted():
    refused = {
        number: replace(decided(event(0)), kind="dead_letter", code="internal_error", refused=value)
        for number, value in enumerate((event(0), b"{", None))
    }
    log = MadeUpLog(topics(event(0), b"{", event(2)))
    report = compare(MadeUpRows(refused), log)
    assert report.faults == []
    assert report.counts["refused events that can be read"] == 2, "whatever bytes are kept of them"


def test_a_row_that_cannot_be_read_is_a_fault():
    class Broken(MadeUpRows):
        def outcomes(self, partition: Partition, first: int, end: int) -> dict[int, RecordedOutcome]:
            raise ValueError("headers are no list")

    report = compare(Broken({0: decided(event(0))}), MadeUpLog(topics(event(0))))
    wanted = ["a row cannot be read: ValueError: headers are no list"]
    assert [fault.detail for fault in report.faults] == wanted
    assert report.notes


def test_large_events_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch):
    values = [event(number) for number in range(20)]
    monkeypatch.setattr(logged, "_BYTES_AT_ONCE", 3 * len(values[0]))
    rows = MadeUpRows({number: decided(value) for number, value in enumerate(values)})
    assert compare(rows, MadeUpLog(topics(*values))).faults == []
    assert rows.asked[:3] == [3, 6, 9]


EXAMPLE = json.loads(
    (Path(streamer.events.__file__).parent / "examples" / "actions" / "v1" / "best_shipped.json").read_text()
)


def action(number: int) -> tuple[BatchKey, OutboxMessage]:
    """What was decided about a batch."""
    value = json.dumps(EXAMPLE | {"gate": "g", "batch_id": f"b{number}", "attempt": 1}).encode()
    return BatchKey("g", f"b{number}", 1), OutboxMessage(TOPICS.actions, None, value, ())


def test_actions_of_before_their_topic_was_recreated_are_told_of():
    rows = MadeUpRows({0: decided(event(0))}, sent=dict(action(number) for number in range(5)))
    sent = [one.value for one in rows.sent.values()]
    log = topics(event(0))
    log[TOPICS.actions] = Topic(sent[3:])
    report = compare(rows, MadeUpLog(log))
    assert report.faults == []
    assert any("whether 3 actions were published" in note for note in report.notes)
    log[TOPICS.actions] = Topic([])
    report = compare(rows, MadeUpLog(log))
    assert report.faults == []
    assert any("whether 5 actions were published" in note for note in report.notes)
    for left_out in (2, 4):
        log[TOPICS.actions] = Topic(sent[1:left_out] + sent[left_out + 1 :])
        report = compare(rows, MadeUpLog(log))
        assert [f"'b{left_out}'" in fault.detail for fault in report.faults] == [True]
        assert any("whether 1 actions were published" in note for note in report.notes)


def test_another_id_of_the_topic_keeps_no_event_from_being_compared():
    values = [event(number) for number in range(5)]
    outcomes = {number: decided(value) for number, value in enumerate(values)}
    rows = MadeUpRows(outcomes, ids={TOPICS.responses: "somebody wrote this"})
    report = compare(rows, MadeUpLog(topics(*values, id="its own")))
    assert report.faults == []
    assert any("is not the one on record" in note for note in report.notes)
    rows.outcomes_[2] = decided(event(7))
    report = compare(rows, MadeUpLog(topics(*values, id="its own")))
    assert [fault.place for fault in report.faults] == [f"{TOPICS.responses}[0], offset 2"]


def test_the_record_has_not_come_further_than_the_topic():
    values = [event(number) for number in range(3)]
    rows = MadeUpRows({number: decided(value) for number, value in enumerate(values)}, further=1)
    report = compare(rows, MadeUpLog(topics(*values)))
    wanted = ["the record has come to offset 4, and the topic ends at 3"]
    assert [fault.detail for fault in report.faults] == wanted


def told(number: int, **changes: Any) -> DeskV1:
    """What became of a batch at the desk."""
    said = {
        "schema": "streamer.desk.v1", "desk_id": f"d{number}", "action_id": f"a{number}", "gate": "g",
        "batch_id": f"b{number}", "attempt": 1, "action": "released", "reason": "person", "selected": "r0", "text": "t",
        "by": "ana", "remark": "", "until": "2026-01-01T01:00:00Z", "decided_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return decode_desk(json.dumps(said | changes).encode())


def at_the_desk(recorded: list[DeskV1], published: list[DeskV1], receipt: bytes = b"[1]") -> LogReport:
    rows = MadeUpRows(
        {0: decided(event(0))}, desk_={BatchKey("g", one.batch_id, 1): (one, None, "[1]") for one in recorded}
    )
    log = topics(event(0))
    log[TOPICS.desk] = Topic([encode(one) for one in published], headers=((RECEIPT_HEADER, receipt),))
    return compare(rows, MadeUpLog(log))


def test_outcomes_at_the_desk_are_compared_both_ways():
    honest = [told(number) for number in range(3)]
    report = at_the_desk(honest, honest)
    assert (report.faults, report.notes) == ([], [])
    assert report.counts["outcomes at the desk compared with the log"] == 3
    assert report.counts["receipts compared with the log"] == 3
    for recorded, published, detail in (
        (honest, honest[:2], "its outcome at the desk is not there"),
        (honest[:2], honest, "no outcome at the desk is recorded"),
        ([*honest[:2], told(2, by="ben")], honest, "is another one than on record"),
        ([*honest[:2], told(2, text="other")], honest, "is another one than on record"),
    ):
        report = at_the_desk(recorded, published)
        found = [detail in fault.detail and "'b2'" in fault.detail for fault in report.faults]
        assert found == [True], detail
    report = at_the_desk(honest, honest, receipt=b"[2]")
    assert ["another leaf" in fault.detail for fault in report.faults] == [True] * 3


def test_a_released_text_that_is_erased_is_compared_no_more():
    report = at_the_desk([msgspec.structs.replace(told(0), text=None)], [told(0)])
    assert report.faults == []
    assert report.counts["released texts that are not kept"] == 1


def test_what_is_no_event_of_the_desk_is_named():
    log = topics(event(0))
    log[TOPICS.desk] = Topic([b"{}"])
    report = compare(MadeUpRows({0: decided(event(0))}), MadeUpLog(log))
    assert [fault.detail for fault in report.faults] == ["this is no outcome at the desk"]
