"""Budgets that hold with high probability over calibrations, by fixed-sequence testing.

For each l the hypothesis "the exposure risk R(l) exceeds alpha" gets a p-value p(l) from the G group losses
L_g(l), and

    lambda = min{ l : p(l') <= delta for l' = l and every larger l' }.

P(R(lambda) > alpha) <= delta. R falls in l and is continuous from the right: if R(lambda) > alpha, then
lambda lies below l* = min{ l : R(l) <= alpha } and some l'' in [lambda, l*) was rejected, together with all
from there to l*. The events {lambda <= l* - 1/n} grow with n to {lambda < l*}, and each lies in {p(l* - 1/n)
<= delta}, whose probability is at most delta because l* - 1/n is a fixed number. So no grid is needed: every
score serves as a level.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from streamer.calibration.arguments import check_alpha, check_delta, whole_number
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, what_ships
from streamer.calibration.item_table import ItemTable
from streamer.calibration.keyed_weights import KeyedWeights
from streamer.calibration.registry import calibrator, every
from streamer.calibration.specification import Calibrated, Calibrator, Family, Sample, parameter
from streamer.calibration.threshold import Threshold, state_at


def delta_parameter() -> Any:
    """Declare the parameter that all bounds with high probability share."""
    return parameter(0.1, "chance that the bound may fail", metavar="D", most=1, open=True)


class BoundedRisk(Calibrator):
    """A calibrator that differs from the others of its kind by its p-value alone; it has a parameter `delta`."""

    __slots__ = ()

    promise: ClassVar[str] = "P(exposure risk <= alpha) >= 1 - delta, over the draw of the calibration groups"
    family: ClassVar[Family] = "with high probability"
    against_mean: ClassVar[str] = (
        "asks more, that the budget hold for this calibration with high probability, and mostly cuts higher."
    )
    arrays: ClassVar[bool] = True
    by_sum: ClassVar[bool] = True
    bound: ClassVar[str]
    """The bound in words, for guarantees."""

    delta: float

    @abstractmethod
    def level(self, table: ItemTable, alpha: float, keyed: KeyedWeights) -> float:
        """Return lambda; of a table with at least one group."""

    def found(self, groups: Sequence[LabelledGroup] | ItemTable, *, alpha: float, seed: int) -> Threshold:
        """Find the threshold of named groups."""
        keyed = KeyedWeights(whole_number("seed", seed))
        table = ItemTable.of(groups)
        value = self.level(table, alpha, keyed) if table.groups else math.inf
        return Threshold.at(
            value,
            alpha=alpha,
            method=self.name,
            groups=table.groups,
            guarantee=self._guarantee(value, alpha, table.groups),
        )

    def calibrate(self, sample: Sample) -> Calibrated:
        """Test level after level."""
        return Calibrated(self.found(sample.groups, alpha=sample.alpha, seed=sample.seed))

    def promised(self, risk: str, alpha: float) -> str:
        """With high probability."""
        return (
            f"With probability at least {1 - self.delta:.6g} over the draw of the calibration prompts, "
            f"on average over future prompts {risk} is at most {budget(alpha)} (by {self.bound})"
        )

    def why_closed(self, sample: Sample) -> str | None:
        """Nothing was shown."""
        return not_shown(sample, self.delta)

    def _guarantee(self, value: float, alpha: float, groups: int) -> str:
        basis = f"Basis: method {self.name} ({self.bound}) on {counted(groups, 'calibration group')}"
        if value == math.inf:
            return (
                f"Nothing ships, so exposure risk is 0. {basis}, which do not show a risk of at most "
                f"{budget(alpha)} with probability {1 - self.delta:.6g} at any threshold."
            )
        fixed = (
            "the score, the method, alpha and delta"
            if not self.seeded
            else "the score, the method, alpha, delta and the seed"
        )
        return (
            f"{what_ships(state_at(value))} With probability at least {1 - self.delta:.6g} over the draw of the "
            f"calibration groups, exposure risk is at most {budget(alpha)}: severity where an item ships and 0 "
            f"where it is held, averaged over future groups, each counting once and its items equally. {basis}. "
            "Assumptions: calibration groups and future groups are independent draws from one population, which "
            "is more than exchangeable; the labelled items of a group are all of its items, or were drawn at "
            f"random before any label was seen; {fixed} were fixed before any label was read; severities lie in "
            "[0, 1] and mean what the budget is about. Not promised: a joint bound over several calibrations, "
            f"each of which may fail with probability {self.delta!r}; a bound for a single prompt or kind of prompt; "
            "a bound on severity among the shipped alone."
        )


def not_shown(sample: Sample, delta: float) -> str:
    """Say that the groups do not show the budget."""
    return (
        f"{len(sample.groups)} groups do not show the budget {budget(sample.alpha)} with probability {1 - delta:g}; more may, "
        "if answers with high scores are good"
    )


def bounds() -> tuple[str, ...]:
    """Return the names of the calibrators of this kind."""
    return tuple(name for name, one in every().items() if issubclass(one, BoundedRisk))


def calibrate_high_probability(
    groups: Sequence[LabelledGroup] | ItemTable,
    *,
    alpha: float,
    delta: float = 0.1,
    method: str = "betting",
    seed: int,
) -> Threshold:
    """Find a threshold whose exposure risk is at most alpha with probability at least 1 - delta
    over the draw of the groups, both in (0, 1).

    The items of a group weigh the same. `betting` ships more; it reads the groups in an order that
    seed and ids fix (HMAC), and its time grows with scores times groups. `hb` (Hoeffding-Bentkus)
    ignores the seed and takes no longer than sorting. The seed is fixed before labels are read.
    Closed with fewer than about ln(1/delta)/alpha groups, even if none has lost anything. Raises
    `ValueError` if a group id repeats or an argument is not valid.
    """
    alpha, delta = check_alpha(alpha), check_delta(delta)
    if method not in bounds():
        raise ValueError(f"method must be one of {', '.join(bounds())}, not {method!r}")
    chosen = calibrator(method, {"delta": delta})
    assert isinstance(chosen, BoundedRisk)
    return chosen.found(groups, alpha=alpha, seed=seed)
