"""What the stream asks of a decider, and where a worker's components report: metrics, health, failpoints, traces."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from streamer.failpoints import Failpoint, disarmed
from streamer.journal import DataGap, DeadLetter, Headers, OutboxMessage, Outcome, OutcomeKind, Record
from streamer.tracing import NO_TRACING, Tracing


class Decider(Protocol):
    """Turns records into outcomes."""

    def outcomes(self, records: Sequence[Record], outdated: Sequence[Outcome] = ()) -> list[Outcome]:
        """One outcome for each record, in order. Blocks; called on a worker thread, one call at a time.

        `outdated` are earlier outcomes of the same records that `Journal.commit` found `Outdated`: decide again with the
        newest policies, and recompute nothing that does not depend on a policy.

        A message that is bad is an outcome, not an error. Raises `Unavailable` when a dependency is unavailable
        (the same records are then offered again). Another `StreamerError` or an `OSError` ends the worker. Whatever
        else it raises is blamed on a record: fewer are offered until it is found.
        """

    def dead_letter(self, record: Record, code: str, detail: str) -> DeadLetter:
        """The outcome of a record that is refused for this reason. Does not block."""


Stage = Literal["score", "commit", "publish", "lease"]


class StreamObserver(Protocol):
    """Called on the worker's event loop; must return at once and must not raise."""

    def stage(self, stage: Stage, seconds: float) -> None:
        """One group went through a stage in `seconds`."""

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """These outcomes are recorded; `kinds` (same length) says what each became."""

    def acknowledged(self, seconds: float, headers: Headers) -> None:
        """The broker has an action with these headers, `seconds` after its record's timestamp."""

    def parked(self, message: OutboxMessage, error: str) -> None:
        """A message that can never be published was parked."""

    def lag(self, topic: str, partition: int, records: int) -> None:
        """Records of a leased partition that have no outcome yet."""

    def released(self, topic: str, partition: int) -> None:
        """The partition is not ours any more: its lag is another worker's to report."""

    def gap(self, gap: DataGap) -> None:
        """The broker lost records before they were read."""

    def reset(self, reason: str) -> None:
        """The reader was set back to the first record that has not arrived."""

    def part(self, part: str, reachable: bool) -> None:
        """The database or the broker answered, or did not."""

    def lane(self, topic: str, partition: int | None, stuck: str | None) -> None:
        """Messages for a topic, or for one partition of it, cannot be published: why; None once they can again."""


class SilentObserver(StreamObserver):
    """Counts nothing: the protocol's own methods do nothing."""


_ID_HEADER = "ce_id"


class LatencyLedger:
    """Remembers when the records of unpublished actions were made, by the action's ``ce_id`` header.

    Bounded: of more than `capacity` unpublished actions the oldest are forgotten, and so are all at exit;
    a latency is then not measured, never measured wrongly.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._made_at: OrderedDict[bytes, int] = OrderedDict()

    def remember(self, action: OutboxMessage, timestamp_ms: int) -> None:
        """The action's record carries this timestamp (milliseconds since 1970; below 0: none)."""
        identity = _identity(action)
        if identity is not None and timestamp_ms >= 0:
            self._made_at[identity] = timestamp_ms
            if len(self._made_at) > self._capacity:
                self._made_at.popitem(last=False)

    def acknowledged(self, action: OutboxMessage, now_ms: float) -> float | None:
        """Seconds that passed (0 or more), once for each action; None when it is not known."""
        identity = _identity(action)
        made_at = None if identity is None else self._made_at.pop(identity, None)
        return None if made_at is None else max(0.0, (now_ms - made_at) / 1000)


def _identity(action: OutboxMessage) -> bytes | None:
    return next((value for name, value in action.headers if name == _ID_HEADER), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Shared by all components of a worker. `failpoint` is called with the name of each step
    passed (`streamer.failpoints.POINTS`); `ledger` knows from which record each unpublished
    action came."""

    observer: StreamObserver = field(default_factory=SilentObserver)
    failpoint: Failpoint = disarmed
    ledger: LatencyLedger = field(default_factory=LatencyLedger)
    tracing: Tracing = NO_TRACING
