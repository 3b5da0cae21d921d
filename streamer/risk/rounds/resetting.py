"""When an alarm that was raised makes room for the next one. A new policy alone, or a recalibration, is no reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamer.risk.rounds.alarms import ACKNOWLEDGED, draw_alarm, early_warning, label_alarm
from streamer.risk.rounds.state import GateWatch, WatchedAlarm

if TYPE_CHECKING:
    from streamer.risk.rounds.store import Standing

REOPENED = "the gate was opened again"


def reset(watch: GateWatch, standing: Standing) -> tuple[GateWatch, list[WatchedAlarm]]:
    """Open the next alarm where a person has acknowledged one, or has opened a gate again that it had closed.

    The next one reads what was decided afterwards: after the acknowledgement, or by later policies than the one that
    closed the gate. What went wrong before has been reported.

    Returns the watch with the new alarms, and the alarms that ended.
    """
    alarms, past = [], []
    for alarm in watch.alarms:
        if (
            alarm.kind in ("drift_scores", "drift_cloud")
            and alarm.ended is None
            and alarm.alert_id in standing.acknowledged
        ):
            # `drifting` begins the next one with what it compares with.
            alarm = replace(alarm, ended=ACKNOWLEDGED)
        following = _next(alarm, standing)
        if following is None:
            alarms.append(alarm)
        else:
            alarms.append(following[0])
            past.append(replace(alarm, ended=following[1]))
    return replace(watch, alarms=tuple(alarms)), past


def _next(alarm: WatchedAlarm, standing: Standing) -> tuple[WatchedAlarm, str] | None:
    if alarm.raised_by is None or alarm.ended is not None:
        return None
    policy = standing.policy
    seen = None if alarm.alert_id is None else standing.acknowledged.get(alarm.alert_id)
    if alarm.kind == "draws" and seen is not None:
        return draw_alarm(policy.settings.alarm_delta, number=alarm.number + 1, after=seen), ACKNOWLEDGED
    if alarm.kind == "draws" or alarm.kind == "drift_scores" or alarm.kind == "drift_cloud":
        return None
    kind, number = alarm.kind, alarm.number + 1
    if kind == "early":
        if kind not in standing.reopened or alarm.closed_policy is None:
            return None  # also where a person has acknowledged it: `page` lets the gate go first
        after_policy = alarm.closed_policy
        following = early_warning(
            policy.settings, number=number, after=alarm.after, after_policy=after_policy, run=alarm.run
        )
        return following, REOPENED
    if seen is not None:
        following = label_alarm(
            kind, policy.settings, number=number, after=seen, after_policy=alarm.after_policy
        )
        return following, ACKNOWLEDGED
    # Also if it is closed again by now: what shipped in between must be read.
    if alarm.closed_policy is not None and kind in standing.reopened:
        following = label_alarm(
            kind, policy.settings, number=number, after=alarm.after, after_policy=alarm.closed_policy
        )
        return following, REOPENED
    return None
