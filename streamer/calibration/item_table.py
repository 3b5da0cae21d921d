"""The items of all groups in one canonical order, and what each group loses at each threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.groups import LabelledGroup, check_unique, laid_out

Floats = NDArray[np.float64]

_CELLS = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class ItemTable:
    """Items group by group, groups by id, so that the order in which groups and items came changes no sum.

    `ids`: length G, rising. `scores`, `severities`: shape (N,), in [0, 1]. `index`: shape (N,),
    each item's group in 0..G-1, not falling. `sizes`: shape (G,), labelled items of each group, at
    least 1. `divisors`: shape (G,), what the summed severities of what ships are divided by.
    """

    ids: tuple[str, ...]
    scores: Floats
    severities: Floats
    index: NDArray[np.intp]
    sizes: NDArray[np.int64]
    divisors: NDArray[np.int64]

    @classmethod
    def of(cls, groups: Sequence[LabelledGroup] | ItemTable) -> ItemTable:
        """Lay out groups; a table stays what it is, so that who calibrates at many budgets lays them out once.

        Raises `ValueError` if a group id repeats.
        """
        if isinstance(groups, ItemTable):
            return groups
        check_unique(groups)
        ranked = sorted(groups, key=attrgetter("id"))
        scores, severities, sizes, divisors = laid_out(ranked)
        index = np.repeat(np.arange(len(ranked)), sizes)
        order = np.lexsort((severities, scores, index))
        ids = tuple([group.id for group in ranked])
        return cls(ids, scores[order], severities[order], index, sizes, divisors)

    @property
    def groups(self) -> int:
        """Number G of groups."""
        return len(self.sizes)

    @property
    def losses(self) -> Floats:
        """What each item adds to its group's loss once it ships, by the scheme mean: m/I, shape (N,)."""
        return self.severities / self.divisors[self.index]

    def loss_levels(self) -> Floats:
        """Return the distinct scores that carry loss, strictly falling: only there does a group's loss change."""
        return np.unique(self.scores[self.severities > 0])[::-1] + 0.0

    def sums_by_level(self, levels: Floats, *, start: int = 0) -> Iterator[Floats]:
        """Yield each group's loss just below each level, where items that score exactly it ship too, in blocks of bounded
        size: shape (k, G), a row for each of the next k levels, free to be changed.

        `levels` strictly fall; those before `start` are not walked.
        """
        terms = self.losses
        position = np.searchsorted(-levels, -self.scores, side="left")
        order = np.argsort(position, kind="stable")
        ranked = position[order]
        step = max(1, _CELLS // max(1, self.groups))
        before = order[: np.searchsorted(ranked, start)]
        shipped = np.bincount(self.index[before], weights=terms[before], minlength=self.groups)
        for first in range(start, len(levels), step):
            last = min(first + step, len(levels))
            some = order[np.searchsorted(ranked, first) : np.searchsorted(ranked, last)]
            rows = np.zeros((last - first, self.groups))
            np.add.at(rows, (position[some] - first, self.index[some]), terms[some])
            rows[0] += shipped
            np.cumsum(rows, axis=0, out=rows)
            shipped = rows[-1].copy()
            yield rows

    def first_level(
        self, levels: Floats, outside: Callable[[Floats], NDArray[np.bool_]], *, start: int = 0
    ) -> float:
        """Walk down from the strictest level (see `sums_by_level`); return the first just below
        which `outside` holds, or -inf.

        `outside` makes k marks of group losses, shape (k, G).
        """
        passed = start
        for rows in self.sums_by_level(levels, start=start):
            marks = outside(rows)
            if marks.any():
                return float(levels[passed + int(np.argmax(marks))])
            passed += len(rows)
        return -math.inf
