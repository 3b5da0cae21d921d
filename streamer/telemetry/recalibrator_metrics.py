"""Metrics of the recalibrator. One that does not lead serves no gauge of a gate."""

import math
import platform
from datetime import datetime
from importlib import metadata
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.exposition import generate_latest

from streamer.recalibration.gate_status import GateStatus
from streamer.telemetry.catalogue import CATALOGUE, PARTS, PREFIX, RUN_OUTCOMES
from streamer.telemetry.metrics import register, show


class RecalibratorMetrics:
    """All metrics of one recalibrator, in a registry of their own. Thread-safe; no call blocks or raises."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation here
        self.registry = CollectorRegistry()
        self._of: dict[str, Any] = {
            d.name: register(self.registry, d) for d in CATALOGUE if "recalibrator" in d.services
        }
        self.of("build_info").labels(
            metadata.version("conformal-streamer"), platform.python_version(), "none"
        ).set(1)
        for part in PARTS:
            self.of("part_reachable").labels(part)
        self.of("recalibrator_leader").set(0)

    def of(self, name: str) -> Any:
        """Return a metric by its name in the catalogue, without the prefix; for the recalibrator's other parts."""
        return self._of[PREFIX + name]

    def exposition(self) -> bytes:
        """Render all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def set_part(self, part: str, reachable: bool) -> None:
        """A part answers, or does not."""
        self.of("part_reachable").labels(part).set(reachable)

    def set_round(self, moment: datetime) -> None:
        """A round is over."""
        self.of("recalibrator_round_timestamp_seconds").set(moment.timestamp())

    def set_leader(self, leads: bool) -> None:
        """This one leads, or is a standby: then its gauges of gates are removed."""
        self.show_lead(leads)
        if not leads:
            self.forget_gates()

    def show_lead(self, leads: bool) -> None:
        """This one leads, or does not."""
        self.of("recalibrator_leader").set(leads)

    def set_unwitnessed(self, witness: str, seconds: float, failed: bool) -> None:
        """How long a witness has lacked a head, and whether it failed just now."""
        self.of("audit_unwitnessed_seconds").labels(witness).set(seconds)
        self.of("audit_witness_failures_total").labels(witness).inc(int(failed))

    def forget_gates(self) -> None:
        """Remove every gauge of a gate: another process's are right from now on."""
        for definition in CATALOGUE:
            if "recalibrator" in definition.services and "gate" in definition.labels:
                metric = self._of[definition.name]
                if isinstance(metric, Gauge):
                    metric.clear()

    def count_run(self, gate: str, method: str, outcome: str, seconds: float) -> None:
        """One run ended, with an outcome of `RUN_OUTCOMES`."""
        self.of("calibration_runs_total").labels(gate, method, outcome).inc()
        self.of("calibration_duration_seconds").observe(seconds)

    def show(self, status: GateStatus) -> None:
        """Show what SQL says of a gate; its counters start at zero."""
        gate, settings = status.gate.gate, status.gate.settings
        for outcome in RUN_OUTCOMES:
            self.of("calibration_runs_total").labels(gate, settings.method, outcome)
        self._set("calibration_new_groups", gate, status.news)
        self._set("calibration_wanted_groups", gate, settings.recalibrate_after_groups)
        held = status.held_until
        self._set("proposal_pending", gate, int(status.proposed and held is None))
        self._set("proposal_held_until_timestamp_seconds", gate, None if held is None else held.timestamp())
        last = status.last
        self._set("calibration_groups", gate, None if last is None else last.groups)
        self._set(
            "calibration_last_run_timestamp_seconds",
            gate,
            None if last is None else last.finished_at.timestamp(),
        )
        lambdas = self.of("calibration_lambda_ratio")
        lambdas.remove_by_labels({"gate": gate})
        for method, level in () if last is None else last.candidates:
            if level is not None and math.isfinite(level):
                lambdas.labels(gate, method).set(level)

    def set_labels_pending(self, gate: str, responses: int) -> None:
        """Set how many drawn responses wait for a severity."""
        self._set("labels_pending", gate, responses)

    def set_labels_unread(self, gate: str, labels: int) -> None:
        """Set how many labels are recorded and not read."""
        self._set("labels_unread", gate, labels)

    def _set(self, name: str, gate: str, value: float | None) -> None:
        show(self.of(name), value, gate)
