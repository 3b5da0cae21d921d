"""Metrics of the recalibrator and of monitoring. One that does not lead serves no gauge of a gate; what is not known is absent."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import Gauge

from streamer.events.alerts import ALARMS, AlarmKind
from streamer.recalibration.gate_status import GateStatus
from streamer.risk.rounds.report import OpenFigures, RiskReport
from streamer.risk.states import RiskInterval
from streamer.telemetry.catalogue import (
    ALARM_GAUGES,
    CATALOGUE,
    OPEN_GAUGES,
    PARTS,
    PREFIX,
    RISK_GAUGES,
    RUN_OUTCOMES,
    STRETCHES,
)
from streamer.telemetry.metrics import ServiceMetrics, show


class RecalibratorMetrics(ServiceMetrics):
    """All metrics of one recalibrator."""

    def __init__(self) -> None:
        super().__init__(services=("recalibrator",))
        for part in PARTS:
            self.of("part_reachable").labels(part)
        self.of("recalibrator_leader").set(0)

    def of(self, name: str) -> Any:
        """Return a metric by its name in the catalogue, without the prefix; for the recalibrator's other parts."""
        return self._of[name]

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
                metric = self.of(definition.name.removeprefix(PREFIX))
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


_SECONDS_A_DAY = 86_400.0
_VERDICTS = {"kept": 1, "not known yet": 0, "broken": -1}


class RiskMetrics:
    """Shows reports, by metrics of the catalogue without the prefix. Implements
    `streamer.risk.rounds.watch.RiskObserver`."""

    def __init__(self, of: Callable[[str], Any]) -> None:
        self._of = of
        self._alerts: dict[tuple[str, str], int] = {}

    def show_risk(self, report: RiskReport) -> None:
        """Show what is known of one gate."""
        gate, values = report.gate, _values(report)
        for name in RISK_GAUGES:
            show(self._of(name), values.get(name), gate)
        self._show_open(report)
        for alarm in ALARMS:
            self._show_alarm(report, alarm)

    def _show_open(self, report: RiskReport) -> None:
        service = report.service
        figures = (
            {}
            if service is None
            else {"policy": service.present, "period": service.period, "before": service.before}
        )
        for over in STRETCHES:
            values = _open_values(figures.get(over))
            for name in OPEN_GAUGES:
                show(self._of(name), values.get(name), report.gate, over)

    def _show_alarm(self, report: RiskReport, name: AlarmKind) -> None:
        one = report.alarm(name)
        since = None if one is None else one.raised_at
        values = (
            None if one is None else since is not None,
            None if one is None else one.evidence_ratio,
            None if since is None else since.timestamp(),
        )
        for metric, value in zip(ALARM_GAUGES, values, strict=True):
            show(self._of(metric), value, report.gate, name)

    def show_alerts(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Show how many alerts were ever raised, by gate and kind; the record only adds to them."""
        for place, count in counts.items():
            counter = self._of("alerts_total").labels(*place)
            counter.inc(max(0, count - self._alerts.get(place, 0)))
        self._alerts = dict(counts)

    def forget_risk(self, gates: Sequence[str] | None = None) -> None:
        """Remove what is shown of these gates; of all when None."""
        for name in (*RISK_GAUGES, *OPEN_GAUGES, *ALARM_GAUGES):
            if gates is None:
                self._of(name).clear()
            else:
                for gate in gates:
                    self._of(name).remove_by_labels({"gate": gate})


def _values(report: RiskReport) -> dict[str, float | None]:
    through = None if report.read_through is None else report.read_through.timestamp()
    values: dict[str, float | None] = {
        "risk_read_through_timestamp_seconds": through if report.watched else None,
        "late_labels": report.late if report.watched else None,
    }
    if report.watched and report.drawing is not None:
        values |= {
            "audit_probability_ratio": report.drawing.probability,
            "extra_labels_today": report.drawing.extra_today,
        }
    if report.watched and report.service is not None and report.service.period is not None:
        values |= {
            "budget_verdict": _VERDICTS[report.verdict],
            "label_lag_seconds": report.service.label_lag_seconds,
        }
    exposure, selective, burn = report.exposure, report.selective, report.burn
    if exposure is None or selective is None or report.ended is not None:
        return values
    values |= {
        "monitored_decisions": exposure.decisions,
        "monitored_labels": exposure.labels,
        "overdue_labels": exposure.overdue,
    }
    if report.terms is not None:
        values["exposure_budget_ratio"] = report.terms.budget
    values |= _bounds("exposure", exposure) | _bounds("selective", selective)
    if burn is not None:
        values |= {
            "budget_used_ratio": burn.used,
            "budget_used_lower_ratio": burn.used_lower,
            "budget_used_upper_ratio": burn.used_upper,
            "budget_remaining_seconds": burn.days_left and burn.days_left * _SECONDS_A_DAY,
            "budget_remaining_soonest_seconds": burn.days_left_soonest
            and burn.days_left_soonest * _SECONDS_A_DAY,
        }
    return values


def _open_values(figures: OpenFigures | None) -> dict[str, float | None]:
    if figures is None:
        return {}
    values: dict[str, float | None] = {
        "open_prompts": figures.decisions,
        "open_labelled_answers": figures.labelled,
        "open_served_ratio": figures.share_served,
    }
    if figures.share_served:
        values |= _bounds("open_selective", figures.selective) | _bounds("open_exposure", figures.exposure)
    return values


def _bounds(name: str, interval: RiskInterval) -> dict[str, float | None]:
    if interval.estimate is None:
        return {}
    return {
        f"{name}_risk_ratio": interval.estimate,
        f"{name}_risk_lower_ratio": interval.lower,
        f"{name}_risk_upper_ratio": interval.upper,
    }
