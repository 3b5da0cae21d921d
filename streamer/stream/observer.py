"""The protocol of stream observers, and an observer that counts nothing."""

from collections.abc import Sequence
from typing import Literal, Protocol

from streamer.journal import DataGap, Headers, OutboxMessage, Outcome, OutcomeKind

Stage = Literal["score", "commit", "publish", "lease"]


class StreamObserver(Protocol):
    """Called on the worker's event loop; must return at once and must not raise."""

    def stage(self, stage: Stage, seconds: float) -> None:
        """One group went through a stage in `seconds`."""
        ...

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """These outcomes are recorded; `kinds` (same length) says what each became."""
        ...

    def acknowledged(self, seconds: float, headers: Headers) -> None:
        """The broker has an action with these headers, `seconds` after its record's timestamp."""
        ...

    def parked(self, message: OutboxMessage, error: str) -> None:
        """A message that can never be published was parked."""
        ...

    def lag(self, topic: str, partition: int, records: int) -> None:
        """Records of a leased partition that have no outcome yet."""
        ...

    def released(self, topic: str, partition: int) -> None:
        """The partition is not ours any more: its lag is another worker's to report."""
        ...

    def gap(self, gap: DataGap) -> None:
        """The broker lost records before they were read."""
        ...

    def reset(self, reason: str) -> None:
        """The reader was set back to the first record that has not arrived."""
        ...

    def part(self, part: str, reachable: bool) -> None:
        """The database or the broker answered, or did not."""
        ...

    def lane(self, topic: str, partition: int | None, stuck: str | None) -> None:
        """Messages for a topic, or for one partition of it, cannot be published: why; None once they can again."""
        ...


class SilentObserver(StreamObserver):
    """Counts nothing: the protocol's own methods do nothing."""
