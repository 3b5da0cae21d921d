"""Two thresholds side by side: which ships less, how far apart they are, and how much each ships of a sample. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.claims import ClaimLoss
from streamer.calibration.loss_curve import budget_limit
from streamer.gates.declared import Unit
from streamer.gates.policy import Bursts, Policy
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import BatchCut, Chance, Cut, Full, Quantile, Rule, Segments, ships_nothing
from streamer.recalibration.sampled import SampledGroup, scores_of, severities_of

Direction = Literal["same", "tighter", "looser"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a gate cuts by, how that is read, and the bursts of which nothing ships."""

    cut: Cut
    rule: Rule
    bursts: Bursts | None = field(default=None, compare=False)

    @classmethod
    def of_policy(cls, policy: Policy) -> Reading:
        """Return what a policy cuts by."""
        return cls(Cut(policy.state, policy.threshold), policy.rule, policy.bursts)

    @property
    def is_known(self) -> bool:
        """Whether it can decide: the prompts that a rule of all signals compares with were read."""
        return not isinstance(self.rule, Full) or self.rule.prompts is not None

    @property
    def ships_nothing(self) -> bool:
        """Whether it is closed for every batch there may be."""
        return ships_nothing(self.cut.state, self.rule)


NEWEST = 500
"""Groups that two rules of all signals are compared on."""


def direction(
    before: Reading, after: Reading, unit: Unit = "best", groups: Sequence[SampledGroup] = ()
) -> Direction:
    """Say whether `after` ships the same, never more (`tighter`), or possibly something that `before` holds (`looser`).

    Where two rules cannot be compared, and where one segment gets tighter and another looser, it is `looser`: what is not
    known to hold more counts as holding less. A rule of all signals is compared on the newest `NEWEST` of `groups`: it is looser
    iff it ships any of them that the other holds.
    """
    if before == after or (before.ships_nothing and after.ships_nothing):
        return "same"
    if after.ships_nothing:
        return "tighter"
    if before.ships_nothing:
        return "looser"
    if isinstance(before.rule, Full) or isinstance(after.rule, Full):
        groups = groups[-NEWEST:]
        sizes = [len(group.items) for group in groups]
        if not groups or not (before.is_known and after.is_known):
            return "looser"
        more = shipped(after, unit, groups, sizes) > shipped(before, unit, groups, sizes)
        return "looser" if more.any() else "tighter"
    if isinstance(before.rule, BatchCut) and isinstance(after.rule, BatchCut):
        return "tighter" if _window_holds_more(before.rule, after.rule) else "looser"
    if not _comparable(before.rule, after.rule):
        return "looser"
    pairs = _levels(before, after)
    if any(new < old for old, new in pairs):
        return "looser"
    return "tighter" if any(new > old for old, new in pairs) else "same"


def lambda_step(before: Reading, after: Reading) -> float:
    """Return how far lambda moves, at most: over all segments where there are some. A closed gate counts as lambda 1 and
    an open one as lambda 0, except where the gate ships by chance and lambda has no such ends: there the step is infinite. A
    rule of all signals has no lambda: 0 then.
    """
    if isinstance(before.rule, Full) or isinstance(after.rule, Full):
        return 0.0
    by_chance = isinstance(before.rule, Chance) or isinstance(after.rule, Chance)

    def level(value: float) -> float:
        if by_chance or math.isfinite(value):
            return value if by_chance else min(max(value, 0.0), 1.0)
        return 1.0 if value > 0 else 0.0

    return max((abs(level(new) - level(old)) if new != old else 0.0) for old, new in _levels(before, after))


def ship_rate(reading: Reading, unit: Unit, groups: Sequence[SampledGroup]) -> float:
    """Return the share of the groups' units that would ship, in [0, 1], each group counting once; 0 for no groups.

    Of each group the drawn responses are looked at. A gate by chance counts with its chances.
    """
    if not groups or reading.ships_nothing:
        return 0.0
    return float(_means(reading, unit, groups).mean())


def losses(reading: Reading, unit: Unit, groups: Sequence[SampledGroup]) -> NDArray[np.float64]:
    """Return what each group loses where this is served, in [0, 1]: the mean severity of its items, held ones counting 0.

    A gate by chance counts with its chances, a missing severity as 1.
    """
    if not groups or reading.ships_nothing:
        return np.zeros(len(groups))
    return _means(reading, unit, groups, severities_of(groups))


