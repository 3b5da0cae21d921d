"""Risk for each response served overall, in which large groups count for more.

The rule of `streamer.calibration.crc` bounds the loss of a random item of a random group. Where the risk over
all responses is meant and large groups may be riskier, each group brings h_g(l) = sum_i (m_gi 1{Q_gi > l} -
alpha), which falls in l and is at most I_max (1 - alpha):

    lambda = min{ l : sum_g h_g(l) + I_max (1 - alpha) <= 0 }
           = min{ l : sum of m over all items above l <= alpha N - I_max (1 - alpha) },    N = sum_g I_g.

For exchangeable groups E[h_{G+1}(lambda)] <= 0 by the argument of Conformal Risk Control, which is

    E[ sum_i m_i 1{Q_i > lambda} ] / E[ I ] <= alpha.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, SupportsIndex

from streamer.calibration.arguments import check_alpha, whole_number
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, what_ships
from streamer.calibration.item_table import ItemTable
from streamer.calibration.loss_curve import TOLERANCE, smallest_admissible
from streamer.calibration.specification import Calibrated, Calibrator, Sample
from streamer.calibration.threshold import Threshold, state_at


def calibrate_pooled(
    groups: Sequence[LabelledGroup] | ItemTable, *, alpha: float, largest_group: SupportsIndex
) -> Threshold:
    """Find the smallest threshold that keeps the risk over all responses, not over groups, inside
    the budget, alpha in (0, 1).

    Every response of each group is labelled. `largest_group` is I_max, the most responses that any
    group may have, calibration or future; fixed beforehand (the number of samples that is asked
    for, or the limit of the stream), not read off the groups. Closed while alpha N < I_max (1 -
    alpha). Raises `ValueError` if a group id repeats, a group is larger than `largest_group`, or an
    argument is not valid.
    """
    alpha = check_alpha(alpha)
    most = whole_number("largest_group", largest_group, least=1)
    table = ItemTable.of(groups)
    for group, size in zip(table.ids, table.sizes.tolist(), strict=True):
        if size > most:
            raise ValueError(
                f"group {group!r} has {size} items, more than the largest group may have, {most}"
            )
    items = len(table.scores)
    allowance = alpha * items
    limit = allowance - most * (1 - alpha) + TOLERANCE * max(1.0, allowance)
    value = math.inf if limit < 0 else smallest_admissible(table.scores, table.severities, limit)
    return Threshold.at(
        value,
        alpha=alpha,
        method="pooled",
        groups=table.groups,
        guarantee=_guarantee(value, alpha, table.groups, items, most),
    )


def _guarantee(value: float, alpha: float, groups: int, items: int, most: int) -> str:
    basis = (
        f"Basis: method pooled on {counted(items, 'response')} in {counted(groups, 'calibration group')}, "
        f"at most {counted(most, 'response')} a group"
    )
    if value == math.inf:
        needed = math.ceil((1 - TOLERANCE) * most * (1 - alpha) / alpha)
        return (
            f"Nothing ships, so exposure risk is 0. {basis}; the budget {budget(alpha)} needs at "
            f"least {counted(needed, 'labelled response')}."
        )
    return (
        f"{what_ships(state_at(value))} On average, over calibrations and future groups alike, exposure risk "
        f"for each response is at most {budget(alpha)}: the expected severity that a group ships over "
        f"its expected number of responses, so that large groups count for more. {basis}. Assumptions: future groups are "
        f"exchangeable with the calibration groups and no larger than {most}; every response of a "
        "calibration group is labelled; the score, the method, the budget and the size of the largest group "
        "were fixed before any label was read; severities lie in [0, 1] and mean what the budget is about. "
        "Not promised: risk averaged over prompts, each counting once; a bound with high probability for "
        "this one calibration, for a single prompt or kind of prompt, or on severity among the shipped "
        "alone."
    )


@dataclass(frozen=True, slots=True)
class Pooled(Calibrator):
    """A budget for each response overall; for Python alone, since a gate's report counts by prompt."""

    name: ClassVar[str] = "pooled"
    place: ClassVar[int] = 91
    summary: ClassVar[str] = "a budget for each response overall"
    promise: ClassVar[str] = "E[severity shipped by a group] <= alpha E[responses of a group]"
    offered: ClassVar[bool] = False
    diagnostic: ClassVar[bool] = False

    def calibrate(self, sample: Sample) -> Calibrated:
        """Count every item the same, whatever its group."""
        return Calibrated(calibrate_pooled(sample.groups, alpha=sample.alpha, largest_group=sample.largest))
