"""What passes between the stream and the store: records in, outcomes out, and the outbox. Pure values and ports.

`streamer.stream` reads records and asks a `Journal` to lease partitions and commit outcomes; `streamer.store`
implements it. Neither imports the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import HoldAction, Mode, Unit
from streamer.gates.policy import CandidateDecision, Policy
from streamer.gates.rule import Cut, Needed
from streamer.scoring.unread_answers import Rule

Headers = tuple[tuple[str, bytes | None], ...]

_AT_ONCE = timedelta(0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NO_IDS: Mapping[str, str] = MappingProxyType({})
"""The ids of topics whose broker gives none."""


class Partition(NamedTuple):
    """One partition of one log. `log_id` is the cluster's id, so that a new broker never meets an old offset."""

    log_id: str
    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record as it was read, or one request. `value` None is a tombstone.

    `timestamp_ms` is its publisher's (CreateTime) or the broker's (LogAppendTime), by the topic's setting; -1: it has none.
    `deadline_ms`, on the same scale, is when its sender stops to wait: from then on its batch is held, whatever its gate's own
    deadline is. None: it has no deadline of its own.
    """

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    deadline_ms: int | None = None

    def is_overdue(self, now: datetime) -> bool:
        """Whether its own deadline has come."""
        return self.seconds_left(now) <= 0

    def seconds_left(self, now: datetime) -> float:
        """How long its sender still waits, below 0 once it does not; infinity where it has no deadline of its own."""
        if self.deadline_ms is None:
            return math.inf
        return (_EPOCH + timedelta(milliseconds=self.deadline_ms) - now).total_seconds()


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's right to write a partition's outcomes: valid while the stored epoch is still `epoch`."""

    partition: Partition
    epoch: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message that must reach Kafka exactly as stored. `id` is 0 before it is stored.
    `queued`: it waits in the queue of a partition, where ids grow with the partition's offsets;
    otherwise it is a row of the outbox. The two count their ids apart."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    id: int = 0
    queued: bool = False


class ScoredResponse(msgspec.Struct, frozen=True, gc=False):
    """One response of a decided batch. `score` and `raw_energy` are None when the batch was not scored.

    `drawn` says that the audit sample took this response; `uniform` is the random number of a random gate; `not_read` says why
    the encoder did not read it, None where it did, or was not asked.
    """

    id: str
    text: str
    score: float | None
    raw_energy: float | None
    action: Literal["ship"] | HoldAction
    drawn: bool
    uniform: float | None = None
    not_read: Rule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMark:
    """What a judge (model and rubric) was asked and said about one answer, to be kept with the
    decision that it was asked for.

    `mark` is in [0, 100]; None where it gave none, and `failure` says why. `subscores` are points
    by aspect, None without a mark. `requests`, >= 1, is how often it was asked; `cost` is in the
    price list's currency, None where it is not known. `exchanges` are every request and reply, as
    `streamer.labels.judge.exchanges.exchanges_document` writes them. `remembered`: it had been
    asked about the same answer to the same prompt before, and not again: nothing was spent.
    """

    judge: str
    mark: float | None
    subscores: Mapping[str, float] | None
    failure: str | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    exchanges: Mapping[str, Any]
    remembered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersToMark:
    """A prompt and the answers to it that are to be marked."""

    prompt: str
    answers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Marks:
    """What came of one batch: the mark of each answer, in [0, 100] (None where there is none,
    and for a blank answer, of which nobody is asked), and what is kept of it, by the answers'
    places."""

    marks: tuple[float | None, ...]
    asked: tuple[tuple[int, AskedMark], ...]


