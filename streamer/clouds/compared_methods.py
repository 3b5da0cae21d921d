"""Every method of calibration behind one signature, so that all can be run on the same halves of a file.

Parameters that a method needs beyond the budget are fixed here, before any file is looked at.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import LabelledGroup, LossCurve, calibrate_soft, prepare_transductive
from streamer.calibration.full_fit import LEAST_GROUPS, alike, allowed, fit_full, unfamiliar
from streamer.calibration.history import NO_HISTORY, History
from streamer.calibration.loss_curve import budget_limit
from streamer.calibration.registry import calibrator, every, weighting_scheme, weighting_schemes
from streamer.calibration.shapes import FrozenQuantiles, Ramp, Smooth, SoftGate, rank_scores
from streamer.calibration.signal_order import UNREAD
from streamer.calibration.specification import Sample
from streamer.calibration.weighting import keyed_losses
from streamer.clouds.offline import bad_groups

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]

FULL = "full"

ETA = 1.0
DRAWS = 20
DELTA = 0.1
TAU = 0.05
WIDTH = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class MethodLabels:
    """What a method calibrates on. What no budget changes is computed once for all budgets.

    `groups` are in the order in which they came, the oldest first; `largest` is the most items that
    a group may ever have; `seed` that of the random weights and of the order in which bets are
    placed; `rows`, shape (groups, d), the signals of the one item of each group.
    """

    groups: Sequence[LabelledGroup]
    largest: int
    seed: int
    rows: Rows | None = None
    _curves: dict[str, LossCurve] = field(default_factory=dict)
    _rescored: "dict[str, MethodLabels]" = field(default_factory=dict)
    _counts: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def level(self, scheme: str, alpha: float) -> float:
        """Return lambda as `calibrate_groups` finds it with this weighting scheme."""
        limit = budget_limit(alpha, len(self.groups))
        if limit < 0:
            return math.inf
        if all(len(group.item_ids) == 1 for group in self.groups):
            scheme = "mean"  # the one item has all the weight, whatever the scheme
        if scheme not in self._curves:
            scores, losses = keyed_losses(
                self.groups, scheme=weighting_scheme(scheme, {"eta": ETA, "draws": DRAWS}), seed=self.seed
            )
            self._curves[scheme] = LossCurve.of(scores, losses)
        return self._curves[scheme].first_over(limit)

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Return the count of each new prompt by `full`, shape (N,); see `full_counts`."""
        if self.rows is None:
            raise ValueError("these labels have no signals")
        if id(rows) not in self._counts:
            self._counts[id(rows)] = full_counts(self.rows, bad_groups(self.groups, self.seed), rows)
        return self._counts[id(rows)]

    def rescored(self, name: str, score: Callable[[Floats], Floats]) -> "MethodLabels":
        """Return the same groups with `score` of their scores, which is known by `name`."""
        if name not in self._rescored:
            groups = [
                LabelledGroup(group.id, group.item_ids, score(group.scores), group.severities)
                for group in self.groups
            ]
            self._rescored[name] = MethodLabels(groups, self.largest, self.seed)
        return self._rescored[name]


