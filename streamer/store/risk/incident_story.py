"""What happened in an incident, in order, and what to do now: the same for the command line and the console."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import fmean
from typing import Literal, NamedTuple

from streamer.calibration.plan import least_groups
from streamer.events.alerts import LEVELS, OTHER_CAUSES, AlertsV1
from streamer.gates.policy import Policy
from streamer.gates.setting_changes import calibrated_for_another
from streamer.recalibration.run import SampleQuery
from streamer.store.risk.alerts import Incident, ShippedDraw, change_began
from streamer.store.store import Store
from streamer.wording.numbers import counted, items, percent, when
from streamer.wording.policies import cut_text, own_cuts, threshold_text, who, why_text

MOST_TOLD = 10
_BAD = 0.5
_ON_LABELS = {"risk", "selective"}
_ON_ANSWERS = set(LEVELS) - set(OTHER_CAUSES)


class Step(NamedTuple):
    """One thing to do: what and why, the command that does it, and which form of the console does; None: none does."""

    what: str
    command: str
    act: Literal["close", "label", "proposal", "recalibrate", "rollback"] | None = None
    version: int | None = None


class IncidentStory(NamedTuple):
    """An incident as it went: `timeline`, what happened, the oldest first, to go under the
    message of the worst alert; `told`, the labels that told of the change: of shipped answers
    since it began, the worst of the newest; `steps`, what to do now, in this order, empty once
    all is acknowledged."""

    timeline: list[tuple[datetime, str]]
    told: list[ShippedDraw]
    steps: list[Step]


def story_of(store: Store, incident: Incident, *, now: datetime) -> IncidentStory:
    """Read what happened in an incident, and say what to do at this moment."""
    gate, first = incident.gate, incident.first.alert.raised_at
    policies = [one.active.policy for one in store.policies.every_version(gate) if one.active is not None]
    timeline, told = [], list[ShippedDraw]()
    on_labels = [one.alert.raised_at for one in incident.alerts if one.alert.kind in _ON_LABELS]
    if on_labels:
        kind = store.gates.get(gate).settings.severity_kind
        draws = store.alerts.draws(gate, kind=kind, until=min(on_labels))
        if (began := change_began([one.severity for one in draws])) is not None:
            before, since = draws[:began], draws[began:]
            timeline.append(
                (
                    since[0].decided_at,
                    f"the change began about here: {_rate(since)} since, {_rate(before)} before",
                )
            )
            told = [one for one in reversed(since) if one.severity >= _BAD][:MOST_TOLD]
    timeline += [
        (one.alert.raised_at, f"{one.alert.level}: {_said(one.alert, incident)}") for one in incident.alerts
    ]
    ended = None if incident.open else max(one.acknowledged_at or first for one in incident.alerts)
    timeline += [
        (
            one.valid_from,
            f"policy {one.version}, {threshold_text(one)}, by {who(one.created_by)}: {why_text(one.created_by, one.reason)}",
        )
        for one in policies
        if one.valid_from >= first and (ended is None or one.valid_from <= ended)
    ]
    answered = {
        (one.acknowledged_at, one.acknowledged_by, one.acknowledged_reason)
        for one in incident.alerts
        if one.acknowledged_at is not None and one.acknowledged_by is not None
    }
    timeline += [(at, f"acknowledged by {who(by)}: {reason}") for at, by, reason in answered if at and by]
    steps = _steps(store, incident, policies, now) if incident.open and policies else []
    return IncidentStory(sorted(timeline, key=lambda one: one[0]), told, steps)


def _said(alert: AlertsV1, incident: Incident) -> str:
    """What an alert says; of the worst, whose message stands above the timeline, its kind."""
    if alert is incident.alerts[0].alert:
        return f"{alert.kind.replace('_', ' ')}, as above"
    return alert.message.removeprefix(f"{alert.gate}: ")


def _rate(draws: Sequence[ShippedDraw]) -> str:
    return f"{percent(fmean(one.severity for one in draws), 0)} wrong of {counted(len(draws), 'labelled answer', 'labelled answers')}"


def _steps(store: Store, incident: Incident, policies: Sequence[Policy], now: datetime) -> list[Step]:
    gate, present = incident.gate, policies[-1]
    kinds = {one.alert.kind for one in incident.open}
    closed = present.state == "closed" and not own_cuts(present.rule)
    steps = []
    if not closed and any(LEVELS[kind] == "page" for kind in kinds - {"policy_refused", "no_signing_key"}):
        steps.append(
            Step(
                "Close the gate: it costs only answers.",
                f'streamer threshold close {gate} --reason "..."',
                "close",
            )
        )
    if kinds & {"draws", "policy_refused"}:
        steps.append(
            Step("See whether the record is as it was written, and who wrote what.", "streamer audit verify")
        )
    if kinds & {"policy_refused", "no_signing_key"}:
        steps.append(
            Step(
                "See who made the policies; then sign the good one, or give the recalibrator its key.",
                f"streamer threshold list {gate}",
            )
        )
    if kinds & _ON_ANSWERS:
        if "missing" in kinds and store.calibration.alarm_closure(gate) is not None:
            steps += _waiting(store, gate, "only they tell whether what went out was wrong")
        steps += _recalibration(store, gate, now)
        older = next((one for one in reversed(policies) if goes_back(one, present)), None)
        if older is not None:
            steps.append(
                Step(
                    f"If the cause is mended, go back to policy {older.version} ({threshold_text(older)}).",
                    f'streamer threshold rollback {gate} --to {older.version} --reason "..."',
                    "rollback",
                    older.version,
                )
            )
    return steps


def _recalibration(store: Store, gate: str, now: datetime) -> list[Step]:
    """What a new threshold needs; after an alarm only what was decided since counts, and labels of older draws calibrate nothing."""
    settings, since = store.gates.get(gate).settings, store.calibration.alarm_closure(gate)
    told = "Recalibrate, and look at what it proposes; if nothing would ship, only a larger budget or better answers help."
    again = Step(told, f"streamer recalibrate {gate} --propose", "recalibrate")
    if (found := store.calibration.proposal(gate)) is not None:
        why = f" It waits for a person: {found.why}." if found.why else ""
        told = f"Look at what run {found.run} proposes, {cut_text(found.cut, found.rule)}; put it in force, or reject it.{why}"
        again = Step(told, f"streamer threshold show {gate}", "proposal")
    if since is None:
        return [*_waiting(store, gate, "a new threshold rests on them"), again]
    before = now - timedelta(seconds=settings.label_deadline_seconds)
    drawn = store.calibration.audit_sample(SampleQuery(gate, settings, before, since.version))
    waits = sum(one.missing(settings) > 0 for one in drawn)
    least = least_groups(settings.alpha, settings.max_attempts, settings.calibrator)
    told = (
        f"Publish on, and label what is drawn: a closed gate too decides, holds, and draws {percent(settings.audit_probability)}. "
        f"A new threshold rests only on prompts decided from policy {since.version} on{f' and before {when(before)}' * (before < now)}: "
        f"{len(drawn)} drawn, {len(drawn) - waits} of them labelled, at least {least} wanted."
    )
    ready = found is not None or len(drawn) - waits >= least
    return [
        Step(told, f"streamer label queue --gate {gate}", "label" if waits else None),
        *([again] if ready else []),
    ]


def _waiting(store: Store, gate: str, why: str) -> list[Step]:
    if not (waiting := store.labels.pending().get(gate, 0)):
        return []
    told = f"Label {counted(waiting, *items(store.gates.get(gate).settings.unit))} that wait: {why}."
    return [Step(told, f"streamer label queue --gate {gate}", "label")]


def goes_back(older: Policy, present: Policy) -> bool:
    """Whether somebody may want to go back to a policy, and can: it ships something else, and is for the same settings."""
    return (
        older.calibrated
        and (older.state != "closed" or own_cuts(older.rule))
        and (older.state, older.threshold, older.rule) != (present.state, present.threshold, present.rule)
        and not calibrated_for_another(older.settings, present.settings)
    )
