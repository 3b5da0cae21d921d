"""One item of each group, and whether it is wrong: what bounds on the error rate among shipped answers are counted in."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.groups import LabelledGroup, check_unique
from streamer.calibration.keyed_weights import KeyedWeights


class Counted(NamedTuple):
    """How many groups' items score above a level, and how many of those are wrong."""

    shipped: int
    errors: int


class OneItem:
    """The items, the highest score first.

    Which item of a group it is, and whether a severity between 0 and 1 counts as wrong, follow from
    the seed, which is fixed before labels are read, and from names (HMAC): each item is equally
    likely, and an item is wrong with the probability that its severity names. A severity of 0 never
    is, one of 1 always. Raises `ValueError` if a group id repeats.
    """

    def __init__(self, groups: Sequence[LabelledGroup], seed: int) -> None:
        check_unique(groups)
        keyed = KeyedWeights(seed)
        scores, wrong = np.empty(len(groups)), np.empty(len(groups), dtype=np.bool_)
        for position, group in enumerate(groups):
            item = 0 if len(group.item_ids) == 1 else keyed.pick(group.id, group.item_ids)
            severity = group.severities[item]
            scores[position] = group.scores[item]
            wrong[position] = severity == 1.0 or (severity > 0.0 and keyed.coin(group.id) < severity)
        order = np.argsort(-scores, kind="stable")
        self._falling = -scores[order]
        self._errors = np.concatenate(([0], np.cumsum(wrong[order])))

    @property
    def scores(self) -> NDArray[np.float64]:
        """Shape (G,), not rising."""
        return -self._falling

    def above_each(self, levels: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Count the same for each of several levels: how many ship, and how many of those are wrong."""
        shipped = np.searchsorted(self._falling, -levels, side="left")
        return shipped, self._errors[shipped]

    def above(self, level: float) -> Counted:
        """Count what scores strictly above `level`."""
        shipped, errors = self.above_each(np.array(level))
        return Counted(int(shipped), int(errors))
