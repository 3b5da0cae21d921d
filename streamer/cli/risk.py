"""`streamer risk`: what the labels of the audit sample say of the risk in service, as the recalibrator last wrote it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import options as opt
from streamer.cli.console import percent
from streamer.cli.policies import when
from streamer.cli.verdicts import ALARMS, print_figures, sentence

if TYPE_CHECKING:
    from streamer.risk.rounds.report import AlarmReport, Drawing, RiskReport


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
    from streamer.risk.rounds.report import report_of
    from streamer.settings.settings import load_settings

    with wiring.open_store(load_settings()) as store:
        gates = [store.gates.get(gate)] if gate else store.gates.list()
        now = wiring.now()
        reports = []
        for one in gates:
            judged = store.monitoring.judged(one.gate, now=now)
            reports.append(judged or report_of(store.monitoring.watch(one.gate), one.settings))
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
    print_figures(report)
    say("")
    pairs: list[tuple[str, object]] = []
    if report.exposure is not None and report.terms is not None and report.began_at is not None:
        pairs.append(
            (
                "period",
                f"since {when(report.began_at)}, {report.exposure.decisions} decisions read, open or closed, "
                f"{report.late} labels too late",
            )
        )
    if report.read_through is not None:
        lag = "" if report.service is None else f"; labels take {_lasting(report.service.label_lag_seconds)}"
        pairs.append(("read through", when(report.read_through) + lag))
    if report.terms is not None:
        share = percent(1 - report.terms.delta)
        pairs.append(("bounds", f"hold at all times at once, with {share} for each policy and each period"))
    if report.burn is not None:
        burn = report.burn
        rest = "the budget will not run out"
        if burn.days_left != float("inf"):
            rest = f"the rest lasts {_days(burn.days_left)}"
        if burn.days_left_soonest != float("inf"):
            rest += f", {_days(burn.days_left_soonest)} at the worst"
        pairs.append(
            (
                "budget used",
                f"{percent(burn.used)} (between {percent(burn.used_lower)} and {percent(burn.used_upper)}); at this "
                f"rate {rest}",
            )
        )
    if report.drawing is not None and report.watched:
        pairs.append(("labels drawn", drawing_text(report.drawing)))
    pairs += [(f"alarm: {ALARMS[one.kind]}", _alarm(one)) for one in report.alarms]
    print_pairs(pairs)


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


def _days(days: float) -> str:
    return f"{days:,.0f} days" if days >= 100 else f"{days:.3g} days"


def _lasting(seconds: float) -> str:
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} seconds"


def _alarm(one: "AlarmReport") -> str:
    name = "" if one.statistic in ("", "score") else f"{one.statistic}: "
    chance = f"false with a chance of at most {one.chance:.2g}"
    if one.false_every is not None:
        chance += f" within {one.read} labelled draws, and one more in every {one.false_every}"
    if one.raised_at is None:
        waits = (
            ""
            if not one.pending or one.pending_since is None
            else (
                f"; {one.pending} {'label has' if one.pending == 1 else 'labels have'} not come, the oldest of"
                f" {when(one.pending_since)}"
            )
        )
        return f"{name}quiet, evidence at {percent(one.evidence_ratio)} of what raises it ({chance}){waits}"
    closed = "" if one.closed_policy is None else f", closed the gate by policy {one.closed_policy}"
    alert = "" if one.alert_id is None else f"; alert {one.alert_id[:8]}"
    return f"{name}RAISED {when(one.raised_at)}{closed} ({chance}){alert}"


def report_json(report: "RiskReport") -> dict[str, Any]:
    """Return a report as JSON values, what the verdict rests on first; an infinite duration is null."""
    from dataclasses import asdict

    values = asdict(report)
    first = {name: values.pop(name) for name in ("gate", "verdict", "service")}
    values["open_or_closed"] = {name: values.pop(name) for name in ("exposure", "selective")}
    if report.burn is not None:
        values["burn"] = {
            name: None if value == float("inf") else value for name, value in asdict(report.burn).items()
        }
    return first | values
