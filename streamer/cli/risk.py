"""`streamer risk`: what the labels of the audit sample say of the risk in service, as the recalibrator last wrote it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import options as opt
from streamer.cli.console import percent
from streamer.cli.policies import when

if TYPE_CHECKING:
    from streamer.risk.rounds.report import AlarmReport, Drawing, RiskReport
    from streamer.risk.states import RiskInterval

_VERDICTS = {
    "kept": "the budget was kept",
    "broken": "the budget was EXCEEDED",
    "not known yet": "not known yet whether the budget was kept",
}
_ALARMS = {
    "risk": "risk",
    "draws": "audit draws",
    "drift_scores": "drift of scores",
    "drift_cloud": "drift of embeddings",
}


def risk(
    gate: Annotated[str | None, typer.Argument(metavar="[GATE]", help="Only this gate.")] = None,
    json: opt.JsonOption = False,
) -> None:
    """Show whether gates keep their budgets, how certain that is, and which alarms are raised.

    The figures are those that `streamer recalibrator` last wrote. They are bounds that hold at all times at once, so
    you may look as often as you like.
    """
    from streamer import wiring
    from streamer.cli.console import note, print_json, say
    from streamer.risk.rounds.report import Drawing, report_of
    from streamer.settings.settings import load_settings

    with wiring.open_store(load_settings()) as store:
        gates = [store.gates.get(gate)] if gate else store.gates.list()
        reports = []
        for one in gates:
            rate, extra = store.monitoring.rate(one.gate)
            drawing = Drawing.of(rate, extra, one.settings, wiring.now())
            reports.append(report_of(store.monitoring.watch(one.gate), one.settings, drawing))
    if json:
        for report in reports:
            print_json(report_json(report))
        return
    if not reports:
        note("There is no gate yet; create one with `streamer gate create NAME`.")
    for place, report in enumerate(reports):
        if place:
            say("")
        _show(report)


def _show(report: "RiskReport") -> None:
    from streamer.cli.console import print_pairs, say

    say(sentence(report))
    pairs: list[tuple[str, object]] = []
    began = report.began_at
    if report.exposure is not None and report.selective is not None and report.terms is not None and began:
        pairs += [
            ("budget", f"{percent(report.terms.budget)} per prompt, since {when(began)}"),
            ("exposure", interval_text(report.exposure)),
            ("selective", f"{interval_text(report.selective)}, among what shipped"),
            (
                "read",
                f"{report.exposure.decisions} decisions, {report.exposure.labels} drawn and known, "
                f"{report.exposure.overdue} overdue, {report.late} labels too late",
            ),
        ]
    if report.read_through is not None:
        pairs.append(("read through", when(report.read_through)))
    if report.burn is not None:
        burn = report.burn
        left = "for ever" if burn.days_left == float("inf") else f"{burn.days_left:.3g} days"
        soonest = (
            ""
            if burn.days_left_soonest == float("inf")
            else f", {burn.days_left_soonest:.3g} days at the worst"
        )
        pairs.append(
            (
                "budget used",
                f"{percent(burn.used)} (between {percent(burn.used_lower)} and {percent(burn.used_upper)}); at this "
                f"rate the rest lasts {left}{soonest}",
            )
        )
    if report.drawing is not None and report.watched:
        pairs.append(("labels drawn", drawing_text(report.drawing)))
    pairs += [(f"alarm: {_ALARMS[one.kind]}", _alarm(one)) for one in report.alarms]
    print_pairs(pairs)


def sentence(report: "RiskReport") -> str:
    """Summarise a gate's risk in one sentence."""
    if not report.watched:
        return (
            f"{report.gate}: not monitored, because its audit probability is 0; "
            f"`streamer gate set {report.gate} --audit-probability 0.05` draws a sample."
        )
    raised = [one for one in report.alarms if one.raised_at is not None]
    if report.read_through is None:
        return f"{report.gate}: not monitored yet; `streamer recalibrator` does that."
    told = "" if not raised else " ALARM: " + ", ".join(_ALARMS[one.kind] for one in raised) + "."
    if report.exposure is None or report.exposure.estimate is None:
        return f"{report.gate}: nothing is known yet; no decision has been read.{told}"
    return f"{report.gate}: {_VERDICTS[report.verdict]}; exposure {interval_text(report.exposure)}.{told}"


def drawing_text(drawing: "Drawing") -> str:
    """Say how often decisions are drawn: ``20 %, raised until 2026-11-22 13:00:00Z: ...``."""
    text = percent(drawing.probability)
    if drawing.raised_until is not None:
        text += f", raised until {when(drawing.raised_until)}: {drawing.reason}"
    elif drawing.extra_today:
        text += f", raised no more: {drawing.reason}"
    if drawing.raised_until is not None or drawing.extra_today:
        text += f"; {drawing.extra_today} extra labels today, at most {drawing.most}"
    return text


def interval_text(interval: "RiskInterval") -> str:
    """Write an interval: ``3.1 %, between 1.2 % and 5.9 %``."""
    if interval.estimate is None:
        return "not known"
    return f"{percent(interval.estimate)}, between {percent(interval.lower)} and {percent(interval.upper)}"


def _alarm(one: "AlarmReport") -> str:
    name = "" if one.statistic in ("", "score") else f"{one.statistic}: "
    chance = f"false with a chance of at most {one.delta:.2g}"
    if one.raised_at is None:
        return f"{name}quiet, evidence at {percent(one.evidence_ratio)} of what raises it ({chance})"
    closed = "" if one.closed_policy is None else f", closed the gate by policy {one.closed_policy}"
    alert = "" if one.alert_id is None else f"; alert {one.alert_id[:8]}"
    return f"{name}RAISED {when(one.raised_at)}{closed} ({chance}){alert}"


def report_json(report: "RiskReport") -> dict[str, Any]:
    """Return a report as JSON values; an infinite duration is null."""
    from dataclasses import asdict

    values = asdict(report)
    if report.burn is not None:
        values["burn"] = {
            name: None if value == float("inf") else value for name, value in asdict(report.burn).items()
        }
    return values
