"""What the stream reports, turned into metrics. (The stream itself writes the log.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.events.cloudevents import exemplar
from streamer.telemetry.catalogue import ENCODER_PART, PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.journal import DataGap, Headers, OutboxMessage, Outcome, OutcomeKind
    from streamer.telemetry.metrics import Metrics


class StreamTelemetry:
    """Observes one worker's stream for `metrics`. Every call returns at once and none raises."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def stage(self, stage: str, seconds: float) -> None:
        """Time a group's way through a stage."""
        self._metrics.observe_stage(stage, seconds)

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """Count what was recorded; `kinds` says what each outcome became."""
        for outcome, kind in zip(outcomes, kinds, strict=True):
            self._metrics.observe_outcome(outcome, kind)

    def acknowledged(self, seconds: float, headers: Headers) -> None:
        """Record an action's latency from its input record's timestamp."""
        self._metrics.observe_published(seconds, exemplar(headers))

    def parked(self, message: OutboxMessage, error: str) -> None:
        """Count a message that can never be published."""
        self._metrics.count_parked()

    def lag(self, topic: str, partition: int, records: int) -> None:
        """Show how many records of a partition have no outcome yet."""
        self._metrics.set_lag(topic, partition, records)

    def released(self, topic: str, partition: int) -> None:
        """Stop showing a partition that another worker has now."""
        self._metrics.forget_partition(topic, partition)

    def gap(self, gap: DataGap) -> None:
        """Count records that the broker lost before they were read."""
        self._metrics.count_data_gap()

    def reset(self, reason: str) -> None:
        """Count that the reader was set back."""
        self._metrics.count_reader_reset()

    def part(self, part: str, reachable: bool) -> None:
        """Show whether a part answers."""
        if part in (*PARTS, ENCODER_PART):
            self._metrics.set_reachable(part, reachable)

    def lane(self, topic: str, partition: int | None, stuck: str | None) -> None:
        """Show where messages cannot be published."""
        self._metrics.set_lane_stuck(topic, partition, stuck is not None)
