"""All labels fit a score of many signals, and the same labels calibrate it, exactly.

Each prompt i = 1..G has a row x_i of numbers that need no label (an intercept and d signals) and a mark b_i in {0, 1}, 1 for
bad. For a new prompt x suppose that it is bad, and fit a ridge regression to all G + 1:

    w(x) = argmin sum_i (x_i'w - t_i)^2 + (x'w + 1)^2 + lambda |w without the intercept|^2,    t_i = 1 - 2 b_i,
    count(x) = 1 + #{ i : b_i = 1, x_i'w(x) >= x'w(x) - 1e-9 },    p(x) = count(x) / (G + 1).

The prompt ships iff p(x) <= alpha. Then P(it is bad and ships) <= alpha where the G + 1 prompts are exchangeable: if it is
bad, w(x) is the fit to the true labels of all G + 1 and treats them alike. Of the bad ones at most k = floor(alpha (G + 1))
have a count of at most k, for the m-th from the top has at least m at or above it; the new one is any of the G + 1 with the
same chance. Nothing is assumed of the model: signals that say nothing cost ships, never the promise.

Closed form. Once: A = (X'X + Lambda)^-1 and w = A X't. For each prompt g = A x, h = x'g, r = (-1 - x'w) / (1 + h); then
x'w(x) = x'w + h r and x_i'w(x) = x_i'w + (x_i'g) r. Sums run in a fixed order, and the 1e-9 absorbs their last bits.

Sources: the ridge regression confidence machine (Nouretdinov, Vovk and Gammerman 2001); p-values of conformal selection (Jin
and Candes 2023).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.p_values import binomial
from streamer.calibration.signal_order import UNREAD

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

RIDGE = 100.0
"""Lambda; 30 to 300 ship alike. It is frozen: one that is chosen by what ships breaks the promise."""
INTERCEPT_RIDGE = 1e-6
TIE = 1e-9
"""Scores this close count as equal, and ties count against shipping."""
LEAST_GROUPS = 40
"""With fewer prompts the score alone is cut: which of the two decides must depend on their number only."""
_AT_ONCE = 1000
MOST_GROUPS = 5000
"""The newest prompts that a policy uses."""
LEAST_ALIKE = 20
"""So many calibration prompts must have been read as a batch was, or unread for the same reasons, for it to be compared with
them. A gate may say another number for what is unread."""
NEVER_ALIKE = MOST_GROUPS + 1


def unread(row: ArrayLike) -> bytes:
    """Return which marks of `UNREAD` a row of signals has, a byte each; none is set in one that was read."""
    return bytes((np.asarray(row)[UNREAD] == 1).tolist())


def alike(rows: Iterable[ArrayLike]) -> Counter[bytes]:
    """Count calibration prompts by why they were unread."""
    return Counter(map(unread, rows))


def unfamiliar(
    row: ArrayLike, prompts: Counter[bytes], *, least: float = LEAST_ALIKE, leave_out: bool = False
) -> bool:
    """Report whether fewer than `least` calibration prompts, counted by `alike`, were read as a
    batch was, or unread for the same reasons: the fit of others says nothing of it.

    Of what was read no more than `LEAST_ALIKE` are asked for, however many `least` asks for of what
    was not. A fit has `LEAST_GROUPS` prompts, so where all were read nothing is held.
    `leave_out`: the batch is one of them, and does not count.
    """
    marks = unread(row)
    return prompts[marks] - leave_out < (least if 1 in marks else min(least, LEAST_ALIKE))


def allowed(alpha: float, groups: int, *, attempts: int = 1) -> int:
    """Return the largest count that ships: floor(alpha (G + 1) / R), in whole numbers of alpha as
    it is written; R >= 1 attempts share alpha.

    >>> allowed(0.29, 99), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(repr(float(alpha))) * (groups + 1) / attempts)


