"""The alarms that are opened for a gate: what each bets against, and what it may spend."""

import math
from typing import Literal

from streamer.gates.settings import GateSettings
from streamer.risk.rounds.state import DRIFTS, AlarmState, LabelAlarmKind, WatchedAlarm
from streamer.risk.rounds.store import CalibratedSample
from streamer.risk.states import DrawAlarm, EarlyWarning, LabelAlarm, RiskAlarm, SelectiveAlarm

ACKNOWLEDGED = "acknowledged"
RISK_RAISED = "the risk alarm was raised"
TERMS_CHANGED = "the gate was changed in what the alarm is about"

MISSING_SHARE = 0.05
"""Of the prompts, whose answers may ship and get no label within the label lag: that many by what the lag is."""

_BAD_ENOUGH = 1.5
"""What ships may be so many times as bad as a gate that uses its whole budget, before the selective-risk alarm calls it
no better than shipping everything."""


def chance_of(delta: float, number: int) -> float:
    """Return what the n-th alarm of a gate may spend: delta 6/(pi^2 n^2), so that all of them together spend delta."""
    return delta * 6 / (math.pi * number) ** 2


def opened(
    kind: LabelAlarmKind | Literal["early", "draws"],
    settings: GateSettings,
    before: WatchedAlarm | None = None,
    *,
    after: int,
    after_policy: int = 0,
    run: int | None = None,
) -> WatchedAlarm:
    """Open the first alarm of a kind, or the next one after `before`, on decisions after `after` of policies after `after_policy`.

    `run`, of an early warning, is the calibration that says how bad what ships may be for it to be taken back.
    """
    number = 1 if before is None else before.number + 1
    delta, every = chance_of(settings.alarm_delta, number), settings.alarm_false_every
    about = _about(settings)
    state: AlarmState
    match kind:
        case "risk" | "missing":
            state = RiskAlarm.open(
                alpha=_budget(settings), delta=delta, tolerance=_tolerance(settings), false_every=every
            )
        case "selective":
            state = SelectiveAlarm.open(delta=delta, false_every=every)
        case "early":
            about, state = early_about(settings), EarlyWarning.open(delta=delta, false_every=every)
        case "draws":
            about, state = "", DrawAlarm.open(delta=delta)
    return WatchedAlarm(
        kind=kind,
        number=number,
        about=about,
        after=after,
        after_policy=after_policy,
        run=run,
        state=state,
    )


def early_about(settings: GateSettings) -> str:
    """What an early warning reads: of another one there is another stable phase."""
    return f"{settings.early}, {settings.judge_kind}, {_about(settings)}"


def warns(settings: GateSettings, alarm: WatchedAlarm) -> bool:
    """Whether an alarm, once it is raised, is what holds the gate early."""
    return alarm.kind in DRIFTS if settings.early == "drift" else alarm.kind == "early"


def goes_on(alarm: WatchedAlarm, settings: GateSettings) -> bool:
    """Whether an alarm on audit labels is the one that these settings ask for."""
    state = alarm.state
    assert isinstance(state, LabelAlarm)
    if isinstance(state, RiskAlarm) and (state.alpha, state.tolerance) != (
        _budget(settings),
        _tolerance(settings),
    ):
        return False
    return (
        alarm.about == _about(settings)
        and state.bets.delta == chance_of(settings.alarm_delta, alarm.number)
        and state.bets.false_every == settings.alarm_false_every
    )


def selective_limit(settings: GateSettings, calibrated: CalibratedSample) -> float | None:
    """Return the mean severity from which on what ships is no better than if everything shipped; None where there is none.

    That is the mean severity of the calibration sample, and no more than half above what a gate that uses its whole budget
    ships: alpha over the share that it ships. It is never below alpha and its tolerance: whoever is inside that keeps the
    budget whatever share ships. A method that bounds selective risk itself is held to that.
    """
    theta = _budget(settings) + _tolerance(settings)
    if settings.calibrator.risk == "selective":
        return theta
    if calibrated.ship_share <= 0:
        return None
    limit = max(theta, min(_BAD_ENOUGH * _budget(settings) / calibrated.ship_share, calibrated.mean_severity))
    return limit if limit < 1 else None


def severity_limit(settings: GateSettings, calibrated: CalibratedSample | None) -> float:
    """Return the mean severity of what ships that takes an early warning back."""
    limit = None if calibrated is None else selective_limit(settings, calibrated)
    return _budget(settings) + _tolerance(settings) if limit is None else limit


def _budget(settings: GateSettings) -> float:
    return settings.alpha / settings.max_attempts


def _tolerance(settings: GateSettings) -> float:
    return min(settings.alarm_tolerance * _budget(settings), (1 - _budget(settings)) / 2)


def _about(settings: GateSettings) -> str:
    unit = f"claim by {settings.loss}" if settings.unit == "claim" else settings.unit
    return f"{unit}, {settings.scorer}, {settings.severity_kind}"
