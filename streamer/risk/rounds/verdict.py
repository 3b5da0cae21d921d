"""The verdict: whether a gate keeps its budget, over decisions made while it was open, as of now. Pure.

Over two stretches side by side: the policy in force, and the budget period. What was before that policy is context.

`kept` takes five things: the upper bound of the risk that the gate's method bounds (exposure risk, or the error rate among
shipped answers) is inside the budget in both; a shipped answer with a label is among them; reading reaches to within one
label lag of now; the audit is drawn as logged; and no alarm stands that says that what comes is worse than the mean of what
was, or may be: on drift, or, while the gate is open, on the promised risk. `broken` is said where the lower bound of either is
above the budget. Everything else is not known yet. So with a chance of at most delta/2 a policy that breaks
the budget is ever called kept, however often it is read; each policy and each period has its own delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from streamer.calibration.specification import Risk
    from streamer.gates.policy import Policy
    from streamer.risk.rounds.report import RiskReport, Verdict
    from streamer.risk.rounds.serving import Stretch
    from streamer.risk.rounds.state import GateWatch
    from streamer.risk.states import RiskInterval

LEAST_LAG = timedelta(minutes=1)
"""Reading never counts as standing still sooner: it comes in rounds."""

Reason = Literal[
    "",
    "nothing was decided",
    "nothing shipped",
    "no labels",
    "too few labels",
    "reading stands still",
    "draws are in doubt",
    "what comes has drifted",
    "the risk has risen",
]
"""Why a verdict is not known yet; empty where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What has not been read of a gate.

    Attributes
    ----------
    decisions : at most `MOST_COUNTED`.
    labels : drawn answers among them that shipped and have no label.
    oldest : when the oldest of these was decided; None where there is none.
    """

    decisions: int
    labels: int
    oldest: datetime | None


MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFigures:
    """One stretch of decisions made while the gate was open.

    Attributes
    ----------
    first_policy, last_policy : the oldest and the newest policy among them.
    since, until : when the first and the newest of them were made.
    decisions : prompts decided.
    share_served : share of them of which something shipped: counted of all, so exact.
    labelled : shipped answers with a label.
    overdue : drawn decisions that shipped something and whose label had not come at the deadline.
    selective : error rate among shipped answers, between bounds.
    exposure : exposure risk, between bounds.
    verdict : what the bounds of the promised risk say, whatever reading and the alarms do.
    promised : what the budget of the gate's method is on.
    """

    first_policy: int
    last_policy: int
    since: datetime
    until: datetime
    decisions: int
    share_served: float
    labelled: int
    overdue: int
    selective: RiskInterval
    exposure: RiskInterval
    verdict: Verdict
    promised: Risk = "exposure"

    @property
    def judged(self) -> RiskInterval:
        """The interval of the promised risk."""
        return self.selective if self.promised == "selective" else self.exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """What the verdict rests on.

    Attributes
    ----------
    policy : the newest one.
    closed : it ships nothing.
    reason : why the verdict is not known yet.
    label_lag_seconds : how long labels take: 95 % quantile, or the gate's monitor deadline while too few are known.
    reading_stands : reading does not reach to within the label lag of now.
    backlog : what has not been read; None where that was not asked.
    present : under the policy in force; None while nothing was decided under it, and where it ships nothing.
    period : in the budget period.
    before : in the period under earlier policies than that in force.
    """

    policy: int
    closed: bool
    reason: Reason
    label_lag_seconds: float
    reading_stands: bool
    backlog: Backlog | None
    present: OpenFigures | None
    period: OpenFigures | None
    before: OpenFigures | None


def with_verdict(
    report: RiskReport,
    watch: GateWatch,
    policy: Policy,
    *,
    now: datetime,
    backlog: Backlog | None = None,
) -> RiskReport:
    """Put the verdict of this moment into a gate's report.

    Parameters
    ----------
    policy : the newest one.
    backlog : what has not been read; where None, reading is judged by `report.read_through` alone.
    """
    deadline = policy.settings.monitor_deadline_seconds
    service = watch.service
    lag = deadline if service is None else service.lag(deadline)
    budget = policy.settings.alpha / policy.settings.max_attempts
    risk = policy.settings.calibrator.risk
    present = period = before = None
    if service is not None:
        same = watch.sequence is not None and watch.sequence.terms.budget == budget
        period = _figures(service.period, budget, risk) if same else None
        if service.policy == policy.version and not policy.ships_nothing:
            present = _figures(service.present, budget, risk)
            before = _figures(service.before, budget, risk)
        else:
            before = period
    behind = service is None or service.read < watch.read
    stands = _stands(report, now=now, lag=lag, behind=behind, backlog=backlog)
    verdict, reason = _judged(report, present, period, closed=policy.ships_nothing, stands=stands)
    return replace(
        report,
        verdict=verdict,
        service=ServiceReport(
            policy=policy.version,
            closed=policy.ships_nothing,
            reason=reason,
            label_lag_seconds=lag,
            reading_stands=stands,
            backlog=backlog,
            present=present,
            period=period,
            before=before,
        ),
    )


def as_of(report: RiskReport, now: datetime) -> RiskReport:
    """Say at a later moment what was said before, when nothing has come since: only reading can have fallen behind."""
    service = report.service
    if service is None:
        return report
    stands = _stands(report, now=now, lag=service.label_lag_seconds, behind=False, backlog=service.backlog)
    verdict, reason = _judged(report, service.present, service.period, closed=service.closed, stands=stands)
    return replace(report, verdict=verdict, service=replace(service, reading_stands=stands, reason=reason))


def _stands(report: RiskReport, *, now: datetime, lag: float, behind: bool, backlog: Backlog | None) -> bool:
    if report.read_through is None or behind:
        return True
    if backlog is not None and backlog.decisions == 0:
        return False
    return (now - report.read_through).total_seconds() > max(lag, LEAST_LAG.total_seconds())


def _judged(
    report: RiskReport, present: OpenFigures | None, period: OpenFigures | None, *, closed: bool, stands: bool
) -> tuple[Verdict, Reason]:
    sides = [one for one in (present, period) if one is not None]
    if any(one.verdict == "broken" for one in sides):
        return "broken", ""
    if not sides or (present is None and not closed):
        return "not known yet", "reading stands still" if stands else "nothing was decided"
    if stands:
        return "not known yet", "reading stands still"
    draws = report.alarm("draws")
    if draws is not None and draws.raised_at is not None:
        return "not known yet", "draws are in doubt"
    if any(one.raised_at is not None for one in report.alarms if one.kind in ("drift_scores", "drift_cloud")):
        return "not known yet", "what comes has drifted"
    if present is not None and any(
        one.raised_at is not None
        for one in report.alarms
        if one.kind == "risk" or (one.kind == "selective" and present.promised == "selective")
    ):
        return "not known yet", "the risk has risen"
    if any(one.share_served == 0 for one in sides):
        return "not known yet", "nothing shipped"
    if any(one.labelled == 0 for one in sides):
        return "not known yet", "no labels"
    if all(one.verdict == "kept" for one in sides):
        return "kept", ""
    return "not known yet", "too few labels"


def _figures(stretch: Stretch | None, budget: float, risk: Risk) -> OpenFigures | None:
    if stretch is None or not stretch.open.decisions:
        return None
    found = stretch.open
    figures = OpenFigures(
        first_policy=stretch.first_policy,
        last_policy=stretch.last_policy,
        since=stretch.since,
        until=stretch.until,
        decisions=found.decisions,
        share_served=found.share_served or 0.0,
        labelled=found.answers,
        overdue=found.served.overdue,
        selective=found.selective(),
        exposure=found.exposure(),
        verdict="not known yet",
        promised=risk,
    )
    if figures.judged.lower > budget:
        return replace(figures, verdict="broken")
    if figures.judged.upper < budget and found.answers:
        return replace(figures, verdict="kept")
    return figures
