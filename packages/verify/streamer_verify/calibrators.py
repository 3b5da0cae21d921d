"""Thresholds from labelled groups, by every method, shape and segment.

A threshold is a number, infinity where nothing ships, and minus infinity where everything does.
"""

from __future__ import annotations

import itertools
import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from streamer_verify.distributions import binomial_cdf
from streamer_verify.samples import (
    SLACK,
    WEIGHTS,
    Group,
    Sample,
    budget,
    by_scheme,
    coin,
    first_refused,
    groups_needed,
    item_losses,
    loss_curve,
    mean,
    pick,
    reading_order,
    smallest_level,
    spread,
)

_WINDOW_LEVELS = 2048

MOST_SEGMENTS = 500

_TENTHS = range(3, 11)


def _by_age(sample: Sample) -> float:
    count, rho = len(sample.groups), sample.parameters["rho"]
    weights = [rho ** (count - 1 - position) for position in range(count)]
    items = [
        (score, severity / group.divisor * weight)
        for group, weight in zip(sample.groups, weights, strict=True)
        for score, severity in zip(group.scores, group.severities, strict=True)
    ]
    return smallest_level(items, budget(sample.alpha, math.fsum(weights)))


def hoeffding_bentkus(total: float, count: int, alpha: float) -> float:
    """Return the p-value of a mean loss above `alpha`, by the sum of `count` losses."""
    average = min(total / count, alpha)
    divergence = (1 - average) * math.log((1 - average) / (1 - alpha))
    if average > 0:
        divergence += average * math.log(average / alpha)
    whole = min(count, math.ceil(total - SLACK * max(1.0, total)))
    return min(1.0, math.exp(-count * max(0.0, divergence)), math.e * binomial_cdf(whole, count, alpha))


def _by_hb(sample: Sample) -> float:
    count, delta = len(sample.groups), sample.parameters["delta"]

    def passes(total: float) -> bool:
        return bool(hoeffding_bentkus(min(total, count), count, sample.alpha) <= delta)

    if not count or not passes(0.0):
        return math.inf
    levels, totals = loss_curve(item_losses(sample, "mean"))
    return next((level for level, total in zip(levels, totals, strict=True) if not passes(total)), -math.inf)


def betting_p(values: Sequence[float], alpha: float, delta: float) -> float:
    """Return the p-value of a mean loss above `alpha`, by wagers on the losses one after the other."""
    count, total, squares, wealth, most, variance = len(values), 0.0, 0.0, 0.0, 0.0, 0.25
    stake = 2 * math.log(1 / delta)
    for i, loss in enumerate(values):
        bet = min(1.0, math.sqrt(stake / (count * variance)))
        wealth += math.log1p(-bet * (loss - alpha))
        most = max(most, wealth)
        total += loss
        squares += (loss - (total + 0.5) / (i + 2)) ** 2
        variance = (squares + 0.25) / (i + 2)
    return math.exp(-most)


def _by_betting(sample: Sample) -> float:
    count, alpha, delta = len(sample.groups), sample.alpha, sample.parameters["delta"]
    if not count or betting_p([0.0] * count, alpha, delta) > delta:
        return math.inf
    order = reading_order(sample.seed, sample.groups)
    return first_refused(order, lambda row: betting_p(row, alpha, delta) > delta)


def _by_bernstein(sample: Sample) -> float:
    count, alpha = len(sample.groups), sample.alpha
    log = math.log(2 / sample.parameters["delta"])
    if count < math.ceil(7 * log / (3 * alpha)) + 1:
        return math.inf
    room = alpha - 7 * log / (3 * (count - 1))
    return first_refused(
        sample.groups, lambda row: mean(row) + math.sqrt(2 * log / count) * spread(row) > room
    )


def _by_clt(sample: Sample) -> float:
    from statistics import NormalDist  # no other method needs it

    count, alpha = len(sample.groups), sample.alpha
    if count < max(2, groups_needed(alpha)):
        return math.inf
    z = -NormalDist().inv_cdf(min(sample.parameters["delta"], 0.5))
    room = alpha - 1 / (count + 1) + SLACK
    return first_refused(sample.groups, lambda row: mean(row) + z * spread(row) / math.sqrt(count) > room)


class _OneItem:
    """One item of each group, and whether it is wrong."""

    def __init__(self, sample: Sample) -> None:
        marks = []
        for group in sample.groups:
            item = pick(sample.seed, group)
            severity = group.severities[item]
            wrong = severity == 1 or (severity > 0 and coin(sample.seed, group.id) < severity)
            marks.append((group.scores[item], wrong))
        marks.sort(key=itemgetter(0))
        self.rising = [score for score, _ in marks]
        self._wrong = [0, *itertools.accumulate(wrong for _, wrong in marks)]

    def above(self, level: float) -> tuple[int, int]:
        """Return how many items score above a level, and how many of these are wrong."""
        at = bisect_right(self.rising, level)
        return len(self.rising) - at, self._wrong[-1] - self._wrong[at]