@dataclass(frozen=True, eq=False)
class Traffic:
    """What is decided and measured: N units of batches that calibration never saw.

    `scores`, shape (N,), in [0, 1]; NaN for what was never scored. `shippable`, shape (N,), is
    False for blank answers and unscored batches. `batch`, shape (N,), not falling: the batch of
    each unit. `rows`, shape (N, d): the signals of each unit.
    """

    scores: Floats
    shippable: NDArray[np.bool_]
    batch: NDArray[np.intp]
    rows: Rows | None = None

    @cached_property
    def history(self) -> History:
        """The cuts that the traffic's scores fix, which nobody labels."""
        known = ~np.isnan(self.scores)
        return History.of(self.scores[known], prompts=len(np.unique(self.batch[known])))

    @cached_property
    def ranks(self) -> Floats:
        """The rank of each unit within its batch, NaN for what was never scored; see `rank_scores`."""
        ranks = np.full(len(self.scores), np.nan)
        for units in self.by_batch():
            if not np.isnan(self.scores[units]).any():
                ranks[units] = rank_scores(self.scores[units])
        return ranks

    def by_batch(self) -> list[slice]:
        """Return the positions of each batch's units."""
        edges = np.flatnonzero(np.diff(self.batch)) + 1
        ends = [*edges.tolist(), len(self.batch)]
        return [slice(first, last) for first, last in zip([0, *edges.tolist()], ends, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What a calibrated method does with the traffic.

    `level` is lambda, +inf when closed, -inf when open; None where each batch has its own.
    `chances`, shape (N,): the chance in [0, 1] that a unit ships, 0 or 1 but for gates by chance.
    """

    level: float | None
    chances: Floats


Run = Callable[[MethodLabels, float, Traffic], Served]


@dataclass(frozen=True, slots=True)
class ComparedMethod:
    """A method by its name in ``docs/guarantees.md``, and what it does.

    `run` takes labels and a budget alpha in (0, 1) to the outcome of the traffic. `response_only` :
    it says nothing where a batch is one unit. `of_signals` : it reads signals, and of a score alone
    it makes what `mean` does.
    """

    name: str
    run: Run
    response_only: bool = False
    of_signals: bool = False


def served_above(level: float, traffic: Traffic, scores: Floats | None = None) -> Served:
    """Ship what is strictly above `level`, by the traffic's scores or by others in their place."""
    scores = traffic.scores if scores is None else scores
    return Served(level, (traffic.shippable & (np.nan_to_num(scores, nan=-1.0) > level)).astype(np.float64))


def by_scheme(scheme: str) -> Run:
    """Return how a method with this weighting scheme serves."""
    return lambda labels, alpha, traffic: served_above(labels.level(scheme, alpha), traffic)


def _by_specification(name: str) -> Run:
    """Return how a calibrator serves with the parameters that its specification has; the traffic is its history."""
    chosen = calibrator(name)

    def run(labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
        found = chosen.calibrate(
            Sample(
                groups=labels.groups,
                alpha=alpha,
                seed=labels.seed,
                largest=labels.largest,
                history=traffic.history if chosen.reads_history else NO_HISTORY,
            )
        )
        return served_above(found.threshold.value, traffic)

    return run


def _transductive(labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
    rule = prepare_transductive(labels.groups, alpha=alpha, seed=labels.seed)
    chances = np.zeros(len(traffic.scores))
    for units in traffic.by_batch():
        scores = traffic.scores[units]
        if not np.isnan(scores).any():
            level = rule.threshold_for(scores.tolist())
            chances[units] = traffic.shippable[units] & (scores > level)
    return Served(None, chances)


def full_counts(rows: Rows, bad: NDArray[np.bool_], others: Rows) -> NDArray[np.int64]:
    """Fit all signals to G labelled prompts, and count for N others as `full` does: shape (N,).

    `rows` has the shape (G, d), `bad` (G,), `others` (N, d). One that was read, or not, as too few
    of the labelled ones has the count G + 1, which no budget allows.
    """
    known = alike(rows)
    strange = [unfamiliar(row, known) for row in others]
    return np.where(strange, len(rows) + 1, fit_full(rows, bad).counts(others))


def _full(labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
    groups = len(labels.groups)
    k = allowed(alpha, groups)
    if labels.rows is None or traffic.rows is None or groups < LEAST_GROUPS or k < 1:
        served = served_above(labels.level("mean", alpha), traffic)
        if traffic.rows is None:
            return served
        return replace(served, chances=served.chances * ~(traffic.rows[:, UNREAD] == 1).any(axis=1))
    return Served(None, (traffic.shippable & (labels.counts(traffic.rows) <= k)).astype(np.float64))


def _soft(gate: SoftGate) -> Run:
    def run(labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
        level = calibrate_soft(labels.groups, alpha=alpha, gate=gate, seed=labels.seed).level
        if math.isinf(level):
            return served_above(level, traffic)
        shares = gate.share(np.nan_to_num(traffic.scores), level)
        return Served(level, np.where(traffic.shippable, shares, 0.0))

    return run


def _quantile(labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
    if not labels.groups:
        return served_above(math.inf, traffic)
    frozen = FrozenQuantiles(np.concatenate([group.scores for group in labels.groups]))
    level = labels.rescored("quantile", frozen.of).level("mean", alpha)
    return served_above(level, traffic, frozen.of(traffic.scores))


def _rank(labels: MethodLabels, alpha: float, traffic: Traffic) -> Served:
    level = labels.rescored("rank", rank_scores).level("mean", alpha)
    return served_above(level, traffic, traffic.ranks)


_OF_THEIR_OWN: dict[str, Run] = {
    "transductive": _transductive,
    **{scheme: by_scheme(scheme) for scheme in weighting_schemes()},
}
"""Those that a specification alone does not serve: a threshold for each batch, and curves that are computed once for all budgets."""

METHODS_COMPARED: tuple[ComparedMethod, ...] = (
    *(
        ComparedMethod(name, _OF_THEIR_OWN.get(name) or _by_specification(name))
        for name in every()
        if name != FULL
    ),
    ComparedMethod(FULL, _full, of_signals=True),
    ComparedMethod("smooth", _soft(Smooth(TAU))),
    ComparedMethod("ramp", _soft(Ramp(WIDTH))),
    ComparedMethod("quantile", _quantile),
    ComparedMethod("rank", _rank, response_only=True),
)
"""Segments are not among them: they need a key of the prompt that is known before its responses are scored."""
