"""What the stream reports, turned into metrics and log lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from streamer.telemetry.catalogue import PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.journal import DataGap, OutboxMessage, Outcome, OutcomeKind
    from streamer.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


class StreamTelemetry:
    """Observes one worker's stream for `metrics`. Every call returns at once and none raises."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._reachable: dict[str, bool | None] = dict.fromkeys(PARTS)

    def stage(self, stage: str, seconds: float) -> None:
        """Time a group's way through a stage."""
        self._metrics.observe_stage(stage, seconds)

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """Count what was recorded; `kinds` tells what each outcome became."""
        for outcome, kind in zip(outcomes, kinds, strict=True):
            self._metrics.observe_outcome(outcome, kind)

    def acknowledged(self, seconds: float) -> None:
        """Record an action's latency from its input record's timestamp."""
        self._metrics.observe_published(seconds)

    def parked(self, message: OutboxMessage, error: str) -> None:
        """Count and log a message that can never be published."""
        self._metrics.count_parked()
        log.error("outbox_message_parked", outbox_id=message.id, topic=message.topic, error=error)

    def lag(self, topic: str, partition: int, records: int) -> None:
        """Show how many records of a partition have no outcome yet."""
        self._metrics.set_lag(topic, partition, records)

    def released(self, topic: str, partition: int) -> None:
        """Stop showing a partition that another worker has now."""
        self._metrics.forget_partition(topic, partition)

    def gap(self, gap: DataGap) -> None:
        """Count and log records that the broker lost before they were read."""
        self._metrics.count_data_gap()
        log.error(
            "data_gap",
            topic=gap.partition.topic,
            partition=gap.partition.number,
            from_offset=gap.from_offset,
            to_offset=gap.to_offset,
        )

    def reset(self, reason: str) -> None:
        """Count and log that the reader was set back."""
        self._metrics.count_reader_reset()
        log.warning("reader_reset", reason=reason)

    def part(self, part: str, reachable: bool) -> None:
        """Show whether a part answers; log only when that changes."""
        if part not in self._reachable:
            return
        self._metrics.set_reachable(part, reachable)
        before, self._reachable[part] = self._reachable[part], reachable
        if before is not reachable and (before is not None or not reachable):
            log.log(20 if reachable else 30, "part_back" if reachable else "part_away", part=part)
