"""When more of a gate's decisions are drawn for labelling than its own share: while the risk alarm's evidence is high."""

from datetime import datetime, timedelta

from streamer.gates.audit_rate import AuditRate, day_of
from streamer.gates.policy import Policy
from streamer.risk.rounds.state import GateWatch
from streamer.risk.states import RiskAlarm

LEAST_EVIDENCE = 0.2
"""From here on more is drawn. Evidence begins near one half and falls in a stable stream; where the budget is broken it rises
above this long before the alarm."""

YOUNG_DRAWS = 30
"""Draws that a new alarm reads first: until then its evidence is near where it began, whatever comes."""

LASTS = timedelta(hours=1)
"""A raised rate ends after so long unless it is renewed: the process that would end it may be gone."""

_MOST_EVIDENCE = 1e300


def next_rate(
    present: AuditRate | None,
    extra: int,
    *,
    watch: GateWatch,
    policy: Policy,
    has_read: bool,
    now: datetime,
) -> AuditRate | None:
    """Return the audit rate to be written; None while the present one is right.

    `present`: the newest one; None where there never was one. `extra`: labels that raised rates
    asked for on the day of `present`. `watch`: the gate as it was just read. `policy`: the newest.
    `has_read`: whether there was anything to read: the rate of a gate without traffic ends, and
    comes back with it.
    """
    midnight = day_of(now) + timedelta(days=1)
    today = extra if present is not None and day_of(present.since) == day_of(now) else 0
    alarm = watch.alarm("risk")
    evidence = 0.0
    if alarm is not None and isinstance(alarm.state, RiskAlarm):
        evidence = min(alarm.state.known_evidence, _MOST_EVIDENCE)
    raised = present is not None and present.raises(now)
    why_not = _why_not(watch, policy, evidence, today)
    if why_not is not None:
        if not raised:
            return None
        return AuditRate(boosted=False, since=now, until=now, evidence=evidence, extra=today, reason=why_not)
    until = min(now + LASTS, midnight)
    if not has_read or (present is not None and raised and until - present.until < LASTS / 2):
        return None
    return AuditRate(
        boosted=True,
        since=now,
        until=until,
        evidence=evidence,
        extra=today,
        reason=f"the risk alarm's evidence is {evidence:.3g}, at least {LEAST_EVIDENCE:g}",
    )


def _why_not(watch: GateWatch, policy: Policy, evidence: float, today: int) -> str | None:
    """Say why nothing more than the gate's own share is drawn; None where more is."""
    settings, alarm = policy.settings, watch.alarm("risk")
    if settings.boosted_probability == settings.audit_probability:
        return "the gate's settings raise its audit probability no more"
    if policy.ships_nothing:
        return "the gate ships nothing"
    if alarm is not None and alarm.raised_by is not None:
        return "the risk alarm is raised: it needs no more evidence"
    if alarm is None or alarm.state.bets.seen < YOUNG_DRAWS:
        return f"the risk alarm has read fewer than {YOUNG_DRAWS} draws"
    if evidence < LEAST_EVIDENCE:
        return f"the risk alarm's evidence is {evidence:.3g}, below {LEAST_EVIDENCE:g}"
    if today >= settings.audit_boost_most:
        return f"the {settings.audit_boost_most} extra labels that the gate allows for today are asked for"
    return None
