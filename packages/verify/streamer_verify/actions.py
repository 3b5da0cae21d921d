"""What a decision is decided by again: deadlines, draws from the salt, blank texts, and the action by every rule."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from streamer_verify.all_signals import reasons_unread, row_of
from streamer_verify.samples import budget
from streamer_verify.values import ACTION_NAMESPACE, EPOCH, keyed_digest

_YEAR_10000_MS = 253_402_300_800_000


def decided_without_trust(facts: dict[str, Any]) -> bool:
    """Report whether a batch was held, unscored, because the worker trusted no policy of its gate; consumers are to obey."""
    return facts["reason"] == "no_threshold" and not has_scores(facts)


def has_scores(facts: dict[str, Any]) -> bool:
    """Report whether a batch's answers have scores: all of them have, or none."""
    return bool(facts["responses"]) and facts["responses"][0][1] is not None


def is_late(deadline: float | None, created_at: str | None, timestamp_ms: int, now: str) -> bool:
    """Report whether a batch was past its gate's decision deadline: by its own date, or else by its record's timestamp.

    A date further ahead than the deadline is long counts as none, and a batch without any is late.
    """
    if deadline is None:
        return False
    dates = [] if created_at is None else [datetime.fromisoformat(created_at)]
    if 0 <= timestamp_ms < _YEAR_10000_MS:
        dates.append(EPOCH + timedelta(milliseconds=timestamp_ms))
    ages = [(datetime.fromisoformat(now) - date).total_seconds() for date in dates]
    return next((age > deadline for age in ages if age >= -deadline), True)


def is_overdue(deadline_ms: int | None, now: str) -> bool:
    """Report whether the moment had come at which a batch's sender stopped to wait."""
    return deadline_ms is not None and datetime.fromisoformat(now) >= EPOCH + timedelta(
        milliseconds=deadline_ms
    )


def action_id_of(name: bytes) -> str:
    """The action's id: a UUID of version 5 in its namespace, which `uuid.uuid5` takes several times as long to make."""
    text = hashlib.sha1(ACTION_NAMESPACE.bytes + name, usedforsecurity=False).hexdigest()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


def keyed_number(salt: bytes, *parts: str) -> int:
    """Map names to 64 bits under a gate's salt."""
    return int.from_bytes(keyed_digest(salt, *parts)[:8], "big")


def keyed_uniform(salt: bytes, *parts: str) -> float:
    """Map names to [0, 1): what the audit draw compares with its probability."""
    return keyed_number(salt, *parts) / 2.0**64


def uniform_of(salt: bytes, use: str, batch: Sequence[Any], *parts: str) -> float:
    """Draw a batch's number in (0, 1): `dither` and a response (or '') by which a gate of chance ships it, `severity` for its mark."""
    return ((keyed_number(salt, use, *map(str, batch), *parts) >> 12) + 0.5) / 2.0**52


_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Mc", "Me", "Mn", "Zl", "Zp", "Zs"})

_UNSEEN_OTHERS = frozenset(
    map(
        chr,
        (
            0x115F, 0x1160, 0x2065, 0x2800, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9), 0xFFFC, 0xFFFD,
            0x13441, 0x13442, 0x1D159, *range(0xE0000, 0xE1000), *range(0xFDD0, 0xFDF0),
            *range(0xFFFE, 0x110000, 0x10000), *range(0xFFFF, 0x110000, 0x10000),
        ),
    )
)  # fmt: skip


WHITE = " \t\n\r\v\f"
_REASONING = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE | re.ASCII)


def judged_text(settings: dict[str, Any], text: str) -> str:
    """Return an answer without its reasoning, empty where that does not end; by a gate that reads answers raw as it is."""
    tags = [] if "<" not in text or settings.get("judged") == "raw@1" else list(_REASONING.finditer(text))
    return text if not tags else text[tags[-1].end() :].strip(WHITE) if tags[-1][1] else ""


def is_blank(text: str) -> bool:
    """Report whether a text has nothing that a reader could see."""
    first = text[:1]
    if first.isascii() and first.isalnum():  # as nearly every text begins
        return False
    return not any(
        unicodedata.category(character) not in _UNSEEN_CATEGORIES and character not in _UNSEEN_OTHERS
        for character in text
    )


Derived = tuple[list[bool], int | None, tuple[str, float | None]]


