"""A gate's verdict for people: one sentence, the figures behind it, its alarms and how often it draws."""

from typing import NamedTuple

from streamer.calibration.claims import claim_loss
from streamer.calibration.specification import Risk
from streamer.recalibration.age_cut import span
from streamer.risk.rounds.report import (
    AlarmReport,
    Backlog,
    Decided,
    DeskReport,
    Drawing,
    OpenFigures,
    RiskReport,
    ServiceReport,
    Verdict,
)
from streamer.risk.states import BudgetBurn, RiskInterval
from streamer.wording.numbers import counted, items, percent, when

WORDS = {
    "kept": "the budget was kept",
    "broken": "the budget was BROKEN",
    "not known yet": "not known yet whether the budget is kept",
}
ALARMS = {
    "risk": "risk",
    "selective": "selective risk",
    "missing": "missing labels",
    "early": "early warning",
    "draws": "audit draws",
    "drift_scores": "drift of scores",
    "drift_cloud": "drift of embeddings",
}


def no_alerts(only_open: bool) -> str:
    """Say that there is none; open is what nobody has acknowledged."""
    return "No open alerts." if only_open else "No alerts."


_DOUBTS = ("reading stands still", "draws are in doubt", "what comes has drifted")


def sentence(report: RiskReport) -> str:
    """Say in one sentence how a gate stands."""
    gate = report.gate
    counts = "" if report.decided is None else f"{decided_text(report.decided)}; "
    if not report.watched:
        return (
            f"{gate}: {counts}not monitored, because its audit probability is 0; "
            f"`streamer gate set {gate} --audit-probability 0.05` draws a sample."
        )
    if report.read_through is None or report.service is None:
        return f"{gate}: {counts}not monitored yet; `streamer recalibrator` does that."
    closed = f" The gate is closed (policy {report.service.policy})." if report.service.closed else ""
    said = f"{WORDS[report.verdict]}{_because(report, report.service)}{closed}"
    return f"{gate}: {_alarmed(report)} {said[0].upper()}{said[1:]}" if report.standing else f"{gate}: {said}"


def _alarmed(report: RiskReport) -> str:
    """Begin with what nobody has acknowledged: ``ALARM: risk, since ..., closed the gate (policy 5); ...``."""
    first, names = report.standing[0], dict.fromkeys(ALARMS[one.kind] for one in report.standing)
    closed = "" if first.closed_policy is None else f", closed the gate (policy {first.closed_policy})"
    if (
        closed
        and first.kind in ("drift_scores", "drift_cloud")
        and not (report.service and report.service.closed)
    ):
        closed = f", held the gate (policy {first.closed_policy}) until labels cleared it"
    alert = ""
    if first.alert_id is not None:
        named = first.alert_id[:8] if len(report.standing) == 1 else report.gate
        alert = f'; nobody has acknowledged it: `streamer alert acknowledge {named} --reason "..."`'
    since = "" if first.raised_at is None else f" since {when(first.raised_at)}"
    return f"ALARM: {', '.join(names)},{since}{closed}{alert}."


def decided_text(one: Decided) -> str:
    """Say what needs no label: ``100 decided, 11 shipped, none of these labelled yet``."""
    return f"{one.decided} decided, {_shipped(one)}"


def _shipped(one: Decided) -> str:
    if not one.shipped:
        return "none shipped"
    return (
        f"{one.shipped} shipped, {one.labelled or 'none'} of these labelled{'' if one.labelled else ' yet'}"
    )


def headline(report: RiskReport | None) -> str | None:
    """Return the sentence for other commands; None where nothing was ever decided while the gate was open."""
    if report is None or report.service is None or report.read_through is None or not report.watched:
        return None
    service = report.service
    return None if service.closed and service.period is None else sentence(report)


Rows = list[tuple[str, ...]]


