"""The verdict: whether a gate keeps its budget, over decisions made while it was open, as of now. Pure.

It is about the budget period, by two bets (`states.verdict_bets`) on every decision as soon as it is on record. `kept` takes four
things besides its bet: a shipped answer with a label; bets that have read to within one label lag of now; an audit that is
drawn as logged; and no alarm, on drift or on the promised risk, that nobody has acknowledged. `broken` is said by the other
bet, by the interval of the policy in force alone, and while an alarm on the promised risk stands. Everything else is not known
yet. So with a chance of at most delta/2 a period that breaks the budget is ever called kept, however often it is read.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from streamer.calibration.specification import Risk
from streamer.gates.policy import Policy
from streamer.risk.rounds.report import Backlog, OpenFigures, Reason, RiskReport, ServiceReport, Verdict
from streamer.risk.rounds.state import DRIFTS, GateWatch, Stretch
from streamer.risk.rounds.tally import Tally
from streamer.risk.states import OpenTime, RiskInterval, with_unread

LEAST_LAG = timedelta(minutes=1)
"""Reading never counts as standing still sooner: it comes in rounds."""


MOST_COUNTED = 10_000


def with_verdict(
    report: RiskReport,
    watch: GateWatch,
    policy: Policy,
    *,
    now: datetime,
    backlog: Backlog | None = None,
) -> RiskReport:
    """Put the verdict of this moment, under the newest policy, into a gate's report.

    Where `backlog`, what has not been read, is None, everything that the newest mark of the watch
    has was looked for just now.
    """
    deadline = policy.settings.monitor_deadline_seconds
    service, tally = watch.service, watch.tally
    lag = deadline if service is None else service.lag(deadline)
    budget = policy.settings.alpha / policy.settings.max_attempts
    risk = policy.settings.calibrator.risk
    if tally is not None and (tally.terms.budget, tally.bets.selective) != (budget, risk == "selective"):
        tally = None
    present = period = before = None
    if service is not None:
        same = watch.sequence is not None and watch.sequence.terms.budget == budget
        period = _figures(service.period, budget, risk) if same else None
        if service.policy == policy.version and not policy.ships_nothing:
            present = _figures(service.present, budget, risk)
            before = _figures(service.before, budget, risk)
    covered = watch.covered
    alone = covered is not None and present is not None and present == period
    if tally is not None and tally.bets.decisions:
        read = (period, covered[1]) if period is not None and covered is not None else None
        period = _in_time(tally, read, policy, lag)
        present = period if alone else present
    stands = _stands(watch, now=now, lag=lag, backlog=backlog)
    verdict, reason = _judged(report, present, period, stands=stands)
    if report.burn is not None and (policy.ships_nothing or verdict == "broken"):
        report = replace(report, burn=replace(report.burn, days_left=None, days_left_soonest=None))
    return replace(
        report,
        verdict=verdict,
        service=ServiceReport(
            policy=policy.version,
            closed=policy.ships_nothing,
            reason=reason,
            label_lag_seconds=lag,
            backlog=backlog,
            present=present,
            period=period,
            before=before,
        ),
    )


def _stands(watch: GateWatch, *, now: datetime, lag: float, backlog: Backlog | None) -> bool:
    """Whether the bets do not reach to within the label lag of now."""
    if backlog is not None and backlog.unread == 0:
        return False
    through = max((one.at for one in watch.marks if one.decisions <= watch.bet), default=None)
    return through is None or (now - through).total_seconds() > max(lag, LEAST_LAG.total_seconds())


def _judged(
    report: RiskReport, present: OpenFigures | None, period: OpenFigures | None, *, stands: bool
) -> tuple[Verdict, Reason]:
    sides = [one for one in (present, period) if one is not None]
    standing = {one.kind for one in report.standing}
    if "risk" in standing or ("selective" in standing and any(one.promised == "selective" for one in sides)):
        return "broken", "the risk has risen"
    if any(one.verdict == "broken" for one in sides):
        return "broken", ""
    if period is None:
        return "not known yet", "reading stands still" if stands else "nothing was decided"
    if stands:
        return "not known yet", "reading stands still"
    if "draws" in standing:
        return "not known yet", "draws are in doubt"
    if not standing.isdisjoint(DRIFTS):
        return "not known yet", "what comes has drifted"
    if period.share_served == 0:
        return "not known yet", "nothing shipped"
    if period.labelled == 0:
        return "not known yet", "no labels"
    if period.verdict == "kept":
        return "kept", ""
    return "not known yet", "too few labels"


def _in_time(
    tally: Tally, read: tuple[OpenFigures, OpenTime] | None, policy: Policy, lag: float
) -> OpenFigures:
    """The period by its bets, which wait for no label, between the bounds of what has been read in order, and of what shipped
    since.

    Bounds and verdict are about the same mean: a bound that says less is cut at the budget, and one that would say more is
    drawn out to it. Labels that came late or were raised are in the estimate alone: where it passes the upper bound, that says
    nothing.
    """
    bets = tally.bets
    word = bets.says(tally.newest.timestamp() - lag)
    share = bets.shipped / bets.decisions
    error = bets.selective_risk
    figures = OpenFigures(
        first_policy=tally.since_policy,
        last_policy=policy.version,
        since=tally.began_at,
        until=tally.newest,
        decisions=0,
        share_served=0.0,
        labelled=0,
        overdue=0,
        selective=bets.nothing_read,
        exposure=bets.nothing_read,
        verdict="not known yet",
        promised="selective" if bets.selective else "exposure",
    )
    size, unread, whole = 0.0, bets.shipped, bets.shipped if bets.selective else bets.decisions
    if read is not None:
        figures, opened = read
        size = opened.served.shipped if bets.selective else opened.decisions
        unread = max(0.0, unread - opened.served.shipped)
    judged = with_unread(figures.judged, size, unread=unread, whole=whole)
    lower, upper = judged.lower, judged.upper
    lower = max(lower, bets.alpha) if word == "broken" else min(lower, bets.alpha)
    upper = min(upper, bets.alpha) if word == "kept" else max(upper, bets.alpha)
    if error is not None and upper < error * (1.0 if bets.selective else share):
        upper = 1.0
    if not bets.selective:
        upper = min(upper, max(share, lower))
    scale = 1.0 if bets.selective else 1 / share if share else 0.0

    def figure(part: float) -> RiskInterval:
        """What the bounds say of the error rate among what shipped, or of `part` of it."""
        low, high = (min(1.0, one * scale) * part for one in (lower, upper))
        value = None if error is None else min(high, max(low, error * part))
        return replace(
            judged, decisions=bets.decisions, labels=bets.labelled, estimate=value, lower=low, upper=high
        )

    return replace(
        figures,
        decisions=bets.decisions,
        share_served=bets.served / bets.decisions,
        labelled=bets.labelled,
        until=tally.newest,
        verdict=word or "not known yet",
        selective=figure(1.0),
        exposure=figure(share),
    )


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
