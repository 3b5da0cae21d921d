"""Metrics of monitoring. What is not known is absent; after a restart SQL says it at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamer.events.alerts import ALARMS, AlarmKind
from streamer.risk.rounds.report import OpenFigures, RiskReport
from streamer.telemetry.catalogue import ALARM_GAUGES, OPEN_GAUGES, RISK_GAUGES, STRETCHES
from streamer.telemetry.metrics import show

_SECONDS_A_DAY = 86_400.0
_VERDICTS = {"kept": 1, "not known yet": 0, "broken": -1}


class RiskMetrics:
    """Shows reports. Implements `streamer.risk.rounds.watch.RiskObserver`.

    Parameters
    ----------
    of : returns a metric by its name in the catalogue, without the prefix.
    """

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
    for name, interval in (("exposure", exposure), ("selective", selective)):
        if interval.estimate is not None:
            values |= {
                f"{name}_risk_ratio": interval.estimate,
                f"{name}_risk_lower_ratio": interval.lower,
                f"{name}_risk_upper_ratio": interval.upper,
            }
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
    for name, interval in (("selective", figures.selective), ("exposure", figures.exposure)):
        if interval.estimate is not None and figures.share_served:
            values |= {
                f"open_{name}_risk_ratio": interval.estimate,
                f"open_{name}_risk_lower_ratio": interval.lower,
                f"open_{name}_risk_upper_ratio": interval.upper,
            }
    return values
