"""What an alarm that was raised says: the alert, and the reason of the policy that it closes the gate by."""

from datetime import datetime

from streamer.events.alerts import AlertsV1, Detail, alert
from streamer.risk.rounds.alarm_terms import MISSING_SHARE
from streamer.risk.rounds.state import GateWatch, WatchedAlarm
from streamer.risk.states import EarlyWarning, LabelAlarm, RiskAlarm, RiskInterval

_STATISTICS = {
    "score": "the score of what comes",
    "cosine": "how closely the answers of a batch agree (mean cosine)",
}


_NAMES = {
    "risk": "risk alarm",
    "selective": "selective-risk alarm",
    "missing": "alarm on missing labels",
    "early": "early warning",
    "drift_scores": "drift alarm",
    "drift_cloud": "drift alarm",
}
_SETTINGS = {"risk": "on_alarm", "selective": "on_selective_alarm", "missing": "on_missing"}


def closing_reason(watch: GateWatch, alarm: WatchedAlarm) -> str:
    """Say why the gate is closed, for the policy's record."""
    return f"{_NAMES[alarm.kind]} {alarm.number}: {_finding(alarm)}{_interval(_exposure(watch))}"


def reason_name(alarm: WatchedAlarm) -> str:
    """Name an alarm in the reason of a policy: ``early warning 2``."""
    return f"{_NAMES[alarm.kind]} {alarm.number}"


def holding_reason(alarm: WatchedAlarm) -> str:
    """Say why the gate is held early, for the policy's record."""
    return (
        f"{reason_name(alarm)}: {_warning(alarm)}; held until people's labels of the newest answers clear it"
    )


def _warning(alarm: WatchedAlarm) -> str:
    state = alarm.state
    if not isinstance(state, EarlyWarning):
        return f"what comes has drifted since calibration run {alarm.run}"
    bets, (before, was, since) = state.bets, state.bets.rise
    return (
        f"{_percent(since)} of the last {bets.seen - before} marks of answers that shipped are bad"
        f" ({alarm.about.partition(',')[0]}), and {_percent(was)} of the {before} before; that is"
        f" false with a chance of at most {_percent(bets.chance(bets.seen))}"
    )


def alert_of(
    watch: GateWatch,
    alarm: WatchedAlarm,
    *,
    at: datetime,
    policy_version: int,
    closed: int | None = None,
    refused: str | None = None,
    closed_anyway: int | None = None,
) -> AlertsV1:
    """Make the alert of an alarm that was raised.

    `policy_version`: in force before anything was closed. `closed`, `refused`: the policy that
    closed the gate because of it; why it could not be closed. `closed_anyway`: a policy that ships
    nothing and is in force for another reason.
    """
    state = alarm.state
    details: dict[str, Detail] = {
        "alarm": alarm.number,
        "delta": state.bets.delta,
        "decisions": state.bets.seen,
        "batch": alarm.raised_by,
        # The alert is sealed, and the table of alarms is not.
        "state": state.to_json(),
    }
    if isinstance(state, LabelAlarm):
        exposure = _exposure(watch)
        details |= {"closed_by_policy": closed, "false_every": state.bets.false_every}
        if isinstance(state, RiskAlarm):
            details |= {"budget": state.alpha, "theta": state.theta}
        if exposure is not None:
            details |= {
                "exposure": exposure.estimate,
                "exposure_lower": exposure.lower,
                "exposure_upper": exposure.upper,
                "overdue": exposure.overdue,
            }
        done = _done(watch.gate, alarm, closed, refused, closed_anyway)
        message = f"{watch.gate}: {_finding(alarm)}{_interval(exposure)} {done}"
    elif alarm.kind == "early":
        details["closed_by_policy"] = closed
        message = f"{watch.gate}: {_warning(alarm)}. It says nothing of the budget. {_held(watch.gate, closed, refused)}"
    elif alarm.kind == "draws":
        message = (
            f"{watch.gate}: the audit sample is not drawn at the rate that is logged (alarm {alarm.number}, after"
            f" {state.bets.seen} decisions; falsely so with a chance of at most {_percent(state.bets.delta)}). Until this is"
            " explained no figure of the risk in service holds, and no calibration either. Look for a worker of another"
            " version, records that were left out, or changed rows: `streamer audit verify`."
        )
    elif alarm.kind in ("drift_scores", "drift_cloud"):
        details |= {"statistic": alarm.statistic, "run": alarm.run}
        what = _STATISTICS.get(alarm.statistic, "what the answers are about (direction of their embeddings)")
        message = (
            f"{watch.gate}: {what} has drifted since calibration run {alarm.run} (after {state.bets.seen} decisions;"
            f" falsely so with a chance of at most {_percent(state.bets.delta)}). It says nothing about harm: label some of what"
            " comes now, and recalibrate if the world has changed."
        )
        if closed is not None or refused is not None:
            details["closed_by_policy"] = closed
            message += f" {_held(watch.gate, closed, refused)}"
    else:
        raise ValueError(f"an alert says nothing of alarms of the kind {alarm.kind!r}")
    cause = f"alarm {alarm.number}" + (f" {alarm.statistic}" if alarm.statistic else "")
    return alert(
        watch.gate,
        alarm.kind,
        cause,
        message=message,
        raised_at=at,
        details=details,
        policy_version=policy_version,
    )