def derive_action(
    rule: dict[str, Any],
    *,
    unit: str,
    state: str,
    threshold: float | None,
    scores: Sequence[float],
    blank: Sequence[bool],
    facts: dict[str, Any],
) -> Derived | None:
    """Decide one batch again.

    Returns what ships, the position of the best response (under the unit `best`), and the cut that served the batch;
    None for a rule that this file does not know.
    """
    kind, cut = rule["kind"], (state, threshold)
    if kind == "segments":
        own = rule["parameters"]["own"].get(facts.get("segment"))
        cut = cut if own is None else (own["state"], own["lambda"])
    elif kind not in ("indicator", "quantile", "rank", "smooth", "ramp", "transductive", "full"):
        return None
    count = len(scores)
    written = [i for i in range(count) if not blank[i]]
    best = max(written, key=lambda i: (scores[i], -i)) if unit == "best" and written else None
    values = list(scores)
    if unit == "batch":
        values = [round(math.fsum(scores) / count, 6)] * count
    elif kind == "rank":
        values = [sum(other < score for other in scores) / count for score in scores]
    if kind == "transductive" and state != "closed":  # a closed gate stays closed
        eligible = values[:1] if unit == "batch" else values
        if unit == "best":
            eligible = [0.0 if best is None else scores[best]]
        level = own_level(rule, eligible)
        cut = ("open", None) if level == -math.inf else ("cut", level)
    by = cut
    if kind == "full" and state == "full":
        above = rule["parameters"]["ship_above"]
        by = ("closed", None)
        if _within_budget(rule["parameters"], facts):
            by = ("cut", above) if above else ("open", None)
    elif 1 in unread(facts.get("signals")):
        by = ("closed", None)  # no threshold of scores has seen its like
    bar = math.inf if by[0] == "closed" else -math.inf if by[0] == "open" else by[1]
    if bar is None:
        raise ValueError("a cut without a threshold")
    if kind in ("smooth", "ramp"):
        width, uniforms = rule["parameters"]["width"], facts["uniforms"]
        if unit == "best" and best is not None:
            values = [values[best]] * count
        shift = [math.log(u) - math.log1p(-u) if kind == "smooth" else u for u in uniforms]
        values = [value - width * by for value, by in zip(values, shift, strict=True)]
    passes = [value > bar for value in values]
    if unit in ("response", "claim"):
        return [passes[i] and not blank[i] for i in range(count)], None, cut
    if unit == "batch":
        return [all(passes) and not any(blank)] * count, None, cut
    return [i == best and passes[i] for i in range(count)], best, cut


def unread(signals: str | None) -> tuple[float, ...]:
    """Return what a row says of why the encoder did not read a batch: 1 for each of its reasons."""
    return () if signals is None else reasons_unread(row_of(bytes.fromhex(signals)))


def _within_budget(rule: dict[str, Any], facts: dict[str, Any]) -> bool:
    """Report whether the count on record is one that ships; it is out of the prompts of one of the rule's fits."""
    if "budget" not in facts:
        return False
    count, groups = facts["budget"]
    limits = []
    for fit in rule["fits"]:
        own = fit["own"].get(facts.get("segment") or "")
        if rule["segment_by"] is None or (own is None and rule["pooled"]):
            own = fit["groups"], fit["allowed"]
        limits.append(own or (0, 0))
    return any(groups == of and count <= most for of, most in limits)


def segment_of(value: Any) -> str:
    """Name the segment that a value of the metadata stands for; the empty text is one like any other."""
    if isinstance(value, int) and abs(value) < 10**18:
        return json.dumps(value)
    return value if isinstance(value, str) and len(value) <= 200 else ""


def own_level(rule: dict[str, Any], scores: Sequence[float]) -> float:
    """Find the cut of one batch by a transductive rule, from the scores of what it may ship; minus infinity: all ships."""
    given = rule["parameters"]
    levels = [-math.inf if level is None else level for level, _ in rule["curve"]]
    limit = budget(given["alpha"], given["groups"]) + 1
    falling = [-total for _, total in rule["curve"]]
    ranked = sorted(scores, reverse=True)
    count = len(ranked)
    most = count if given["labelled"] is None else min(given["labelled"], count)
    found, shipped = max(ranked[0], levels[0]), 0
    while shipped < count:
        upper = ranked[shipped]
        while shipped < count and ranked[shipped] == upper:  # ties ship together
            shipped += 1
        at = bisect_left(falling, min(shipped, most) / most - limit)
        if at == len(levels):
            break
        level = max(ranked[shipped] if shipped < count else -math.inf, levels[at])
        if level >= upper:
            break
        found = level
    return max(found, -math.inf if given["floor"] is None else given["floor"])
