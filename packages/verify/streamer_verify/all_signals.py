"""The budget that a decision needed: labelled prompts that look at least as good, by all signals or by one score."""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from operator import itemgetter, mul
from typing import Any, NamedTuple

from streamer_verify.calibrators import MOST_SEGMENTS
from streamer_verify.samples import Group, mean
from streamer_verify.settings import UNREAD
from streamer_verify.values import PLAIN, parsed, sha256

RIDGE, INTERCEPT_RIDGE, TIE = 100.0, 1e-6, 1e-9

LEAST_PROMPTS, MOST_PROMPTS = 40, 5000

LEAST_READ = 20
"""Prompts that must have been read for a batch that was, where a gate asks for no fewer of what was not."""

RULES = ("cut", "unread", "twin")
"""Why an encoder does not read an answer, in the order of a row of signals."""

MOST_FITS = 32
"""That are held: a fit has the rows of all bad prompts as numbers."""


def allowed(alpha: float, groups: int, attempts: int) -> int:
    """Return the largest count that ships, floor(alpha (G + 1) / R), exactly."""
    return int(Fraction(repr(float(alpha))) * (groups + 1) / attempts)


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(map(mul, one, other), 0.0)


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Invert a positive definite matrix by Gauss and Jordan, which needs no pivots there."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i, row in enumerate(rows):
        rows[i] = own = [value / row[i] for value in row]
        for j, other in enumerate(rows):
            if j != i:
                by = other[i]
                rows[j] = [value - by * at for value, at in zip(other, own, strict=True)]
    return [row[size:] for row in rows]


class Prompts(NamedTuple):
    """Labelled prompts in the order of their decisions: the row of each, d float32, its mark, and its segment."""

    signals: Sequence[bytes]
    bad: bytes
    segments: Sequence[str]


class Fit:
    """The ridge regression on labelled prompts; see the method `full` in docs/audit-format.md."""

    def __init__(self, prompts: Prompts) -> None:
        rows = list(map(row_of, prompts.signals))
        self._unread = Counter(map(reasons_unread, rows))
        columns = list(zip(*rows, strict=True))
        gram = [[_dot(one, other) for other in columns] for one in columns]
        for i, row in enumerate(gram):
            row[i] += RIDGE if i else INTERCEPT_RIDGE
        self._inverse = _inverse(gram)
        targets = [-1.0 if bad else 1.0 for bad in prompts.bad]
        sums = [_dot(column, targets) for column in columns]
        self._weights = [_dot(row, sums) for row in self._inverse]
        self._bad: dict[str | None, list[tuple[float, list[float]]]] = {None: []}
        for bad, row, segment in zip(prompts.bad, rows, prompts.segments, strict=True):
            if bad:
                one = (_dot(row, self._weights), row)
                self._bad[None].append(one)
                self._bad.setdefault(segment, []).append(one)

    def unfamiliar(self, signals: bytes, least: int) -> bool:
        """Report whether too few prompts were read as a batch was, or unread for the same reasons."""
        reasons = reasons_unread(row_of(signals))
        return self._unread[reasons] < (least if 1 in reasons else min(least, LEAST_READ))

    def count(self, signals: bytes, segment: str | None) -> int:
        """Return 1 + how many bad prompts, of a segment or (None) of all, score at least as high as a new one supposed bad."""
        x = row_of(signals)
        if len(x) != len(self._weights):
            raise ValueError("its row has another number of signals")
        g = [_dot(row, x) for row in self._inverse]
        h, own = _dot(x, g), _dot(x, self._weights)
        step = (-1 - own) / (1 + h)
        bar = own + h * step - TIE
        return 1 + sum(score + _dot(row, g) * step >= bar for score, row in self._bad.get(segment, ()))


def reasons_unread(row: Sequence[float]) -> tuple[float, ...]:
    """Return 1 for each reason for which the encoder did not read a batch, by its row."""
    return tuple(float(one == 1) for one in row[1:][slice(*UNREAD)])


def never_enough(needed: Sequence[float] | None) -> bool:
    """Report whether no budget is enough."""
    return needed is not None and needed[0] > needed[1]


def row_of(signals: bytes) -> list[float]:
    """Read a row, with 1 for the intercept in front."""
    return [1.0, *struct.unpack(f"<{len(signals) // 4}f", signals)]