def _means(
    reading: Reading, unit: Unit, groups: Sequence[SampledGroup], of: NDArray[np.float64] | float = 1.0
) -> NDArray[np.float64]:
    sizes = [len(group.items) for group in groups]
    starts = [0, *accumulate(sizes[:-1])]
    return np.add.reduceat(shipped(reading, unit, groups, sizes) * of, starts) / sizes


def claim_losses(
    reading: Reading, loss: ClaimLoss, groups: Sequence[SampledGroup], *, least_kept: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return what each group loses by the claims that are served, and whether it gets any.

    A missing severity counts as 1; at least one group.
    """
    sizes = [len(group.items) for group in groups]
    starts = np.array([0, *accumulate(sizes[:-1])])
    ships = shipped(reading, "claim", groups, sizes) > 0
    enough = np.add.reduceat(ships, starts, dtype=np.intp) >= least_kept * np.array(sizes)
    ships &= np.repeat(enough, sizes)
    return loss.of_each(severities_of(groups), ships, starts), np.logical_or.reduceat(ships, starts)


def shipped(
    reading: Reading, unit: Unit, groups: Sequence[SampledGroup], sizes: Sequence[int]
) -> NDArray[np.float64]:
    """The chance that each item ships, the groups one after the other."""
    if isinstance(reading.rule, Full) and reading.cut.state == "full":
        return np.repeat([float(_passes(reading.rule, group)) for group in groups], sizes)
    if isinstance(reading.rule, BatchCut):
        gate = PolicyGate(unit=unit, cut=reading.cut, rule=reading.rule)
        return np.concatenate(
            [
                np.array(gate.decide([item.score for item in group.items]).gate.shipped, np.float64)
                for group in groups
            ]
        )
    return _chances(reading, scores_of(groups), groups, sizes)


def _passes(rule: Full, group: SampledGroup) -> bool:
    """Whether a group's unit would ship, as if none of the rule's prompts were it."""
    if group.signals is None or group.items[0].score <= rule.floor:
        return False
    row = np.frombuffer(group.signals, "<f4")
    return all(count <= k for count, _, k in rule.counts(row, group.segment, prompt=group.id))


def _chances(
    reading: Reading, scores: NDArray[np.float64], groups: Sequence[SampledGroup], sizes: Sequence[int]
) -> NDArray[np.float64]:
    rule, level = reading.rule, reading.cut.value
    if isinstance(rule, Chance) and math.isfinite(level):
        return rule.shape.share(scores, level)
    if isinstance(rule, Segments):
        own = {name: cut.value for name, cut in rule.own}
        levels = [own.get(group.segment or "", level) for group in groups]
        return (scores > np.repeat(levels, sizes)).astype(np.float64)
    return (scores > level).astype(np.float64)


def _comparable(before: Rule, after: Rule) -> bool:
    if isinstance(before, Quantile) and isinstance(after, Quantile):
        return True  # both cut at their lambda
    if isinstance(before, Segments) and isinstance(after, Segments):
        return before.key == after.key
    return before == after


def _levels(before: Reading, after: Reading) -> list[tuple[float, float]]:
    """Pair what both cut at: for the policy as a whole, and for each segment that either has a cut for."""
    pairs = [(before.cut.value, after.cut.value)]
    if isinstance(before.rule, Segments) or isinstance(after.rule, Segments):
        old, new = _own(before), _own(after)
        pairs += [
            (old.get(name, before.cut.value), new.get(name, after.cut.value))
            for name in sorted(old.keys() | new.keys())
        ]
    return pairs


def _own(reading: Reading) -> dict[str, float]:
    if not isinstance(reading.rule, Segments):
        return {}
    return {name: cut.value for name, cut in reading.rule.own}


def _window_holds_more(before: BatchCut, after: BatchCut) -> bool:
    """Whether no batch can get a lower lambda from `after` than from `before`.

    A batch passes level l if its charge, at most 1, is within the slack limit - S(l): less slack everywhere is a higher
    lambda for every batch.
    """
    floors = [-math.inf if rule.floor is None else rule.floor for rule in (before, after)]
    if before.labelled != after.labelled or floors[1] < floors[0]:
        return False
    return all(_slack(after, level) <= _slack(before, level) for level in {*before.levels, *after.levels})


def _slack(rule: BatchCut, level: float) -> float:
    position = bisect.bisect_right(rule.levels, level) - 1
    if position < 0:
        return -math.inf
    return min(1.0, budget_limit(rule.alpha, rule.groups) + 1 - rule.totals[position])
