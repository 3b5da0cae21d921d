"""The window of a transductive calibration, and the threshold that each batch gets from it: see `calibrators.transductive`."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from streamer.calibration.arguments import whole_number
from streamer.calibration.loss_curve import budget_limit

Charge = Literal["share", "drawn", "whole"]
"""How c(l) follows from the batch: the mean over all responses, over the k worst, or the worst alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransductiveRule:
    """The window of the summed loss, from which every batch gets a threshold of its own.

    A threshold belongs to the batch that it was found for: never keep it for another batch, and
    record it with the decision. `labelled` is k if at most k responses of each group were drawn for
    labelling; None if all were labelled. `levels` rise, the first may be -inf, and below it nothing
    is admissible; `totals` do not rise and bound S from above for `levels[i] <= l < levels[i + 1]`.
    """

    alpha: float
    method: str
    groups: int
    labelled: int | None
    levels: tuple[float, ...]
    totals: tuple[float, ...]
    guarantee: str
    _limit: float = field(init=False, repr=False)
    _charge: Charge = field(init=False, repr=False)
    _falling: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.levels or len(self.levels) != len(self.totals):
            raise ValueError("a rule needs one total for each level, and at least one level")
        if any(a >= b for a, b in zip(self.levels, self.levels[1:], strict=False)):
            raise ValueError("levels must rise")
        if any(not a >= b for a, b in zip(self.totals, self.totals[1:], strict=False)):
            raise ValueError("totals must not rise")
        object.__setattr__(self, "_limit", budget_limit(self.alpha, self.groups) + 1)
        charge = "whole" if self.method != "mean" else "share" if self.labelled is None else "drawn"
        object.__setattr__(self, "_charge", charge)
        object.__setattr__(self, "_falling", tuple(-total for total in self.totals))

    def threshold_for(self, scores: Sequence[float], caps: Sequence[float] | None = None) -> float:
        """Return lambda_T of one batch, finite or -inf (all ship): a response ships iff its score
        is strictly greater.

        `scores`, in [0, 1], are those of all that the unit may ship, at least one: every response
        for the unit `response`, the best alone for `best`, the mean score for `batch`. `caps`, one
        each in [0, 1] (None: 1), bound severity and are fixed without labels of this batch; a
        response that is held whatever its score (a blank one) may have 0. Raises `ValueError` if
        there are no scores, lengths differ, or a number is outside [0, 1].
        """
        count = len(scores)
        if not count:
            raise ValueError("a batch without responses has no threshold")
        for score in scores:
            if not 0 <= score <= 1:
                raise ValueError(f"scores must lie in [0, 1], not {score!r}")
        if caps is None:
            ranked = sorted(scores, reverse=True)
            charges = self._charges(count)
        else:
            if len(caps) != count:
                raise ValueError(f"there are {count} scores and {len(caps)} caps")
            for cap in caps:
                if not 0 <= cap <= 1:
                    raise ValueError(f"caps must lie in [0, 1], not {cap!r}")
            pairs = sorted(zip(scores, caps, strict=True), reverse=True)
            ranked = [score for score, _ in pairs]
            charges = self._capped_charges([cap for _, cap in pairs])
        levels, falling, limit = self.levels, self._falling, self._limit
        found = max(ranked[0], levels[0])
        shipped = 0
        while shipped < count:
            upper = ranked[shipped]
            shipped += 1
            while shipped < count and ranked[shipped] == upper:  # ties ship together
                shipped += 1
            position = bisect.bisect_left(falling, charges[shipped - 1] - limit)
            if position == len(levels):
                break
            lower = ranked[shipped] if shipped < count else -math.inf
            level = max(lower, levels[position])
            if level >= upper:
                break
            found = level
        return float(found)

    def _charges(self, count: int) -> list[float]:
        """Return c for 1, 2, ..., `count` shipped responses whose severity nothing bounds but 1."""
        if self._charge == "whole":
            return [1.0] * count
        most = count if self.labelled is None else min(self.labelled, count)
        return [min(shipped, most) / most for shipped in range(1, count + 1)]

    def _capped_charges(self, caps: list[float]) -> list[float]:
        count = len(caps)
        if self._charge == "share":
            return [min(1.0, total / count) for total in itertools.accumulate(caps)]
        most = min(self.labelled or 1, count) if self._charge == "drawn" else 1
        worst: list[float] = []
        charges = []
        for cap in caps:
            bisect.insort(worst, cap)
            charges.append(min(1.0, math.fsum(worst[-most:]) / most))
        return charges

    def compressed(self, points: int) -> TransductiveRule:
        """Return a rule of at most `points` >= 2 levels that never ships more than this one.

        Levels are dropped, never moved; the total of each level that stays holds up to the next one
        that stays, so that it bounds S from above everywhere, by less than 1/(points - 1) too much.
        """
        points = whole_number("points", points, least=2)
        if len(self.levels) <= points:
            return self
        top, bottom = self.totals[0], max(self.totals[-1], self._limit - 1)
        span = top - bottom or 1.0
        kept = [0]
        reached = 0
        for position in range(1, len(self.levels) - 1):
            share = int((top - self.totals[position]) / span * (points - 1))
            if share > reached:
                kept.append(position)
                reached = share
        kept.append(len(self.levels) - 1)
        return replace(
            self,
            levels=tuple(self.levels[position] for position in kept),
            totals=tuple(self.totals[position] for position in kept),
        )
