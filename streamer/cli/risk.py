"""`streamer risk`: what the labels of the audit sample say of the risk in service, as the recalibrator last wrote it."""

from dataclasses import asdict
from typing import Any

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import note, print_fields, print_json, say
from streamer.cli.policies import NO_GATE, print_figures, promise_text
from streamer.risk.rounds.report import DeskReport, RiskReport, report_of
from streamer.wording.numbers import when
from streamer.wording.verdicts import ALARMS, alarm_text, facts, sentence


def risk(
    gate: opt.OnlyGate = None,
    explain: opt.ExplainOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Show whether gates keep their budgets, how certain that is, and which alarms are raised.

    The figures are those that `streamer recalibrator` last wrote. They are bounds that hold at all times at once, so
    you may look as often as you like.
    """
    with wiring.record() as store:
        gates = [store.gates.get(gate)] if gate else store.gates.list()
        now = wiring.now()
        reports = []
        for one in gates:
            judged = store.monitoring.judged(one.gate, now=now)
            reports.append(judged or report_of(store.monitoring.watch(one.gate), one.settings))
        promises = (
            [store.policies.newest(one.gate).guarantee for one in gates] if explain else [None] * len(gates)
        )
        desks = [store.desk.in_period(one.gate, one.settings, now=now) for one in gates]
    if json:
        for report, desk in zip(reports, desks, strict=True):
            print_json(report_json(report) | ({} if desk is None else {"desk": asdict(desk)}))
        return
    if not reports:
        note(NO_GATE)
    for place, (report, desk) in enumerate(zip(reports, desks, strict=True)):
        if place:
            say("")
        _show(report, desk)
        if (promise := promises[place]) is not None:
            say("")
            say(promise_text(promise, explain=True))


def _show(report: "RiskReport", desk: "DeskReport | None") -> None:
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
    pairs += facts(report, desk)
    pairs += [(f"alarm: {ALARMS[one.kind]}", alarm_text(one)) for one in report.alarms]
    print_fields(pairs)


def report_json(report: "RiskReport") -> dict[str, Any]:
    """Return a report as JSON values, what the verdict rests on first; an infinite duration is null."""
    values = asdict(report)
    first = {name: values.pop(name) for name in ("gate", "verdict", "service")}
    values["open_or_closed"] = {name: values.pop(name) for name in ("exposure", "selective")}
    if report.burn is not None:
        values["burn"] = {
            name: None if value == float("inf") else value for name, value in asdict(report.burn).items()
        }
    return first | values
