"""Unlabelled history: what scores prompts have that nobody was asked to label, and the cuts that follow from them.

Labels of other prompts have no part in these cuts. That is what a fixed-sequence test needs of its levels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

TENTHS = (3, 4, 5, 6, 7, 8, 9, 10)
"""The shares that cuts let through, in tenths: the strictest first."""

LEAST = 30
"""Prompts below which a history fixes no cuts."""

MOST = 2_000
"""Prompts that a history has at most, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The cuts that an unlabelled history fixes.

    `prompts`: whose scores were read, >= 0. `cuts`: strictly falling, in [0, 1]: the highest scores
    above which at least 30, 40, ..., 100 % of the scores lie, each once; 0 where that is no score.
    Empty where there were fewer than `LEAST` prompts. Raises `ValueError` if these are no such
    cuts.
    """

    prompts: int = 0
    cuts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.prompts, bool) or not isinstance(self.prompts, int) or self.prompts < 0:
            raise ValueError(
                f"prompts of a history must be a whole number of at least 0, not {self.prompts!r}"
            )
        falls = all(higher > lower for higher, lower in pairwise(self.cuts))
        if not falls or len(self.cuts) > len(TENTHS) or not all(0 <= cut <= 1 for cut in self.cuts):
            raise ValueError(f"cuts of a history must strictly fall within [0, 1], not {self.cuts!r}")

    @classmethod
    def of(cls, scores: ArrayLike, *, prompts: int | None = None) -> History:
        """Fix the cuts from scores in [0, 1] of prompts that are in no calibration; `prompts`: how
        many those are, None for one a score.
        """
        values = np.asarray(scores, dtype=np.float64)
        count = len(values) if prompts is None else prompts
        if count < LEAST:
            return cls(prompts=count)
        cuts = {level_above(values, tenths / 10) for tenths in TENTHS}
        return cls(prompts=count, cuts=tuple(sorted(cuts, reverse=True)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> History:
        """Read what `to_json` wrote. Raises `ValueError` for anything else."""
        try:
            return cls(prompts=values["prompts"], cuts=tuple(map(float, values["cuts"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not a history: {error!r}") from None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"prompts": self.prompts, "cuts": list(self.cuts)}


NO_HISTORY = History()


def level_above(scores: NDArray[np.float64], share: float) -> float:
    """Return the highest of at least one score in [0, 1], or 0, above which at least `share`, in
    (0, 1], of them lie.
    """
    ranked = np.sort(scores)[::-1]
    kth = ranked[math.ceil(round(share * len(ranked), 9)) - 1]
    lower = ranked[ranked < kth]
    return float(lower[0]) + 0.0 if len(lower) else 0.0
