"""The running mean of exposure, bounded at all times at once from the audit sample.

For decision i with shipped loss L_i in [0, 1], drawn (S_i = 1) with logged probability p_i,

    X_i = (S_i/p_i) L_i,    V = sum_i (X_i - Xhat_i)^2,    Xhat_i = clip((a0 + sum_{j<i} X_j)/i, 0, 1),
    [ (sum X - D_1)/t, (sum X + D_c)/t ],    c = 1/p_min,

where D_c is the mixture boundary of scale c at delta/2 (`boundary`): the centred X_i is at least -1, and its
negative at least -1/p_min. With a judge's prediction f_i in [0, kappa], fixed before the draw,

    Z_i = f_i + (S_i/p_i)(L_i - f_i),    V = sum_i ((S_i/p_i)(L_i - f_i))^2,

c = kappa/p_min below and 1/p_min above: valid for any judge, narrow for a good one. Neither needs the L_i to be
alike: the running mean (L_1 + ... + L_t)/t of an arbitrary sequence is covered, also one that reacts to the past.

Sources: Howard, Ramdas, McAuliffe and Sekhon (2021); Waudby-Smith and Ramdas (2024); Angelopoulos, Bates, Fannjiang,
Jordan and Zrnic, Prediction-powered inference (2023); Zrnic and Candes, Active statistical inference (2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_delta, check_positive, whole_number
from streamer.risk.states.boundary import MixtureBoundary, mixture
from streamer.risk.states.decisions import AuditedDecisions
from streamer.risk.states.interval import RiskInterval
from streamer.risk.states.json_form import State

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposurePlan:
    """What is fixed before the first decision is read; a change of any of it is a new sequence.

    Only `delta`, `least_probability` and `judge_cap` bear on validity. The others make the interval narrow where it
    is wanted narrow.

    Attributes
    ----------
    delta : chance that either bound fails at any time, in (0, 1); each bound gets half of it.
    least_probability : p_min, no more than any logged probability, in (0, 1].
    planned_labels : number of labels at which the interval is to be narrowest, >= 1.
    prior_mean : a0, the exposure to expect, in (0, 1]; the budget is a good guess.
    second_moment : E[L^2] to expect, with a judge E[(L - f)^2], in (0, 1]; None takes `prior_mean`, which is the
        most it can be without a judge.
    judge_cap : kappa in (0, 1], at which predictions are cut; None leaves predictions out.
    """

    delta: float
    least_probability: float
    planned_labels: int = 1000
    prior_mean: float = 0.05
    second_moment: float | None = None
    judge_cap: float | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # a NumPy number would not go into JSON
        set_field(self, "delta", check_delta(self.delta))
        set_field(self, "planned_labels", whole_number("planned_labels", self.planned_labels, least=1))
        for name in ("least_probability", "prior_mean", "second_moment", "judge_cap"):
            value = getattr(self, name)
            if value is None and name in ("second_moment", "judge_cap"):
                continue
            if check_positive(name, value) > 1:
                raise ValueError(f"{name} must be above 0 and at most 1, not {value!r}")
            set_field(self, name, float(value))

    def boundaries(self) -> tuple[MixtureBoundary, MixtureBoundary]:
        """Return the boundaries below and above."""
        p = self.least_probability
        moment = self.prior_mean if self.second_moment is None else self.second_moment
        target = p * math.sqrt(2 * math.log(2 / self.delta) / (self.planned_labels * moment))
        below = 1.0 if self.judge_cap is None else self.judge_cap / p
        return mixture(below, target), mixture(1 / p, target)


class IntervalPath(NamedTuple):
    """Both bounds after each of n decisions, each of shape (n,), in [0, 1]."""

    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one bound keeps: `total` = sum X (or Z) and `spread` = V."""

    total: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureSequence(State):
    """The state of an anytime-valid interval of exposure risk: a few numbers, whatever has been
    read.

    Immutable: `observe` returns the next state. Two bounds have two states, because a label that is
    overdue at the deadline counts 0 in the lower and 1 in the upper one. Read decisions in the
    order in which they were made, each once, when they are older than the label deadline; a label
    that comes later still is left out. `drawn`: those of the `decisions` that the audit sample
    took; `overdue`: those of them that shipped something and had no label at the deadline;
    `shipped`: the sum of the shares that shipped, known without labels.
    """

    json_kind: ClassVar[str] = "streamer.monitoring.exposure.v1"

    plan: ExposurePlan
    decisions: int = 0
    drawn: int = 0
    overdue: int = 0
    shipped: float = 0.0
    lower_evidence: Evidence = Evidence()
    upper_evidence: Evidence = Evidence()

    def __post_init__(self) -> None:
        if not 0 <= self.overdue <= self.drawn <= self.decisions:
            raise ValueError(
                "overdue, drawn and decisions must not fall in this order: "
                f"{self.overdue!r}, {self.drawn!r}, {self.decisions!r}"
            )
        spreads = (self.lower_evidence.spread, self.upper_evidence.spread)
        totals = (self.lower_evidence.total, self.upper_evidence.total)
        if not all(map(math.isfinite, (*totals, *spreads))) or min(spreads) < 0:
            raise ValueError(f"sums must be finite and spreads 0 or more, not {totals!r} and {spreads!r}")
        if not 0 <= self.shipped <= self.decisions:
            raise ValueError(f"shipped must be between 0 and decisions, not {self.shipped!r}")

    def observe(self, decisions: AuditedDecisions) -> ExposureSequence:
        """Return the state after the next decisions, in the order in which they were made:
        bit-identical however they are cut into pieces.

        Raises `ValueError` if a logged probability is below the plan's least one.
        """
        if not len(decisions):
            return self
        lower, upper = self._walk(decisions)
        return replace(
            self,
            decisions=self.decisions + len(decisions),
            drawn=self.drawn + int(decisions.sampled.sum()),
            overdue=self.overdue + int(decisions.overdue.sum()),
            shipped=float(_running(self.shipped, decisions.shipped)[-1]),
            lower_evidence=Evidence(float(lower.totals[-1]), float(lower.spreads[-1])),
            upper_evidence=Evidence(float(upper.totals[-1]), float(upper.spreads[-1])),
        )

    def path(self, decisions: AuditedDecisions) -> IntervalPath:
        """Return the bounds after each of these decisions, as `observe` one at a time would give them.

        Raises `ValueError` if a logged probability is below the plan's least one.
        """
        lower, upper = self._walk(decisions)
        count = self.decisions + np.arange(1, len(decisions) + 1)
        below, above = self.plan.boundaries()
        error = self.plan.delta / 2
        return IntervalPath(
            np.clip((lower.totals - below.deviation(lower.spreads, error)) / count, 0.0, 1.0),
            np.clip((upper.totals + above.deviation(upper.spreads, error)) / count, 0.0, 1.0),
        )

    def exposure(self) -> RiskInterval:
        """Return the interval of exposure risk: the mean of the loss over the decisions read, held ones at 0."""
        return self._interval(float(self.decisions))

    def selective(self) -> RiskInterval:
        """Return the interval of selective risk: t times exposure risk over the sum of shipped shares.

        Both intervals fail together or not at all: looking at both costs nothing.
        """
        return self._interval(self.shipped)

    def _interval(self, denominator: float) -> RiskInterval:
        estimate, lower, upper = None, 0.0, 1.0
        if denominator > 0:
            below, above = self.plan.boundaries()
            error = self.plan.delta / 2
            least = self.lower_evidence.total - float(below.deviation(self.lower_evidence.spread, error))
            most = self.upper_evidence.total + float(above.deviation(self.upper_evidence.spread, error))
            # The exposure itself lies in [0, 1], and t of it over the shipped shares is no more than 1.
            lower, upper = _share(least, denominator), _share(most, denominator)
            estimate = _share(self.upper_evidence.total, denominator)
        return RiskInterval(
            decisions=self.decisions,
            labels=self.drawn - self.overdue,
            overdue=self.overdue,
            estimate=estimate,
            lower=lower,
            upper=upper,
            delta=self.plan.delta,
        )

    def _walk(self, decisions: AuditedDecisions) -> tuple[_Walk, _Walk]:
        least = self.plan.least_probability
        below = decisions.probability < least
        if below.any():
            place = int(below.argmax())
            raise ValueError(
                f"the plan's least probability is {least!r}; position {place} logged "
                f"{float(decisions.probability[place])!r}"
            )
        weight = decisions.weight
        sides = (
            (self.lower_evidence, decisions.least_loss),
            (self.upper_evidence, decisions.most_loss),
        )
        if self.plan.judge_cap is None:
            count = self.decisions + np.arange(1, len(decisions) + 1)
            prior = self.plan.prior_mean
            lower, upper = (_plain(side, weight * loss, count, prior) for side, loss in sides)
        else:
            predicted = np.minimum(decisions.predicted, self.plan.judge_cap)
            lower, upper = (_judged(side, weight * (loss - predicted), predicted) for side, loss in sides)
        return lower, upper


class _Walk(NamedTuple):
    totals: Floats
    spreads: Floats


def _plain(start: Evidence, weighted: Floats, count: NDArray[np.int64], prior: float) -> _Walk:
    totals = _running(start.total, weighted)
    before = np.concatenate(([start.total], totals[:-1]))
    centre = np.clip((prior + before) / count, 0.0, 1.0)
    return _Walk(totals, _running(start.spread, np.square(weighted - centre)))


def _judged(start: Evidence, corrections: Floats, predicted: Floats) -> _Walk:
    totals = _running(start.total, predicted + corrections)
    return _Walk(totals, _running(start.spread, np.square(corrections)))


def _running(start: float, steps: Floats) -> Floats:
    """Add one step after another, so that pieces give the same bits as the whole."""
    sums: Floats = np.cumsum(np.concatenate(([start], steps)))[1:]
    return sums


def _share(amount: float, denominator: float) -> float:
    return min(1.0, max(0.0, amount / denominator))
