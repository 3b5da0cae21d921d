"""How old a run's draws are, how late their labels came, and what follows from it: which draws count, which labels are overdue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from streamer.recalibration import age_cut
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.missing_labels import MissingLabels, missing_labels

if TYPE_CHECKING:
    from streamer.gates.policy import GateRevision
    from streamer.gates.settings import GateSettings
    from streamer.recalibration.run import AuditSample
    from streamer.recalibration.sampled import SampledGroup

LONGEST_SECONDS: Final = 1e9
"""About 32 years: further back a date may not exist, and `now` less it would raise."""

_TICK = timedelta(microseconds=1)


def overdue_labels(settings: GateSettings, drawn: Sequence[SampledGroup], now: datetime) -> MissingLabels:
    """Test the draws that are so old that a missing label is overdue."""
    deadline = settings.monitor_deadline_seconds
    floor = settings.label_floor
    old = now - timedelta(seconds=min(deadline, LONGEST_SECONDS))
    return missing_labels(
        (
            math.fsum(item.score for item in group.items) / len(group.items),
            (late := delay(group, floor)) is None or late > deadline,
        )
        for group in drawn
        if group.decided_at is not None
        and group.decided_at < old
        # Below a label floor no label is requested.
        and (floor is None or any(item.score > floor for item in group.items))
    )


def age_moment(now: datetime, cut: AgeCut) -> datetime:
    """Return before which moment the draws were decided that are old enough."""
    return now if cut.seconds == 0 else now - timedelta(seconds=cut.seconds) + _TICK


def choose_cut(
    store: AuditSample, gate: GateRevision, drawn: Sequence[SampledGroup], now: datetime
) -> AgeCut:
    """Choose the age cut of a run, by ages and by delays of draws that are not in it."""
    settings = gate.settings
    floor = settings.label_floor
    # With a window: twice as many draws, the middle one of which is as old as any cut may be.
    newest = drawn if settings.window is None else drawn[-2 * settings.window :]
    waits = [group.waits(floor) for group in newest]
    earlier: list[float | None] = []
    if settings.pending == "age" and any(waits) and settings.label_deadline_seconds == 0:
        earlier = [delay(group, floor) for group in drawn[: len(drawn) - len(newest)]]
        first = drawn[0].decided_at
        missing = age_cut.MOST_DELAYS - len(earlier)
        if first is not None and missing > 0:
            before = store.label_delays(gate.gate, settings=settings, before=first, most=missing)
            earlier = [*before, *earlier]
    return age_cut.choose(
        [math.inf if one.decided_at is None else (now - one.decided_at).total_seconds() for one in newest],
        waits,
        pending=settings.pending,
        earlier=earlier,
        label_deadline=settings.label_deadline_seconds,
        deadline=settings.monitor_deadline_seconds,
        window=settings.window,
    )


def delay(group: SampledGroup, floor: float | None) -> float | None:
    """Return how late, in seconds, a group's labels came; None while they have not."""
    if group.waits(floor) or group.labelled_at is None or group.decided_at is None:
        return None
    return (group.labelled_at - group.decided_at).total_seconds()