def closed_alert(gate: str, alarm: WatchedAlarm, *, closed: int, at: datetime) -> AlertsV1:
    """Make the alert that says that the program closed a gate."""
    return alert(
        gate,
        "gate_closed",
        f"policy {closed}",
        message=f"{gate} was closed by the program (policy {closed}, {reason_name(alarm)}): it ships nothing until it is recalibrated.",
        raised_at=at,
        details={"closed_by_policy": closed, "alarm": alarm.number},
        policy_version=closed,
    )


def _held(gate: str, closed: int | None, refused: str | None) -> str:
    if refused is not None:
        return (
            f"The gate could NOT be held: {refused.removesuffix('.')}. Close it yourself: `{_close(gate)}`."
        )
    if closed is None:
        return "The gate goes on shipping."
    return (
        f"The gate is held (policy {closed}) until people's labels of the newest answers that shipped clear it: label"
        f" them first, `streamer label queue --gate {gate}`."
    )


def _finding(alarm: WatchedAlarm) -> str:
    state = alarm.state
    assert isinstance(state, LabelAlarm)
    seen = state.bets.seen
    or_missing = ""
    if alarm.kind == "missing":
        or_missing = (
            f", or more than {_percent(MISSING_SHARE)} of prompts ship answers that get no label in time,"
        )
    what = (
        f"expected exposure risk passed {_percent(state.theta)} (budget {_percent(state.alpha)}, tolerance"
        f" {_percent(state.tolerance)}){or_missing} within {seen} draws"
        if isinstance(state, RiskAlarm)
        else f"what ships is no better than if everything shipped, by {seen} draws of it"
    )
    return f"{what}; that is false with a chance of at most {_percent(state.bets.chance(seen))}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _exposure(watch: GateWatch) -> RiskInterval | None:
    """In this budget period, of what was decided while the gate was open and has been read to the end."""
    period = None if watch.service is None else watch.service.period
    return None if period is None else period.open.exposure()


def _interval(exposure: RiskInterval | None) -> str:
    if exposure is None or exposure.estimate is None:
        return ""
    return (
        f" Over {exposure.decisions} decisions made while the gate was open, the first of this budget period, exposure was"
        f" {_percent(exposure.estimate)}, between {_percent(exposure.lower)} and {_percent(exposure.upper)}."
    )


def _close(gate: str) -> str:
    return f"streamer threshold close {gate} --reason 'risk alarm'"


def _done(
    gate: str, alarm: WatchedAlarm, closed: int | None, refused: str | None, closed_anyway: int | None
) -> str:
    if closed is not None:
        return f"The gate was closed (policy {closed}). `streamer alert show {gate}` says what to do."
    if refused is not None:
        return (
            f"The gate could NOT be closed: {refused.removesuffix('.')}. Close it yourself: `{_close(gate)}`."
        )
    if closed_anyway is not None:
        return f"The gate is closed already (policy {closed_anyway}). Look at what shipped."
    return (
        f"The gate goes on shipping, as it is set to ({_SETTINGS[alarm.kind]} report). Look at what shipped; `{_close(gate)}`"
        f" ships nothing from then on, `streamer recalibrate {gate}` recalibrates it."
    )
