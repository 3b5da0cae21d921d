"""An audit sample that is read once, however many settings are calibrated on it."""

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from streamer.calibration import History
from streamer.gates.setting_changes import CALIBRATED_FOR
from streamer.gates.settings import PARAMETERS, GateSettings
from streamer.recalibration.run import AuditSample, SampleQuery
from streamer.recalibration.sampled import SampledGroup

T = TypeVar("T")


class RememberedSample:
    """Implements `streamer.recalibration.run.AuditSample` over another one.

    What is remembered goes by all that such a read depends on of the settings.
    """

    def __init__(self, sample: AuditSample) -> None:
        self._sample = sample
        self._known: dict[Hashable, Any] = {}

    def audit_sample(self, query: SampleQuery) -> Sequence[SampledGroup]:
        """Read what calibration reads, once."""
        key = ("sample", query.gate, _read_by(query.settings), query.before, query.since_version)
        return self._once((*key, query.severities), lambda: self._sample.audit_sample(query))

    def label_delays(
        self, gate: str, *, settings: GateSettings, before: datetime, most: int
    ) -> Sequence[float | None]:
        """Read how late labels came, once."""
        return self._once(
            ("delays", gate, _read_by(settings), before, most),
            lambda: self._sample.label_delays(gate, settings=settings, before=before, most=most),
        )

    def undrawn_history(self, query: SampleQuery, *, most: int) -> History:
        """Fix cuts by the scores of undrawn prompts, once."""
        key = ("history", query.gate, _read_by(query.settings), query.before, query.since_version)
        return self._once((*key, most), lambda: self._sample.undrawn_history(query, most=most))

    def _once(self, key: Hashable, read: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = read()
        return cast("T", self._known[key])


_READ_ALIKE = {"alpha", "method", "shape", "segment_fallback", "max_attempts", *PARAMETERS}
"""Settings that a threshold is calibrated for, and that leave what is read as it is."""


def _read_by(settings: GateSettings) -> Hashable:
    flat = settings.flat()
    return settings.shape.of_ranks, *(flat[name] for name in CALIBRATED_FOR if name not in _READ_ALIKE)