def _by_selective(sample: Sample) -> float:
    alpha, delta, floor = sample.alpha, sample.parameters["delta"], sample.floor or 0.0
    items = _OneItem(sample)

    def p_value(level: float) -> float:
        shipped, errors = items.above(level)
        return binomial_cdf(errors, shipped, alpha) if shipped else 1.0

    if sample.cuts:
        found = math.inf
        for cut in sorted({max(one, floor) for one in sample.cuts}, reverse=True):
            if p_value(cut) > delta:
                break
            found = cut
        return found
    falling = items.rising[::-1]
    ranks = [math.ceil(tenths * len(falling) / 10) for tenths in _TENTHS]
    levels = sorted({floor, *(max(falling[rank], floor) for rank in ranks if rank < len(falling))})
    return next((level for level in levels if p_value(level) <= delta / len(_TENTHS)), math.inf)


def _by_selective_mean(sample: Sample) -> float:
    floor, items = sample.floor or 0.0, _OneItem(sample)
    for level in sorted({floor, *(score for score in items.rising if score > floor)}):
        shipped, errors = items.above(level)
        room = sample.alpha * (shipped + 1)
        if errors + 1 <= room + SLACK * max(1.0, room):
            return level
    return math.inf


def _by_transduction(sample: Sample) -> float:
    """Return the strictest threshold that a batch can get."""
    strictest = by_scheme(sample, "mean")
    return strictest if sample.drawn == 1 else min(strictest, 1.0)


def _window(sample: Sample) -> list[list[float | None]]:
    """Return level and summed loss from which a batch's own cut follows; at most 2,048 of them."""
    limit = budget(sample.alpha, len(sample.groups))
    levels, totals = loss_curve(item_losses(sample, "mean"))
    levels, totals = [-math.inf, *reversed(levels)], [*reversed(totals), 0.0]
    first = next(i for i, total in enumerate(totals) if total <= limit + 1)
    last = next((i for i, total in enumerate(totals) if total <= limit), len(totals) - 1)
    levels, totals = levels[first : last + 1], totals[first : last + 1]
    kept = list(range(len(levels)))
    if len(levels) > _WINDOW_LEVELS:
        span = totals[0] - max(totals[-1], limit) or 1.0
        kept, reached = [0], 0
        for i in range(1, len(levels) - 1):
            share = int((totals[0] - totals[i]) / span * (_WINDOW_LEVELS - 1))
            if share > reached:
                kept.append(i)
                reached = share
        kept.append(len(levels) - 1)
    return [[None if levels[i] == -math.inf else levels[i], totals[i]] for i in kept]


METHODS: dict[str, Callable[[Sample], float]] = {
    **{scheme: partial(by_scheme, scheme=scheme) for scheme in WEIGHTS},
    "age": _by_age,
    "hb": _by_hb,
    "betting": _by_betting,
    "bernstein": _by_bernstein,
    "clt": _by_clt,
    "selective": _by_selective,
    "selective-mean": _by_selective_mean,
    "transductive": _by_transduction,
}
"""Threshold of a sample by every method, before a floor raises it."""


def calibrate(
    sample: Sample,
    method: str,
    *,
    shape: str = "indicator",
    width: float | None = None,
    segment_by: str | None = None,
    fallback: str | None = None,
    claims: tuple[str, float] | None = None,
) -> tuple[float, dict[str, Any]]:
    """Return the threshold of a gate and its rule, by its method, its shape and its segments.

    `claims` : their loss and the share that must be left, of a gate of claims.
    """
    parameters: dict[str, Any] = {}
    if claims is not None:
        sample = sample._replace(groups=[_steps(group, *claims) for group in sample.groups])
    if segment_by is not None:
        value, own = _by_segment(sample, method, fallback)
        return value, {"kind": "segments", "parameters": {"key": segment_by, "own": own}, "curve": None}
    if shape in ("smooth", "ramp"):
        if width is None:
            raise ValueError(f"the shape {shape} needs a width")
        value, parameters = _soft(sample, method, shape, width), {"width": width}
    elif shape == "quantile":
        value, quantile = _as_quantile(sample, METHODS[method](sample._replace(floor=None)))
        parameters = {"quantile": quantile}
    elif shape == "rank":
        value = METHODS[method](sample)
    elif method == "transductive":
        parameters = {
            "alpha": sample.alpha, "groups": len(sample.groups), "labelled": sample.drawn, "floor": sample.floor
        }  # fmt: skip
        rule = {"kind": "transductive", "parameters": parameters, "curve": _window(sample)}
        return _raised_to(_by_transduction(sample), sample.floor), rule
    else:
        value, shape = _raised_to(METHODS[method](sample), sample.floor), "indicator"
    return value, {"kind": shape, "parameters": parameters, "curve": None}


