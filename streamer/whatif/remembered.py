"""An audit sample that is read once, however many settings are calibrated on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from datetime import datetime

    from streamer.calibration import History
    from streamer.gates.settings import GateSettings
    from streamer.recalibration.run import AuditSample, SampledGroup, SeverityBasis

T = TypeVar("T")


class RememberedSample:
    """Implements `streamer.recalibration.run.AuditSample` over another one.

    What is remembered goes by all that such a read depends on of the settings.
    """

    def __init__(self, sample: AuditSample) -> None:
        self._sample = sample
        self._known: dict[Hashable, Any] = {}

    def audit_sample(
        self,
        gate: str,
        *,
        settings: GateSettings,
        older_than: datetime,
        since_version: int | None = None,
        severities: SeverityBasis = "mean",
    ) -> Sequence[SampledGroup]:
        """Read what calibration reads, once."""
        return self._once(
            ("sample", gate, _read_by(settings), older_than, since_version, severities),
            lambda: self._sample.audit_sample(
                gate,
                settings=settings,
                older_than=older_than,
                since_version=since_version,
                severities=severities,
            ),
        )

    def label_delays(
        self, gate: str, *, settings: GateSettings, before: datetime, most: int
    ) -> Sequence[float | None]:
        """Read how late labels came, once."""
        return self._once(
            ("delays", gate, _read_by(settings), before, most),
            lambda: self._sample.label_delays(gate, settings=settings, before=before, most=most),
        )

    def undrawn_history(
        self,
        gate: str,
        *,
        settings: GateSettings,
        before: datetime,
        since_version: int | None,
        most: int,
    ) -> History:
        """Fix cuts by the scores of undrawn prompts, once."""
        return self._once(
            ("history", gate, _read_by(settings), before, since_version, most),
            lambda: self._sample.undrawn_history(
                gate, settings=settings, before=before, since_version=since_version, most=most
            ),
        )

    def _once(self, key: Hashable, read: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = read()
        return cast("T", self._known[key])


def _read_by(settings: GateSettings) -> Hashable:
    return (
        settings.unit,
        settings.scorer,
        settings.encoder,
        settings.severity_kind,
        settings.segment_by,
        settings.label_floor,
        settings.shape.of_ranks,
    )