EmbeddingSource = Literal["encoder", "event", "none"]
"""Who made a batch's embeddings: a worker that ran the encoder, or the publisher, who says so; held or not."""


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of one decided batch; `action` is the message that publishes it.

    `newest_seen` is the gate's newest policy that the decider looked at, where it refused that one; see `ActivePolicy`.
    `cut` is what this batch was cut by where not all share the policy's cut; `segment` is its segment if the policy has
    segments, `burst` stands for its burst if the policy knows some with a bad label. `audit_rate` is the number of the rate that raised its probability, and `extra_draw` says that only this drew
    it. `cloud` has a few numbers of its embeddings (`streamer.scoring.cloud`), where there were any. `asked` is what a judge was
    asked for its scores and said, by response. `candidate` is what the gate's candidate policy made of it, where there is one. `signals` is the row of signals of
    what its unit may ship (float32, little-endian), and `needed` the budget that it would have shipped with.
    """

    record: Record
    key: BatchKey
    content_hash: bytes
    prompt: str
    references: tuple[str, ...] | None
    metadata: Mapping[str, object]
    created_at: datetime | None
    unit: Unit
    mode: Mode
    outcome: Literal["ship", "mixed"] | HoldAction
    reason: str
    selected: str | None
    responses: tuple[ScoredResponse, ...]
    policy: Policy
    scorer: str
    encoder: str
    embedding_source: EmbeddingSource
    sampled: bool
    sampling_probability: float
    decided_at: datetime
    action: OutboxMessage
    action_id: str
    newest_seen: int = 0
    cut: Cut | None = None
    segment: str | None = None
    burst: str | None = None
    audit_rate: int | None = None
    extra_draw: bool = False
    cloud: tuple[float, ...] | None = None
    asked: tuple[tuple[str, AskedMark], ...] = ()
    candidate: CandidateDecision | None = None
    signals: bytes | None = None
    needed: Needed | None = None


class RecordedAction(NamedTuple):
    """The action event that is recorded for a batch, byte for byte, and its receipt; see `streamer.events.receipts`."""

    action: bytes
    receipt: str | None


class RecordedBatch(NamedTuple):
    """A decided batch as it is kept: the action event, the metadata (None once erased), the responses' texts by id (None
    once erased, or where the gate keeps none), in the event's order, and its receipt.
    """

    action: bytes
    metadata: Mapping[str, object] | None
    texts: Mapping[str, str | None]
    receipt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcome:
    """What is on record of one offset of a topic, its kind as in `outcomes`.

    `key` and `content_hash` are the batch's; None for other kinds, and the hash once the texts were
    erased. `code` and `refused` bytes and headers are of a refused record; the bytes are None where
    they are not kept, or not any more. `label`: gate, batch id, attempt, response id, kind,
    labeller, severity, when it was given, and the signature that came with it with the id of its
    key, or None for both.
    """

    kind: str
    key: BatchKey | None
    content_hash: bytes | None
    code: str | None
    refused: bytes | None
    refused_headers: Headers
    label: tuple[object, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that was refused, and the message that says so."""

    record: Record
    code: str
    detail: str
    message: OutboxMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRevision:
    """One severity that somebody gave to one response. `record` is None for labels from a file or a page.

    `signature` (Ed25519, base64) and `key_id` are as they came, good or not; see `streamer.labels.signing`. `remark` is what
    the person wrote beside it, 1 to 500 characters. `severities` are those of fields, by JSON Pointer, in order.
    """

    key: BatchKey
    response_id: str
    severity: float
    raw_severity: float | None
    kind: str
    labeller: str
    labelled_at: datetime
    record: Record | None = None
    signature: str | None = None
    key_id: str | None = None
    remark: str | None = None
    severities: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Redelivery:
    """A batch whose key is decided already: it is not scored again, the store finds duplicate or conflict."""

    record: Record
    key: BatchKey
    content_hash: bytes


Outcome = BatchDecision | Redelivery | DeadLetter | LabelRevision
"""What became of one record, before the store has looked for its twin."""

