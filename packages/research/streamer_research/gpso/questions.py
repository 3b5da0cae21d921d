"""A question's responses as rows with classes, and how rows and questions are split. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer_research.gpso.scatter import Floats

Booleans = NDArray[np.bool_]
Places = NDArray[np.intp]

DEFAULT_TRAIN_SHARE = 0.6
"""The paper's share of each class's rows for training, within a question."""
DEFAULT_MIN_PER_CLASS = 3
"""Rows that a class needs to be used; fewer leave nothing to train or to test with."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One question's responses: embeddings `rows`, shape (n, d), as the encoder pools them, not
    normalised, and the class of each, `good`, shape (n,). Ids are unique.
    """

    id: str
    rows: Floats
    good: Booleans

    def of_class(self, *, good: bool) -> Floats:
        """Return the rows of one class, in order."""
        rows: Floats = self.rows[self.good == good]
        return rows

    def has(self, least: int) -> bool:
        """Report whether both classes have at least `least` rows."""
        right = int(self.good.sum())
        return min(right, len(self.good) - right) >= least


def seed_for(seed: int, *names: object) -> list[int]:
    """Derive a seed for `numpy.random.default_rng` from the run's seed and names: independent of order and of the file."""
    text = ":".join(str(name) for name in (seed, *names))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]


def split_rows(
    good: Booleans, rng: np.random.Generator, train_share: float = DEFAULT_TRAIN_SHARE
) -> tuple[Places, Places]:
    """Split the rows of a question by class ("Within-question (stratified)").

    `good`: shape (n,), at least 2 rows of each class. `rng`: randomness. The two classes are
    shuffled by two generators of the same seed, so that swapping the classes gives the same split.
    `train_share`: in (0, 1); of each class with m rows, the nearest whole number of m times this is
    trained on (a half goes up), at least 1 and at most m - 1. Returns the places of training and of
    test rows, each in increasing order.
    """
    if not 0 < train_share < 1:
        raise ValueError(f"the share of rows to train on must be between 0 and 1, not {train_share}")
    train: list[Places] = []
    test: list[Places] = []
    seed = int(rng.integers(2**63))
    for places in (np.flatnonzero(good), np.flatnonzero(~good)):
        if len(places) < 2:
            raise ValueError(f"a class with {len(places)} rows cannot be split")
        kept = min(max(int(len(places) * train_share + 0.5), 1), len(places) - 1)
        shuffled = np.random.default_rng(seed).permutation(places)
        train.append(shuffled[:kept])
        test.append(shuffled[kept:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def leave_out(questions: Sequence[Question], folds: int | None, seed: int) -> list[list[int]]:
    """Say which questions are left out together: each is left out once.

    `questions`: at least 2. `folds`: how many groups at most, >= 2; None: every question is a group
    of its own (the paper's LOO). `seed`: of the shuffle that fills the groups; the order of
    `questions` does not matter. Returns for each fold the places in `questions`; sizes differ by at
    most one.
    """
    if len(questions) < 2 or (folds is not None and folds < 2):
        raise ValueError("leaving questions out needs at least 2 questions and 2 folds")
    order = sorted(range(len(questions)), key=lambda i: seed_for(seed, "fold", questions[i].id))
    count = len(order) if folds is None else min(folds, len(order))
    return [sorted(order[first::count]) for first in range(count)]