def chance_above(level: float, *, alpha: float, groups: int, attempts: int = 1) -> float:
    """Return the chance that one calibration exposes more than `level`, in (0, 1), at a budget that
    holds on average (see `allowed`).

    Exact for a score that was frozen beforehand, without ties, and marks of 0 or 1: what ships lies
    above the k-th wrong one of G prompts, so that exposure is the k-th smallest of G uniform
    numbers, Beta(k, G + 1 - k), or less where fewer are wrong. With all signals it varies hardly
    more. Graded severities vary less.

    >>> round(chance_above(0.075, alpha=0.05, groups=60), 3)
    0.163
    """
    k = allowed(alpha, groups, attempts=attempts)
    return float(binomial(np.array(k - 1), np.array(groups), level)) if k else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class FullFit:
    """Calibration prompts with their fit, from which each new prompt gets its count; made by `fit_full`.

    `groups`: number G >= 0 of prompts. `bad`: positions of the bad ones among them, shape (B,),
    rising. `inverse`: A, shape (d + 1, d + 1); the intercept is first. `weights`: w, shape (d +
    1,), of the fit to the G prompts alone.
    """

    groups: int
    bad: NDArray[np.intp]
    inverse: Floats
    weights: Floats
    _columns: Floats = field(repr=False)
    _scores: Floats = field(repr=False)

    def scores(self, row: ArrayLike) -> tuple[float, Floats]:
        """Return s(x) of a new prompt, supposed bad, and s_i(x) of each bad one, shape (B,), from
        its signals without intercept, shape (d,), finite.
        """
        x = _with_intercept(np.asarray(row)[np.newaxis])[0]
        if x.shape != self.weights.shape:
            raise ValueError(f"a row must have {len(self.weights) - 1} signals, not {len(x) - 1}")
        g = (self.inverse * x[:, np.newaxis]).sum(axis=0)
        h = sum((x * g).tolist())
        own = sum((x * self.weights).tolist())
        step = (-1.0 - own) / (1.0 + h)
        return own + h * step, self._scores + (self._columns * g[:, np.newaxis]).sum(axis=0) * step

    def count(self, row: ArrayLike, among: NDArray[np.intp] | None = None) -> int:
        """Return 1 + how many bad prompts score at least as high as a new one; p is this over G +
        1.

        `among`: only the bad prompts at these positions of `bad` count, those of a segment.
        """
        own, others = self.scores(row)
        front = others >= own - TIE
        return 1 + int(np.count_nonzero(front if among is None else front[among]))

    def counts(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Return the count of each of N new prompts, shape (N,): all at once, for studies."""
        x = _with_intercept(np.asarray(rows))
        found = [np.empty(0, dtype=np.int64)]
        for some in (x[first : first + _AT_ONCE] for first in range(0, len(x), _AT_ONCE)):
            g = some @ self.inverse
            h, own = (some * g).sum(axis=1), some @ self.weights
            step = (-1.0 - own) / (1.0 + h)
            others = self._scores + (g @ self._columns) * step[:, np.newaxis]
            found.append(1 + (others >= (own + h * step - TIE)[:, np.newaxis]).sum(axis=1))
        return np.concatenate(found)


def fit_full(rows: ArrayLike, bad: ArrayLike, *, ridge: float = RIDGE) -> FullFit:
    """Fit the score to calibration prompts: `rows`, shape (G, d), finite, and `bad`, shape (G,).

    Rows are scaled by constants that no label and no calibration prompt has changed; `ridge` is
    lambda > 0, fixed before labels are read. Raises `ValueError` if shapes differ or a number is
    not finite.
    """
    x, marks = _checked(rows, bad)
    inverse, weights = _solved(x, marks, ridge)
    places = np.flatnonzero(marks)
    columns = np.ascontiguousarray(x[places].T)
    return FullFit(len(x), places, inverse, weights, columns, (columns * weights[:, np.newaxis]).sum(axis=0))


def bag_counts(
    rows: ArrayLike, bad: ArrayLike, *, segments: ArrayLike | None = None, ridge: float = RIDGE
) -> NDArray[np.int64]:
    """Return the count that each of G prompts would get as the new one, the G - 1 others being the
    calibration; see `fit_full`.

    Whatever the rows are, at most k of the bad ones have a count of at most k: the theorem, without
    chance. With `segments`, shape (G,), only bad prompts of a prompt's own segment count.
    """
    x, marks = _checked(rows, bad)
    inverse, weights = _solved(x, marks, ridge)
    scores = (x.T * weights[:, np.newaxis]).sum(axis=0)
    pulls = (x @ inverse) @ x[
        marks
    ].T  # shape (G, B): a good prompt that is supposed bad pulls each score by twice this
    raised = scores[marks][np.newaxis] - np.where(marks, 0.0, 2.0)[:, np.newaxis] * pulls
    own = np.where(marks, scores, scores - 2.0 * ((x @ inverse) * x).sum(axis=1))
    front = raised >= own[:, np.newaxis] - TIE
    if segments is not None:
        names = np.asarray(segments)
        front &= names[marks][np.newaxis] == names[:, np.newaxis]
    return np.asarray(front.sum(axis=1) + ~marks, dtype=np.int64)  # a bad one counts itself


def _checked(rows: ArrayLike, bad: ArrayLike) -> tuple[Floats, Marks]:
    x, marks = _with_intercept(np.asarray(rows)), np.asarray(bad, dtype=np.bool_)
    if marks.shape != (len(x),):
        raise ValueError(f"{len(x)} prompts have marks of shape {marks.shape}: one each is needed")
    return x, marks


def _with_intercept(rows: NDArray[np.generic]) -> Floats:
    if rows.ndim != 2:
        raise ValueError(f"rows must have two axes, prompts and signals, not {rows.ndim}")
    x = np.ones((len(rows), rows.shape[1] + 1))
    x[:, 1:] = rows
    if not np.isfinite(x).all():
        raise ValueError("signals must be finite")
    return x


def _solved(x: Floats, bad: Marks, ridge: float) -> tuple[Floats, Floats]:
    """Return A and w. Sums run over the prompts in their order, one after the other."""
    penalty = np.full(x.shape[1], ridge)
    penalty[0] = INTERCEPT_RIDGE
    gram = np.stack([(x * x[:, [j]]).sum(axis=0) for j in range(x.shape[1])]) + np.diag(penalty)
    inverse = np.linalg.inv(gram)
    inverse = (inverse + inverse.T) / 2
    targets = (x * np.where(bad, -1.0, 1.0)[:, np.newaxis]).sum(axis=0)
    return inverse, (inverse * targets[:, np.newaxis]).sum(axis=0)


@dataclass(frozen=True, eq=False)
class Prompts:
    """Labelled prompts with their rows of signals, the oldest first: what a policy of method `full` is made of.

    `ids`: of the prompts, unique. `rows`: shape (G, d), float32, as they are recorded. `bad`: shape
    (G,). `segments`: of each prompt; None: there are none, and all count.
    """

    ids: tuple[str, ...]
    rows: NDArray[np.float32]
    bad: Marks
    segments: tuple[str, ...] | None = None

    def newest(self, count: int) -> Prompts:
        """Return the newest `count` >= 1 of them."""
        if count >= len(self.ids):
            return self
        segments = None if self.segments is None else self.segments[-count:]
        return Prompts(self.ids[-count:], self.rows[-count:], self.bad[-count:], segments)

    @cached_property
    def fit(self) -> FullFit:
        """The fit to all of them."""
        return fit_full(self.rows, self.bad)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all prompts in the order of their bytes: mark (0 or 1), row (float32, little-endian), segment
        (UTF-8), and a 0."""
        names = ("",) * len(self.ids) if self.segments is None else self.segments
        rows = self.rows.astype("<f4")
        parts = [
            bytes([bad]) + row.tobytes() + name.encode() + b"\0"
            for row, bad, name in zip(rows, self.bad.tolist(), names, strict=True)
        ]
        return hashlib.sha256(b"".join(sorted(parts))).hexdigest()

    def spoke(self, row: ArrayLike) -> Floats:
        """Return by how much each signal moves a prompt's score from that of the mean of these, shape (d,), in the fit to them."""
        beside: Floats = np.asarray(row, dtype=np.float64) - self.rows.mean(axis=0, dtype=np.float64)
        return self.fit.weights[1:] * beside

    @cached_property
    def _places(self) -> dict[str, int]:
        return {one: place for place, one in enumerate(self.ids)}

    @cached_property
    def _left_out(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What each would count as new, among all and within its segment."""
        among_all = bag_counts(self.rows, self.bad)
        if self.segments is None:
            return among_all, among_all
        return among_all, bag_counts(self.rows, self.bad, segments=self.segments)

    @cached_property
    def _bad_of(self) -> dict[str, NDArray[np.intp]]:
        names = np.array(self.segments or (), dtype=object)[self.fit.bad]
        return {name: np.flatnonzero(names == name) for name in set(names.tolist())}

    @cached_property
    def _alike(self) -> Counter[bytes]:
        return alike(self.rows)

    def unfamiliar(self, row: ArrayLike, least: float, prompt: str | None = None) -> bool:
        """Report whether fewer than `least` of these prompts, without itself, were read as a batch was; see `unfamiliar`."""
        return unfamiliar(row, self._alike, least=least, leave_out=prompt in self._places)

    def count(self, row: ArrayLike, *, segment: str | None = None) -> int:
        """Return the count of a new prompt, among the bad ones of a segment or (None) of all."""
        among = None if segment is None else self._bad_of.get(segment, np.empty(0, np.intp))
        return self.fit.count(row, among)

    def count_of(self, prompt: str, row: ArrayLike, *, segment: str | None = None) -> int:
        """Return `count`; one of these prompts is left out of them first."""
        place = self._places.get(prompt)
        if place is None:
            return self.count(row, segment=segment)
        return int(self._left_out[segment is not None][place])