OutcomeKind = Literal["decision", "duplicate", "conflict", "dead_letter", "label"]
"""What the store recorded in the end: a decision whose key was known became a duplicate (same content: the
stored action is enqueued again) or a conflict (other content: dead-lettered)."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive outcomes of one leased partition, in offset order.

    The commit succeeds only if the stored progress still reads (`lease.epoch`, `expected_offset`), and moves
    it to `next_offset`, which is the last outcome's offset + 1 (offset holes are inside).
    """

    lease: Lease
    expected_offset: int
    next_offset: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class DataGap:
    """Offsets [`from_offset`, `to_offset`) that the broker no longer had when they were due."""

    partition: Partition
    from_offset: int
    to_offset: int


Queued = Callable[[Sequence[OutboxMessage]], object]
"""Gets the messages that a commit has put into the queue, in the order of their ids, or none where they have to be read."""


Linked = Callable[[Record, int, bytes, bytes], None]
"""Learns which leaf an outcome becomes, if the transaction that writes it is committed: its index in the log of its partition,
from 0, its hash, and the root of the log after it."""


class Commit(Protocol):
    """What a group commit needs of the store: `Journal.commit`. It blocks."""

    def __call__(
        self, slices: Sequence[Slice], *, now: datetime, firm: bool = False
    ) -> list[list[OutcomeKind]]:
        """Write everything in one transaction and return what each outcome became, slice by slice."""


class Journal(Protocol):
    """The store as the stream needs it. Calls block; each raises `Unavailable` when the database is unavailable."""

    def commit(
        self,
        slices: Sequence[Slice],
        *,
        now: datetime,
        firm: bool = False,
        queued: Queued | None = None,
    ) -> list[list[OutcomeKind]]:
        """Write everything in one transaction and return what each outcome became, slice by slice.

        `firm` lets no newer policy of the decisions' gates in while it is written: for where
        policies keep coming. `queued` is called, once all is written, with what waits to be
        published. Safe to repeat after a lost answer. Raises `Fenced` when a lease is no longer
        held; `Outdated` when a decision's gate has a newer policy than its decider looked at, or a
        decision ships past its deadline: nothing is written then, and the records of its `gates`
        must be decided again; `BadData` when a value cannot be kept, `DatabaseFault` when nothing
        can. A Python error of any other kind is taken for one of the content.
        """

    def lease(
        self, partitions: Sequence[Partition], *, topic_ids: Mapping[str, str] = NO_IDS
    ) -> dict[Partition, Lease]:
        """Take the partitions: raise each epoch by one and return where to continue (0 for a new one).

        `topic_ids` are the broker's ids of their topics, as far as they are known. Raises `TopicRecreated` when a
        topic with outcomes had another one.
        """

    def record_gap(self, lease: Lease, gap: DataGap) -> None:
        """Write a `data_gap` row and move progress past it. Safe to repeat. Raises `Fenced`."""

    def unpublished_topics(
        self, sources: Sequence[Partition], *, ownerless: timedelta | None = _AT_ONCE
    ) -> list[str]:
        """The topics that messages wait for; see `unpublished`. Those of other workers' partitions may be among them."""

    def unpublished(
        self,
        sources: Sequence[Partition],
        *,
        limit: int,
        ownerless: timedelta | None = _AT_ONCE,
        topic: str | None = None,
        after: int = 0,
        max_bytes: int | None = None,
    ) -> list[OutboxMessage]:
        """The oldest messages that wait for one topic, or for any: rows of the outbox, then queued ones; by id each.

        Rows of no partition (policies, which commands write and publish themselves) are among them once they have
        waited for `ownerless`; with None they never are. Queued messages are those of `sources` with an id greater than
        `after`. After the first message none is read that brings their values above `max_bytes`.
        """

    def mark_published(self, messages: Sequence[OutboxMessage]) -> None:
        """These have been acknowledged by the broker."""

    def park(self, message: OutboxMessage, error: str) -> None:
        """This can never be published: park it, with its error, so that the others continue."""
