"""Every method of calibration behind one signature, so that all can be run on the same halves of a file.

Parameters that a method needs beyond the budget are fixed here, before any file is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import (
    LabelledGroup,
    Threshold,
    calibrate_by_age,
    calibrate_clt,
    calibrate_groups,
    calibrate_high_probability,
    calibrate_pooled,
    calibrate_selective,
    calibrate_soft,
    prepare_transductive,
)
from streamer.calibration.high_probability import BOUNDS
from streamer.gate_shapes import FrozenQuantiles, Ramp, Smooth, rank_scores

if TYPE_CHECKING:
    from streamer.calibration.high_probability import Bound
    from streamer.gate_shapes import SoftGate

Floats = NDArray[np.float64]

DELTA = 0.1
RHO = 0.99
TAU = 0.05
WIDTH = 0.1
GRID = (*(round(0.95 - 0.05 * step, 2) for step in range(20)), -math.inf)
STARTS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """What a method calibrates on.

    Attributes
    ----------
    groups : in the order in which they came, the oldest first.
    largest : the most items that a group may ever have.
    alpha : the budget, in (0, 1).
    seed : of the random weights and of the order in which bets are placed.
    """

    groups: Sequence[LabelledGroup]
    largest: int
    alpha: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What is decided and measured: units of batches that calibration never saw.

    Attributes
    ----------
    scores : shape (N,), in [0, 1]; NaN for what was never scored.
    shippable : shape (N,); False for blank answers and unscored batches.
    batch : shape (N,), not falling: the batch of each unit.
    """

    scores: Floats
    shippable: NDArray[np.bool_]
    batch: NDArray[np.intp]

    def by_batch(self) -> list[slice]:
        """Return the positions of each batch's units."""
        edges = np.flatnonzero(np.diff(self.batch)) + 1
        ends = [*edges.tolist(), len(self.batch)]
        return [slice(first, last) for first, last in zip([0, *edges.tolist()], ends, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What a calibrated method does with the traffic.

    Attributes
    ----------
    level : lambda, +inf when closed, -inf when open; None where each batch has its own.
    chances : shape (N,), the chance in [0, 1] that a unit ships: 0 or 1 but for gates by chance.
    """

    level: float | None
    chances: Floats


Run = Callable[[Labels, Traffic], Served]


@dataclass(frozen=True, slots=True)
class ComparedMethod:
    """A method with a name, and what it does.

    Attributes
    ----------
    name : as in ``docs/guarantees.md``.
    run : from labels to what becomes of the traffic.
    response_only : True: it says nothing where a batch is one unit.
    """

    name: str
    run: Run
    response_only: bool = False


def _indicator(find: Callable[[Labels], Threshold]) -> Run:
    return lambda labels, traffic: _above(find(labels).value, traffic.scores, traffic)


def _above(level: float, scores: Floats, traffic: Traffic) -> Served:
    return Served(level, (traffic.shippable & (np.nan_to_num(scores, nan=-1.0) > level)).astype(np.float64))


def _law(method: str) -> Callable[[Labels], Threshold]:
    return lambda labels: calibrate_groups(labels.groups, alpha=labels.alpha, method=method, seed=labels.seed)


def _bound(method: Bound) -> Callable[[Labels], Threshold]:
    return lambda labels: calibrate_high_probability(
        labels.groups, alpha=labels.alpha, delta=DELTA, method=method, seed=labels.seed
    )


def _selective(labels: Labels) -> Threshold:
    return calibrate_selective(
        labels.groups, alpha=labels.alpha, delta=DELTA, grid=GRID, starts=STARTS, seed=labels.seed
    )


def _age(labels: Labels) -> Threshold:
    ages = {group.id: float(age) for age, group in enumerate(reversed(labels.groups))}
    return calibrate_by_age(labels.groups, alpha=labels.alpha, ages=ages, rho=RHO)


def _clt(labels: Labels) -> Threshold:
    return calibrate_clt(labels.groups, alpha=labels.alpha, delta=DELTA)


def _pooled(labels: Labels) -> Threshold:
    return calibrate_pooled(labels.groups, alpha=labels.alpha, largest_group=labels.largest)


def _transductive(labels: Labels, traffic: Traffic) -> Served:
    rule = prepare_transductive(labels.groups, alpha=labels.alpha, seed=labels.seed)
    chances = np.zeros(len(traffic.scores))
    for units in traffic.by_batch():
        scores = traffic.scores[units]
        if not np.isnan(scores).any():
            level = rule.threshold_for(scores.tolist())
            chances[units] = traffic.shippable[units] & (scores > level)
    return Served(None, chances)


def _soft(gate: SoftGate) -> Run:
    def run(labels: Labels, traffic: Traffic) -> Served:
        level = calibrate_soft(labels.groups, alpha=labels.alpha, gate=gate, seed=labels.seed).level
        if math.isinf(level):
            return _above(level, traffic.scores, traffic)
        shares = gate.share(np.nan_to_num(traffic.scores), level)
        return Served(level, np.where(traffic.shippable, shares, 0.0))

    return run


def _quantile(labels: Labels, traffic: Traffic) -> Served:
    frozen = FrozenQuantiles(np.concatenate([group.scores for group in labels.groups]))
    return _above(_rescored_level(labels, frozen.of), frozen.of(traffic.scores), traffic)


def _rank(labels: Labels, traffic: Traffic) -> Served:
    ranks = np.full(len(traffic.scores), np.nan)
    for units in traffic.by_batch():
        if not np.isnan(traffic.scores[units]).any():
            ranks[units] = rank_scores(traffic.scores[units])
    return _above(_rescored_level(labels, rank_scores), ranks, traffic)


def _rescored_level(labels: Labels, score: Callable[[Floats], Floats]) -> float:
    groups = [
        LabelledGroup(group.id, group.item_ids, score(group.scores), group.severities)
        for group in labels.groups
    ]
    return calibrate_groups(groups, alpha=labels.alpha, seed=labels.seed).value


METHODS_COMPARED: tuple[ComparedMethod, ...] = (
    *(ComparedMethod(law, _indicator(_law(law))) for law in ("mean", "crc", "bb", "rbwa")),
    ComparedMethod("transductive", _transductive),
    *(ComparedMethod(bound, _indicator(_bound(bound))) for bound in BOUNDS),
    ComparedMethod("selective", _indicator(_selective)),
    ComparedMethod("age", _indicator(_age)),
    ComparedMethod("clt", _indicator(_clt)),
    ComparedMethod("pooled", _indicator(_pooled)),
    ComparedMethod("smooth", _soft(Smooth(TAU))),
    ComparedMethod("ramp", _soft(Ramp(WIDTH))),
    ComparedMethod("quantile", _quantile),
    ComparedMethod("rank", _rank, response_only=True),
)
"""Segments are not among them: they need a key of the prompt that is known before its responses are scored."""
