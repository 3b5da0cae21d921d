"""Scores of claims: how far the other answers to the prompt have their words and characters."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from operator import mul
from typing import Any

from streamer_verify.actions import is_blank, judged_text
from streamer_verify.samples import mean

_WORDS = (
    "a about also an and are as at be been being but by can could did do does for from had has have "
    "he her here him his how i if in into is it its may me might must my of on or our over shall she "
    "should so such than that the their them then there these they this those to us was we were what "
    "when where which who whom why will with would you your"
)
_FUNCTION_WORDS = frozenset(_WORDS.split())
_WEIGHTS = {
    ("support", "none"): (0.0, (1 / 6, 0.0, 1 / 6, 1 / 6, 1 / 6, 1 / 3)),
    ("support-learned", "support-learned@1"): (-2.5567, (0.6921, 0.197, 0.2475, 0.8719, 2.1573, 3.5626)),
}
"""A bias and the features' weights, by the scorer and what is recorded as its encoder; those of
`support-learned` were learned from the labels of RefChecker (CC BY 4.0)."""
_NUMBER = re.compile(r"(?:(?<!\w)[-−])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u1950-\u1aaf\u3040-\u30ff\u3105-\u312f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\ua4cf\ua9e0-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f\U00016fe0-\U0001b2ff"
    "\U00020000-\U0003ffff]+"
)


def scores_of(claims: dict[str, Any], settings: dict[str, Any], *by: str) -> list[float] | None:
    """Return the score of each claim and what it rests on; None by a scorer unknown here."""
    if by not in _WEIGHTS:
        return None
    bias, weights = _WEIGHTS[by[0], by[1]]
    (_, text), *others = claims["responses"]
    witnesses = [judged_text(settings, other) for _, other in others]
    said = [text[slice(*span)] for span in claims["spans"]]
    scores = []
    for read, *row in _features(said, witnesses):
        linear = bias + sum(map(mul, weights, row))
        score = linear if by[0] == "support" else 1 / (1 + math.exp(-linear))
        scores.append(round(score, 6) if read else 0.0)
    rests = [[at, *on] for at, on in enumerate(claims.get("rests_on") or [[]] * len(scores))]
    while (lower := [min(scores[one] for one in on) for on in rests]) != scores:
        scores = lower
    return scores


def _features(claims: Sequence[str], witnesses: Sequence[str]) -> list[tuple[float, ...]]:
    """Return of each claim whether it was read, contain, gram4, keys, weakest, rare and A."""
    others, rows = [_read(one) for one in witnesses if not is_blank(one)], []
    for words, grams, names in map(_read, claims):
        content = sorted(words - _FUNCTION_WORDS)
        shares = [mean([word in one[0] for one in others]) for word in content] or [0.0]
        telling = (one in names or any(map(str.isdigit, one)) for one in content)
        keys = [share for share, tells in zip(shares, telling, strict=False) if tells] or [1.0]
        alike = mean([len(grams & one[1]) / max(1, len(grams)) for one in others])
        lowest = sorted(shares)[: math.ceil(len(shares) / 3)]
        rows.append((bool(content), mean(shares), alike, mean(keys), lowest[0], mean(lowest)))
    whole = mean([sum(row[1:4]) / 3 for row in rows])
    return [(*row, whole) for row in rows]


def _read(text: str) -> tuple[set[str], set[str], set[str]]:
    """Return a text's words, with its symbols, its sequences of 4 characters, and its names."""
    text = unicodedata.normalize("NFKC", text)
    kind = unicodedata.category
    plain = _NUMBER.sub(_plain_number, text).casefold()
    kept = (one if one.isalnum() or one == "\0" or kind(one)[0] == "M" else " " for one in plain)
    words = set(_UNSPACED.sub(_pairs, "".join(kept)).replace("\0", ".").split())
    letters = "".join(text.casefold().split())
    grams = {letters[i : i + 4] for i in range(max(1, len(letters) - 3))} if letters else set()
    told = re.findall("[A-Za-z0-9]+" if text.isascii() else r"\w+", text)
    symbols = {one for one in re.findall(r"[^\w\s]", text) if kind(one)[0] == "S"}
    return words | symbols, grams, {one.casefold() for one in told if one[0].isupper()}


def _plain_number(found: re.Match[str]) -> str:
    whole, _, decimals = found[0].replace(",", "").partition(".")
    return whole + ("\0" + decimals if (decimals := decimals.rstrip("0")) else "")


def _pairs(found: re.Match[str]) -> str:
    run = found[0]
    return f" {' '.join(run[i : i + 2] for i in range(max(1, len(run) - 1)))} "
