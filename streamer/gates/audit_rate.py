"""How often a gate's decisions are drawn for labelling: as its settings say, or for a while more often. Pure.

A raised rate draws whatever the base rate draws, and more: a batch is drawn iff its keyed number U is below p. So the base
draws, U below the gate's own probability, are the same whether the rate is raised or not; calibration reads these alone.

Why a raised p costs no validity: it depends on the past only. A rate is a row, committed before any decision names it, and
what raised it are labels of decisions that were in the record by then; a decision's own answer and draw have no part in it.
Each decision keeps its p and names its rate, so that anybody with the gate's salt can draw it again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from streamer.gates.settings import GateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRate:
    """One row of a gate's audit rates; the newest is in force. `number`: from 1, in the order in
    which those of all gates were written.

    `boosted`: whether decisions are drawn more often than the gate's audit probability says, from
    `since`, by the recalibrator's clock, `until` then, by a worker's: whatever becomes of the
    recalibrator, a raised rate ends. `evidence`: of the risk alarm, and `extra`: labels that raised
    rates had asked for since midnight (UTC), when it was written.
    """

    number: int = 0
    boosted: bool
    since: datetime
    until: datetime
    evidence: float
    extra: int
    reason: str

    def raises(self, at: datetime) -> bool:
        """Whether decisions made at this moment are drawn more often."""
        return self.boosted and at < self.until


def day_of(moment: datetime) -> datetime:
    """Return when the day (UTC) began that a moment is in: labels beyond the base rate are counted by day."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def probability_under(
    rate: AuditRate | None, settings: GateSettings, *, attempt: int, at: datetime
) -> tuple[float, int | None]:
    """Return the probability that a scored batch is drawn with, and the number of the rate if that raises it.

    Later attempts are drawn as ever: neither the alarm nor calibration reads them.
    """
    raised = settings.boosted_probability
    if rate is None or attempt != 1 or not rate.raises(at) or raised == settings.audit_probability:
        return float(settings.audit_probability), None
    return float(raised), rate.number


QUANTILE = 0.95
LEAST_DELAYS = 20
"""Draws below which their delays say nothing: the largest of fewer is no 95 % quantile."""


def label_lag(delays: Sequence[float | None], *, deadline: float) -> float | None:
    """Return the 95 % quantile, in seconds, of the delays from decisions to labels of draws that
    were chosen without regard to labels; None for too few of them.

    A delay of None is a label that never came. What came later than the deadline, in seconds,
    counts as the deadline.
    """
    if len(delays) < LEAST_DELAYS:
        return None
    known = sorted(deadline if one is None else min(max(one, 0.0), deadline) for one in delays)
    return known[math.ceil(QUANTILE * len(known)) - 1]
