"""A journal in memory that keeps the promises of `streamer.journal.Journal`: leases, compare-and-set, outbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streamer.errors import Fenced, Unavailable
from streamer.gates.batch_key import BatchKey
from streamer.journal import (
    NO_IDS,
    BatchDecision,
    DataGap,
    DeadLetter,
    Lease,
    OutboxMessage,
    Outcome,
    OutcomeKind,
    Partition,
    Queued,
    Slice,
)


@dataclass
class _Row:
    source: Partition | None
    message: OutboxMessage
    published: bool = False
    parked: str | None = None


@dataclass
class MemoryJournal:
    """`before` is called with the name of each operation first, and may raise to play an outage."""

    before: Callable[[str], None] = lambda _operation: None
    after: Callable[[str], None] = lambda _operation: None
    progress: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    recorded: dict[Partition, list[tuple[int, OutcomeKind]]] = field(default_factory=dict)
    gaps: list[DataGap] = field(default_factory=list)
    outbox: dict[int, _Row] = field(default_factory=dict)
    decided: dict[BatchKey, bytes] = field(default_factory=dict)
    actions: dict[BatchKey, OutboxMessage] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def lease(
        self, partitions: Sequence[Partition], *, topic_ids: Mapping[str, str] = NO_IDS
    ) -> dict[Partition, Lease]:
        self.before("lease")
        with self._lock:
            leases = {}
            for one in partitions:
                epoch, next_offset = self.progress.get(one, (0, 0))
                self.progress[one] = (epoch + 1, next_offset)
                leases[one] = Lease(one, epoch + 1, next_offset)
            return leases

    def record_gap(self, lease: Lease, gap: DataGap) -> None:
        self.before("record_gap")
        with self._lock:
            repeated = gap in self.gaps and self.progress[gap.partition] == (lease.epoch, gap.to_offset)
            if not repeated:
                if self.progress[gap.partition] != (lease.epoch, gap.from_offset):
                    raise Fenced(f"{gap.partition} is at {self.progress[gap.partition]}")
                self.gaps.append(gap)
                self.progress[gap.partition] = (lease.epoch, gap.to_offset)
        self.after("record_gap")

    def commit(
        self, slices: Sequence[Slice], *, now: datetime, firm: bool = False, queued: Queued | None = None
    ) -> list[list[OutcomeKind]]:
        self.before("commit")
        rows = len(self.outbox)
        with self._lock:
            if all(self.progress[s.lease.partition] == (s.lease.epoch, s.next_offset) for s in slices):
                kinds: list[list[OutcomeKind]] = [
                    [kind for offset, kind in self.recorded[s.lease.partition] if offset >= s.expected_offset]
                    for s in slices
                ]
            else:
                for s in slices:
                    if self.progress[s.lease.partition] != (s.lease.epoch, s.expected_offset):
                        raise Fenced(f"{s.lease} found {self.progress[s.lease.partition]}")
                kinds = [[self._record(outcome) for outcome in s.outcomes] for s in slices]
                for s in slices:
                    self.progress[s.lease.partition] = (s.lease.epoch, s.next_offset)
        self.after("commit")
        if queued is not None:
            # Of a commit that was made before, and of one beside other writers, nothing is known: the relay reads.
            made = [row.message for number, row in self.outbox.items() if number > rows]
            queued(made if sum(map(len, kinds)) == len(made) else ())
        return kinds

    def _record(self, outcome: Outcome) -> OutcomeKind:
        record = outcome.record
        assert record is not None
        kind: OutcomeKind
        if isinstance(outcome, BatchDecision):
            known = self.decided.setdefault(outcome.key, outcome.content_hash)
            if outcome.key not in self.actions:
                kind = "decision"
                self.actions[outcome.key] = outcome.action
            else:
                kind = "duplicate" if known == outcome.content_hash else "conflict"
            self._enqueue(record.partition, self.actions[outcome.key])
        elif isinstance(outcome, DeadLetter):
            kind = "dead_letter"
            self._enqueue(record.partition, outcome.message)
        else:
            kind = "label"
        self.recorded.setdefault(record.partition, []).append((record.offset, kind))
        return kind

    def enqueue(self, message: OutboxMessage, source: Partition | None = None) -> int:
        with self._lock:
            return self._enqueue(source, message)

    def _enqueue(self, source: Partition | None, message: OutboxMessage) -> int:
        row = len(self.outbox) + 1
        self.outbox[row] = _Row(source, replace(message, id=row, queued=source is not None))
        return row

    def known(self, keys: Sequence[BatchKey]) -> dict[BatchKey, bytes]:
        with self._lock:
            return {key: self.decided[key] for key in keys if key in self.decided}

    def unpublished_topics(
        self, sources: Sequence[Partition], *, ownerless: timedelta | None = timedelta(0)
    ) -> list[str]:
        return sorted(
            {message.topic for message in self.unpublished(sources, limit=1_000_000, ownerless=ownerless)}
        )

    def unpublished(
        self,
        sources: Sequence[Partition],
        *,
        limit: int,
        ownerless: timedelta | None = timedelta(0),
        topic: str | None = None,
        after: int = 0,
        max_bytes: int | None = None,
    ) -> list[OutboxMessage]:
        self.before("unpublished")
        with self._lock:
            wanted: set[Partition | None] = {*sources}
            if ownerless is not None:  # its rows have no age: all have waited long enough
                wanted.add(None)
            rows = [
                row.message
                for row in self.outbox.values()
                if not row.published and row.parked is None and row.source in wanted
                if topic in (None, row.message.topic) and (row.source is None or row.message.id > after)
            ]
            return rows[:limit]

    def mark_published(self, messages: Sequence[OutboxMessage]) -> None:
        self.before("mark_published")
        with self._lock:
            for one in messages:
                self.outbox[one.id].published = True

    def park(self, message: OutboxMessage, error: str) -> None:
        self.before("park")
        with self._lock:
            self.outbox[message.id].parked = error

    # ---- what tests ask

    def offsets(self) -> dict[int, list[int]]:
        """Recorded offsets by partition number, in the order of their recording."""
        with self._lock:
            return {p.number: [offset for offset, _ in rows] for p, rows in self.recorded.items() if rows}

    def total(self) -> int:
        with self._lock:
            return sum(map(len, self.recorded.values()))

    def waiting(self) -> int:
        with self._lock:
            return sum(not row.published and row.parked is None for row in self.outbox.values())


class Outage:
    """Plays a database that is away while `on` is set, for the operations named (all when none)."""

    def __init__(self, *operations: str) -> None:
        self.on = False
        self.refused = 0
        self._operations = operations

    def __call__(self, operation: str) -> None:
        if self.on and (not self._operations or operation in self._operations):
            self.refused += 1
            raise Unavailable("the database is away")