class RiskColumns(NamedTuple):
    """A gate's figures side by side: of the policy in force, the period and what was before, at
    least one; each row is named first.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def figures(report: RiskReport) -> RiskColumns | None:
    """Put the policy in force, the period and what was before side by side; None while nothing was decided."""
    service = report.service
    if service is None or report.terms is None:
        return None
    columns: list[tuple[str, OpenFigures]] = []
    if service.present is not None:
        columns.append((f"policy {service.policy}", service.present))
    if service.period is not None and service.period != service.present:
        columns.append((f"this period, {_policies(service.period)}", service.period))
    if service.before is not None and service.before != service.period:
        columns.append((f"before, {_policies(service.before)}", service.before))
    if not columns:
        return None
    shown = [one for _, one in columns]
    rows = [
        ("verdict", *(shown_verdict(report, one) for one in shown)),
        ("since", *(when(one.since) for one in shown)),
        ("prompts read, while open", *(str(one.decisions) for one in shown)),
        ("share of them served", *(percent(one.share_served) for one in shown)),
        *_risk_rows(report, report.terms.budget, shown),
        (_labelled(report)[1], *(str(one.labelled) for one in shown)),
    ]
    if any(one.overdue for one in shown):
        rows.append(("labels that never came", *(str(one.overdue) for one in shown)))
    return RiskColumns(tuple(title for title, _ in columns), tuple(rows))


def risk_names(unit: str, loss: str) -> dict[Risk, str]:
    """What the risks of a gate are called: of claims by its loss, which its budget bounds."""
    if unit != "claim":
        return {"exposure": "exposure", "selective": "error rate among shipped answers"}
    of_some = f"loss {loss} of a prompt that gets something"
    return {"exposure": claim_loss(loss).promise.rstrip(","), "selective": of_some}


def risks_of(report: RiskReport) -> dict[Risk, str]:
    """What the risks of a report are called."""
    return risk_names(*_terms(report))


def _terms(report: RiskReport) -> tuple[str, str]:
    return ("best", "any") if report.terms is None else (report.terms.unit, report.terms.loss)


def _labelled(report: RiskReport) -> tuple[str, str]:
    """What shipped and has a label, one and many."""
    if _terms(report)[0] == "claim":
        return "labelled prompt that got something", "labelled prompts that got something"
    return "labelled shipped answer", "labelled shipped answers"


def _risk_rows(report: RiskReport, budget: float, shown: list[OpenFigures]) -> Rows:
    """The promised risk with its budget, and after it the other one."""
    rows: Rows = []
    for risk, name in sorted(risks_of(report).items(), key=lambda one: one[0] != shown[0].promised):
        promised = f", budget {percent(budget)}" if shown[0].promised == risk else ""
        rows.append((f"{name}{promised}", *(_figure(one, risk) for one in shown)))
    return rows


def _figure(one: OpenFigures, risk: Risk) -> str:
    return interval_text(getattr(one, risk)) if one.share_served else "nothing of it shipped"


def interval_text(interval: RiskInterval) -> str:
    """Write an interval: ``3.1 %, between 1.2 % and 5.9 %``, or ``not known``."""
    estimate = "not known" if interval.estimate is None else percent(interval.estimate)
    if interval.estimate is None and interval.upper - interval.lower == 1:
        return estimate
    return f"{estimate}, between {percent(interval.lower)} and {percent(interval.upper)}"


def stated(service: ServiceReport) -> OpenFigures | None:
    """The figures of the sentence: of the period, or of the policy in force if that alone is broken."""
    sides = [one for one in (service.period, service.present) if one is not None]
    return max(sides, key=lambda one: one.verdict == "broken", default=None)


def _because(report: RiskReport, service: ServiceReport) -> str:
    """Say what a verdict rests on, or what it waits for; ends the sentence."""
    if report.verdict == "not known yet":
        return f": {_waiting(report, service)}.{_missing(service)}"
    broken = report.verdict == "broken"
    sides = [("in this period", service.period), (f"under policy {service.policy}", service.present)]
    if service.present == service.period:
        sides.reverse()
    found = [(name, one) for name, one in sides if one is not None and (one.verdict == "broken") is broken]
    said = f" {found[0][0]}: {_stated(report, found[0][1])}." if found else ""
    if service.reason == "the risk has risen" and not found:
        one = next(one for one in report.standing if one.kind in ("risk", "selective"))
        chance = "" if one.chance is None else f" (false with a chance of at most {percent(one.chance)})"
        said = f" of late: the {ALARMS[one.kind]} alarm says so{chance}."
        if service.period is not None and service.period.labelled:
            said += f" In this period: {_stated(report, service.period)}."
    present = service.present
    if present is not None and present != service.period and found and found[0][1] is not present:
        alone = shown_verdict(report, present)
        said += f" Under policy {service.policy} alone: {alone}, by {counted(present.labelled, 'label', 'labels')}."
    elif present is None and not service.closed:
        said += f" Nothing has been read yet under policy {service.policy}."
    return said + _missing(service)


def _stated(report: RiskReport, side: OpenFigures) -> str:
    """One stretch in figures: ``exposure 14.7 %, at least 10.2 %, budget 10 %; 72.4 % of prompts served, ...``."""
    names = risks_of(report).items()
    said = {risk: f"{name} {_bounded(getattr(side, risk), side.verdict)}" for risk, name in names}
    return (
        f"{said.pop(side.promised)}{_budget(report)}; "
        f"{percent(side.share_served)} of prompts served, {', '.join(said.values())}, by "
        f"{counted(side.labelled, 'label', 'labels')}"
    )


def _waiting(report: RiskReport, service: ServiceReport) -> str:
    backlog, counts = service.backlog, report.decided
    if counts is not None and counts.shipped and not counts.labelled and service.reason not in _DOUBTS:
        return _shipped(counts)
    if service.reason == "reading stands still":
        unread = 0 if backlog is None else backlog.unread
        wait = f"; {counted(unread, 'decision waits', 'decisions wait')} for `streamer recalibrator`"
        return f"reading stands still{wait if unread else ''}"
    if service.reason == "nothing was decided":
        return "nothing was decided while the gate was open"
    if service.reason == "nothing shipped":
        return "nothing has shipped"
    period = service.period
    assert period is not None
    figures = _stated(report, period) if period.labelled else "no label"
    if service.reason == "draws are in doubt":
        return f"the audit sample may not be drawn at the rate that is logged; as recorded, {figures}"
    if service.reason == "what comes has drifted":
        return f"what comes now is not what was calibrated on; so far, {figures}"
    if service.reason == "no labels":
        return f"no shipped {items(_terms(report)[0])[0]} that was drawn has a label"
    one, many = _labelled(report)
    return (
        f"{counted(period.labelled, f'{one} is', f'{many} are')} too few; "
        f"{risks_of(report)[period.promised]} in this period {interval_text(period.judged)}{_budget(report)}"
    )


def _missing(service: ServiceReport) -> str:
    said = ""
    if service.backlog is not None and service.backlog.labels:
        said = f" {_awaited(service.backlog)}."
    if service.period is not None and service.period.overdue:
        said += f" {counted(service.period.overdue, 'label', 'labels')} of this period never came."
    return said


def _awaited(backlog: Backlog) -> str:
    """Say which labels have not come: ``2 labels are missing, the oldest since ...``."""
    since = "" if backlog.oldest is None else f" since {when(backlog.oldest)}"
    return counted(backlog.labels, "label is missing", "labels are missing, the oldest") + since


def _bounded(interval: RiskInterval, verdict: Verdict) -> str:
    if verdict == "not known yet":
        return interval_text(interval)
    edge = (
        f"at least {percent(interval.lower)}" if verdict == "broken" else f"at most {percent(interval.upper)}"
    )
    return f"{percent(interval.estimate or 0.0)}, {edge}"


def _budget(report: RiskReport) -> str:
    return "" if report.terms is None else f", budget {percent(report.terms.budget)}"


def _policies(figures: OpenFigures) -> str:
    first, last = figures.first_policy, figures.last_policy
    return f"policy {first}" if first == last else f"policies {first} to {last}"


def facts(report: RiskReport, desk: DeskReport | None) -> list[tuple[str, str]]:
    """Say what was decided, how far the record is read, how the bounds hold, how much budget is used, how often is drawn."""
    found = []
    if (counts := report.decided) is not None:
        held = ", ".join(
            f"{count} {'by score' if reason == 'scored' else reason.replace('_', ' ')}"
            for reason, count in counts.held.items()
        )
        said = decided_text(counts) + (f"; held: {held}" if held else "")
        found.append(("prompts", f"{said}; since {when(counts.since)}"))
        hours = [f"{one.at:%m-%d %H:%M} {one.shipped} of {one.decided}" for one in counts.hours[-6:]]
        found.append(("shipped by hour", f"{', '.join(hours)} (UTC)"))
    if report.read_through is not None:
        lag = "" if report.service is None else f"; label lag {span(report.service.label_lag_seconds)}"
        found.append(("read through", when(report.read_through) + lag))
    if report.terms is not None:
        share = percent(1 - report.terms.delta)
        found.append(("bounds", f"hold at all times at once, with {share} for each policy and each period"))
    if report.burn is not None:
        found.append(("budget used", burn_text(report.burn)))
    if report.drawing is not None and report.watched:
        found.append(("labels drawn", drawing_text(report.drawing)))
    if desk is not None:
        found.append(("at the desk", desk_text(desk)))
    return found


def shown_verdict(report: RiskReport, figures: OpenFigures) -> str:
    """What the bounds of one column say; nothing is called kept that nobody reads, or that an alarm puts in doubt."""
    doubted = report.service is not None and report.service.reason in _DOUBTS
    return "not known yet" if doubted and figures.verdict == "kept" else figures.verdict


def burn_text(burn: BudgetBurn) -> str:
    """Say how much of the period's budget is used, and how long the rest lasts where that can be said."""
    used = f"{percent(burn.used)} of the whole period's (between {percent(burn.used_lower)} and {percent(burn.used_upper)})"
    if burn.days_left is None or burn.days_left_soonest is None:
        return used
    rest, worst = "the budget will not run out", "at the worst the rest lasts"
    if burn.days_left != float("inf"):
        rest, worst = f"the rest lasts {_days(burn.days_left)}", "at the worst"
    if burn.days_left_soonest != float("inf"):
        rest += f", {worst} {_days(burn.days_left_soonest)}"
    return f"{used}; at this rate {rest}"


