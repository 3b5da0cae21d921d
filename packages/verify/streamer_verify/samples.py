"""Labelled groups: what each item weighs, by the seed and names alone, and what a threshold would lose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from streamer_verify.distributions import gamma_quantile
from streamer_verify.values import keyed_digest

SLACK = 1e-12
"""Of what rounding does to a sum of losses."""


class Group(NamedTuple):
    """The drawn responses of one batch: their scores and severities in [0, 1]; a missing severity is 1.

    `signals` is the row that is recorded of the batch, and `bad` what it counts as, by the method
    `full`. A group loses the severities of what ships over the number of its items; if `summed`, their
    sum: the items are the steps of its loss.
    """

    id: str
    items: Sequence[str]
    scores: Sequence[float]
    severities: Sequence[float]
    draws: int = 1
    segment: str = ""
    signals: bytes | None = None
    bad: bool = False
    summed: bool = False

    @property
    def divisor(self) -> int:
        """What the summed severities of what ships are divided by."""
        return 1 if self.summed else len(self.items)


class Sample(NamedTuple):
    """What a calibrator reads: groups in the order of their decisions, and the budget `alpha` of one attempt.

    The gate's seed is in decimal digits; of the method are `parameters` `eta`, `draws`, `delta`, `rho`. `drawn` is how many
    responses of each batch are labelled at least, `floor` the gate's `label_floor`, and `cuts` are of the unlabelled history,
    for the method `selective`.
    """

    groups: Sequence[Group]
    alpha: float
    seed: str
    parameters: dict[str, Any]
    drawn: int = 1
    floor: float | None = None
    cuts: Sequence[float] = ()


def budget(alpha: float, groups: float) -> float:
    """Return the largest sum of losses that a budget allows over so many groups."""
    allowance = alpha * (groups + 1)
    return allowance - 1 + SLACK * max(1.0, allowance)


def groups_needed(alpha: float) -> int:
    """Return how many groups a budget needs at least."""
    return max(0, math.ceil((1 - SLACK) / alpha) - 1)


def digest_of(seed: str, *parts: str) -> bytes:
    """Return HMAC-SHA256 of names under a seed."""
    return keyed_digest(f"streamer.calibration.v1:{seed}".encode(), *parts)


def pick(seed: str, group: Group) -> int:
    """Return the position of the one item of a group that is looked at."""
    if len(group.items) == 1:
        return 0
    return min(
        range(len(group.items)),
        key=lambda i: (digest_of(seed, "crc", group.id, group.items[i]), group.items[i].encode()),
    )


def coin(seed: str, group: str) -> float:
    """Map a group to [0, 1)."""
    return (int.from_bytes(digest_of(seed, "coin", group)[:8], "big") >> 11) * 2.0**-53


def reading_order(seed: str, groups: Sequence[Group]) -> list[Group]:
    """Sort groups in the order in which betting reads them."""
    return sorted(groups, key=lambda group: (digest_of(seed, "order", group.id), group.id.encode()))


def _crc_weights(sample: Sample, group: Group) -> list[float]:
    chosen = pick(sample.seed, group)
    return [float(i == chosen) for i in range(len(group.items))]


def _bb_weights(sample: Sample, group: Group) -> list[float]:
    draws, count = sample.parameters["draws"], len(group.items)
    named = sorted(range(count), key=lambda i: group.items[i].encode())
    counts = [0] * count
    for first in range(0, draws, 4):
        words = digest_of(sample.seed, "bb", group.id, str(first))
        for draw in range(min(4, draws - first)):
            word = int.from_bytes(words[8 * draw : 8 * draw + 8], "big")
            counts[named[word * count >> 64]] += 1
    return [one / draws for one in counts]


def _rbwa_weights(sample: Sample, group: Group) -> list[float]:
    eta = float(sample.parameters["eta"])
    scale = min(eta, 1.0)
    logs = [_rbwa_log(sample.seed, group.id, item, eta) for item in group.items]
    largest = max(logs)
    parts = [math.exp((log - largest) / scale) for log in logs]
    total = math.fsum(parts)
    return [part / total for part in parts]


@lru_cache(maxsize=1 << 18)  # later runs read the same items again
def _rbwa_log(seed: str, group: str, item: str, eta: float) -> float:
    """Return the logarithm of an item's share before it is divided by the sum, times the smaller of `eta` and 1."""
    words = digest_of(seed, "rbwa", group, item)
    u, v = (((int.from_bytes(words[at : at + 8], "big") >> 11) + 0.5) * 2.0**-53 for at in (0, 8))
    scale = min(eta, 1.0)
    return math.log(v) * (scale / eta) + scale * math.log(gamma_quantile(eta + 1, u))


WEIGHTS: dict[str, Callable[[Sample, Group], list[float]]] = {
    "mean": lambda _, group: [1 / group.divisor] * len(group.items),
    "crc": _crc_weights,
    "bb": _bb_weights,
    "rbwa": _rbwa_weights,
}
"""What each item of a group weighs; an only item weighs 1."""


def item_losses(sample: Sample, scheme: str) -> list[tuple[float, float]]:
    """Return score and loss, weight times severity, of every item."""
    found = []
    for group in sample.groups:
        weights = [1.0] if len(group.items) == 1 else WEIGHTS[scheme](sample, group)
        found += [
            (score, severity * weight)
            for score, severity, weight in zip(group.scores, group.severities, weights, strict=True)
        ]
    return found


def loss_curve(items: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the levels, falling, and the summed loss just below each: a compensated sum."""
    levels: list[float] = []
    totals: list[float] = []
    high = low = 0.0
    for score, loss in sorted((one for one in items if one[1] > 0), key=itemgetter(0), reverse=True):
        total = high + loss
        low += high - total + loss if abs(high) >= abs(loss) else loss - total + high
        high = total
        if levels and levels[-1] == score:
            totals[-1] = high + low
        else:
            levels.append(score)
            totals.append(high + low)
    return levels, totals


def smallest_level(items: Iterable[tuple[float, float]], limit: float) -> float:
    """Return the smallest level whose summed loss is within the limit."""
    if limit < 0:
        return math.inf
    levels, totals = loss_curve(items)
    return next((level for level, total in zip(levels, totals, strict=True) if total > limit), -math.inf)


def by_scheme(sample: Sample, scheme: str) -> float:
    """Return the threshold at which the summed loss keeps the budget."""
    return smallest_level(item_losses(sample, scheme), budget(sample.alpha, len(sample.groups)))


def first_refused(groups: Sequence[Group], refused: Callable[[list[float]], bool]) -> float:
    """Walk from the strictest level down to the first at which the groups' losses, of items at it or above, are refused."""
    entering = sorted(
        (
            (score, number, severity / group.divisor)
            for number, group in enumerate(groups)
            for score, severity in zip(group.scores, group.severities, strict=True)
            if severity > 0
        ),
        key=itemgetter(0),
        reverse=True,
    )
    parts: list[list[float]] = [[] for _ in groups]
    row = [0.0] * len(groups)
    for level, some in itertools.groupby(entering, key=itemgetter(0)):
        for _, number, loss in some:
            parts[number].append(loss)
            row[number] = min(1.0, math.fsum(parts[number]))
        if refused(row):
            return float(level)
    return -math.inf


def mean(values: Sequence[float]) -> float:
    """Return the mean of some numbers."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation, with the divisor n - 1."""
    middle = mean(values)
    return math.sqrt(math.fsum((one - middle) ** 2 for one in values) / (len(values) - 1))