def fitted(groups: Sequence[Group], settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a rule of all signals says of its prompts; None where there are too few, or some without signals."""
    prompts, alpha, attempts = groups[-MOST_PROMPTS:], settings["alpha"], settings["max_attempts"]
    most = allowed(alpha, len(prompts), attempts)
    if len(prompts) < LEAST_PROMPTS or most < 1 or any(prompt.signals is None for prompt in prompts):
        return None
    segmented = settings["segment_by"] is not None
    sizes = Counter(prompt.segment for prompt in prompts) if segmented else Counter()
    kept = sorted(sizes, key=lambda name: (-sizes[name], name))[:MOST_SEGMENTS]
    own = {name: [sizes[name], allowed(alpha, sizes[name], attempts)] for name in kept}
    sealed = sorted(
        bytes([prompt.bad]) + (prompt.signals or b"") + (prompt.segment if segmented else "").encode() + b"\0"
        for prompt in prompts
    )
    pooled = settings["segment_fallback"] == "pooled"
    return {
        "groups": len(prompts),
        "bad": sum(prompt.bad for prompt in prompts),
        "allowed": most,
        "rows": sha256(b"".join(sealed)),
        "own": {name: one for name, one in own.items() if one[1] >= 1 or not pooled},
    }


class BySignals:
    """What a policy of the method `full` compares a batch with."""

    def __init__(self, rule: dict[str, Any], groups: Sequence[Sequence[Group]]) -> None:
        self._rule = rule["parameters"]
        self._prompts = [
            Prompts(
                [one.signals or b"" for one in some],
                bytes(one.bad for one in some),
                [one.segment for one in some],
            )
            for some in groups
        ]

    def fits(self) -> list[Fit]:
        """Fit the prompts of each part of the rule."""
        return list(map(Fit, self._prompts))

    def needed(self, facts: dict[str, Any], fits: Sequence[Fit]) -> list[Any] | None:
        """Return `[k, G]` of the part that needs the larger budget; None: the batch has no row."""
        if "signals" not in facts:
            return None
        found, segment, given = [], facts.get("segment") or "", self._rule
        for said, fit in zip(given["fits"], fits, strict=True):
            own = said["own"].get(segment)
            of_all = given["segment_by"] is None or (own is None and given["pooled"])
            groups = said["groups"] if of_all else (own or (0,))[0]
            signals = bytes.fromhex(facts["signals"])
            unfamiliar = fit.unfamiliar(signals, given["least_alike"])
            found.append(
                [groups + 1 if unfamiliar else fit.count(signals, None if of_all else segment), groups]
            )
        return max(found, key=lambda one: one[0] / (one[1] + 1))


def ship_above_of(settings: dict[str, Any]) -> float:
    """Return the score above which a gate of the method `full` ships; 0: no score holds."""
    return float(parsed(settings["parameters"])["ship_above"])


class ByScore:
    """What a policy that cuts one score at its budget compares a batch with: the severities at or above its score."""

    def __init__(self, groups: Sequence[Group]) -> None:
        pairs = sorted((group.scores[0], mean(group.severities)) for group in groups)
        self._groups = groups
        self._of: dict[str, ByScore] | None = None
        self._scores = array("d", map(itemgetter(0), pairs))
        self._severities = array("d", map(itemgetter(1), pairs))
        self._above: dict[int, float] = {}

    def needed(self, facts: dict[str, Any], settings: dict[str, Any], rule: dict[str, Any]) -> list[Any]:
        """Return `[c, G]`; where segments have cuts of their own, of the prompts of the batch's segment."""
        segment, unit = facts.get("segment") or "", settings["unit"]
        pooled = settings.get("segment_fallback") == "pooled" and segment not in rule["parameters"].get(
            "own", ()
        )
        if rule["kind"] == "segments" and not pooled:
            if self._of is None:
                names = {one.segment for one in self._groups}
                self._of = {
                    name: ByScore([one for one in self._groups if one.segment == name]) for name in names
                }
            return self._of.get(segment, ByScore(())).needed(facts, settings, PLAIN)
        scores = [one[1] for one in facts["responses"]]
        score = max(scores) if unit == "best" else round(mean(scores), 6)
        at = bisect_left(self._scores, score)
        if at not in self._above:
            self._above[at] = 1 + math.fsum(self._severities[at:])
        return [self._above[at], len(self._scores)]


def cuts_at_budget(policy: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether a policy ships what needs no more than its budget, by one score."""
    rule = parsed(policy.get("rule")) or PLAIN
    weights = ("mean", "full", *(("crc", "bb", "rbwa") if settings["unit"] == "best" else ()))
    cuts = settings["method"] in weights and settings["unit"] not in ("response", "claim")
    return cuts and rule["kind"] in ("indicator", "segments") and settings.get("label_floor") is None


def wrong_budget(said: Any, needed: Any) -> str:
    """Name a budget on record that is not the one that a decision needed."""
    first, second = ("none" if one is None else f"{one[0]:g} of {one[1] + 1}" for one in (said, needed))
    return f"the budget that it needed is {second} by its policy's labelled prompts, and {first} on record"