def desk_text(desk: DeskReport) -> str:
    """Say what people made of what was held, and what became of it: ``released 3 of 5 (1 edited), ...``."""
    text = f"people released {desk.released} of {desk.total} held batches"
    text += f" ({desk.edited} edited)" if desk.edited else ""
    text += f", rejected {desk.rejected}; {desk.expired} had no decision by their deadline; since {when(desk.since)}"
    named = "answer that was released as it was", "answers that were released as they were"
    if desk.unit == "claim":
        named = "claim that was put back", "claims that were put back"
    if desk.severity is None:
        return f"{text}. No {named[0]} has a label"
    return (
        f"{text}. Of {counted(desk.labelled, *named)} and labelled the mean severity is "
        f"{percent(desk.severity)}. Nothing is promised of these, and no figure above counts them"
    )


def drawing_text(drawing: Drawing) -> str:
    """Say how often decisions are drawn: ``20 %, raised until 2026-11-22 13:00:00Z: ...``."""
    text = percent(drawing.probability)
    if drawing.raised_until is not None:
        text += f", raised until {when(drawing.raised_until)}: {drawing.reason}"
    elif drawing.extra_today:
        text += f", raised no more: {drawing.reason}"
    if drawing.raised_until is not None or drawing.extra_today:
        text += f"; {drawing.extra_today} extra labels today, at most {drawing.most}"
    if drawing.extra:
        text += f"; {counted(drawing.extra, 'extra label', 'extra labels')} in the last budget period"
    return text


def _days(days: float) -> str:
    return f"{days:,.0f} days" if days >= 100 else f"{days:.3g} days"


def alarm_text(one: AlarmReport) -> str:
    """Say how near an alarm is to being raised, or since when it is, and how likely it is false."""
    name = "" if one.statistic in ("", "score") else f"{one.statistic}: "
    chance = f"false with a chance of at most {percent(one.chance)}"
    if one.false_every is not None:
        chance += f" within {one.read} draws, and one more in every {one.false_every}"
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