def as_cut(value: float) -> dict[str, Any]:
    """Write a threshold as a policy has it."""
    if not math.isfinite(value):
        return {"state": "full" if math.isnan(value) else "closed" if value > 0 else "open", "lambda": None}
    return {"state": "cut", "lambda": value}


def _raised_to(value: float, floor: float | None) -> float:
    return value if floor is None else max(value, floor)


def claim_loss(loss: str, severities: Sequence[float], of: int) -> float:
    """Return what a prompt with so many claims loses by those that ship, by their severities."""
    kind, _, most = loss.partition(":")
    total = math.fsum(severities)
    if kind == "any":
        return max(severities, default=0.0)
    if kind == "mass":
        return min(1.0, total / float(most))
    return total / max(1, of if kind == "share" else len(severities))


def asked_above(settings: dict[str, Any] | None, given: Iterable[tuple[float, float | None]]) -> float:
    """Return the score above which labels of a batch are asked for.

    `given` : the scores and severities of its drawn responses. Below a label floor none is asked
    for, nor of a claim that scores no more than a wrong one, where any wrong one is the whole loss.
    """
    settings = settings or {}
    floor = settings.get("label_floor")
    above = -math.inf if floor is None else floor
    if (settings.get("unit"), settings.get("loss")) != ("claim", "any"):
        return above
    return max([above, *(score for score, severity in given if severity == 1)])


def _steps(group: Group, loss: str, least_kept: float) -> Group:
    """Return what the loss of a prompt rises by at each score of its claims."""
    steps: list[tuple[float, float]] = []
    falling = sorted(zip(group.scores, group.severities, strict=True), reverse=True)
    before = highest = 0.0
    for place, (score, _) in enumerate(falling, start=1):
        if place < len(falling) and falling[place][0] == score:
            continue  # claims of equal score ship together
        now = claim_loss(loss, [severity for _, severity in falling[:place]], len(falling))
        highest = max(highest, now) if loss == "wrong-among" else now
        found = highest if place >= least_kept * len(falling) else 0.0
        steps.append((score, found - before))
        before = found
    scores, rises = zip(*steps, strict=True)
    return group._replace(items=scores, scores=scores, severities=rises, summed=True)


def _by_segment(sample: Sample, method: str, fallback: str | None) -> tuple[float, dict[str, Any]]:
    """Return the threshold of all that have none of their own, and the cuts of segments that are large enough."""
    parts: dict[str, list[Group]] = {}
    for group in sample.groups:
        parts.setdefault(group.segment, []).append(group)
    large = [name for name, some in parts.items() if len(some) >= groups_needed(sample.alpha)]
    large.sort(key=lambda name: (-len(parts[name]), name.encode()))
    own = {
        name: as_cut(_raised_to(by_scheme(sample._replace(groups=parts[name]), method), sample.floor))
        for name in large[:MOST_SEGMENTS]
    }
    rest = by_scheme(sample, method) if fallback == "pooled" else math.inf
    return _raised_to(rest, sample.floor), own


def _as_quantile(sample: Sample, value: float) -> tuple[float, float | None]:
    """Return the double below the next higher score, and the share of scores up to a threshold."""
    if math.isinf(value):
        return value, None
    scores = [score for group in sample.groups for score in group.scores]
    higher = [score for score in scores if score > value]
    share = (len(scores) - len(higher)) / len(scores)
    return math.nextafter(min(higher), -math.inf) if higher else 1.0, share


def _soft(sample: Sample, method: str, shape: str, width: float) -> float:
    """Return the level of a random gate: the smallest double within the budget."""
    items = [one for one in item_losses(sample, method) if one[1] > 0]
    limit = budget(sample.alpha, len(sample.groups))
    if limit < 0:
        return math.inf

    def share(score: float, level: float) -> float:
        away = (score - level) / width
        if shape == "ramp":
            return min(1.0, max(0.0, away))
        small = math.exp(-abs(away))
        return (1.0 if away >= 0 else small) / (1 + small)

    def lost(level: float) -> float:
        return math.fsum(loss * share(score, level) for score, loss in items)

    everything = lost(-math.inf)
    if everything <= limit:
        return -math.inf
    if limit == 0:
        return math.inf
    over, within = -width, 1.0
    if shape == "smooth":
        over = width * math.log((everything - limit) / everything)
        within = 1 + width * math.log(everything / limit)
    if lost(within) > limit:
        return math.inf
    if lost(over) <= limit:
        return over
    low, high = _rank_of(over), _rank_of(within)
    while high - low > 1:
        middle = (low + high) >> 1
        low, high = (low, middle) if lost(_double_of(middle)) <= limit else (middle, high)
    return _double_of(high)


def _rank_of(value: float) -> int:
    """Number the doubles in rising order, 0 being 0."""
    bits = int.from_bytes(struct.pack(">d", abs(value)), "big")
    return bits if value >= 0 else -bits


def _double_of(rank: int) -> float:
    (size,) = struct.unpack(">d", abs(rank).to_bytes(8, "big"))
    return math.copysign(size, rank)
