"""`support`: how far the other answers to the prompt say what a claim says, in its words and
characters. Pure; no encoder.

Witnesses are the other answers, but for blank ones. With C the words of a claim without function
words, f(x) the share of witnesses that have the word x, and a mean over nothing being 0:

    contain   the mean of f over C
    gram4     the mean over witnesses of the share of the claim's sequences of 4 characters it has
    keys      the mean of f over the numbers and capitalised words among C; 1 without any
    weakest   the least f over C
    rare      the mean of the lowest third of f over C
    A         the mean over the answer's claims of (contain + gram4 + keys) / 3

    support = (contain + keys + weakest + rare + 2 A) / 6, rounded to 6 places

A claim that has no word in C was not read, and has support 0. Each symbol is a word, so that no
emoji or sign of comparison goes unread.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.blank import is_blank
from streamer.scoring.signals.measured import names_of, words_of

Floats = NDArray[np.float64]

_WORDS = (
    "a about also an and are as at be been being but by can could did do does for from had has "
    "have he her here him his how i if in into is it its may me might must my of on or our over "
    "shall she should so such than that the their them then there these they this those to us was "
    "we were what when where which who whom why will with would you your"
)
FUNCTION_WORDS = frozenset(_WORDS.split())
"""Frozen: words that say nothing by themselves. Negations do."""

_SYMBOLS = re.compile(r"[^\w\s]")


def finished(values: Floats, claims: Sequence[str]) -> Floats:
    """Round to 6 places; a claim that has no word in C has 0."""
    read = np.array([bool(_content(_plain(one))) for one in claims])
    found: Floats = np.where(read, np.round(values, 6), 0.0)
    return found


def places(claims: Iterable[tuple[str, Sequence[str]]]) -> list[list[int]]:
    """Return the places of the claims that each of an answer rests on, by its id and theirs."""
    named = list(claims)
    place = {name: at for at, (name, _) in enumerate(named)}
    return [[place[one] for one in on] for _, on in named]


def least(scores: Floats, rests_on: Sequence[Sequence[int]]) -> Floats:
    """Lower each score, shape (K,), to the least of what its claim rests on, and what that rests on.

    So what scores above any threshold is closed: no claim is in it without what it rests on.
    Without `rests_on` nothing rests on anything.
    """
    if not rests_on:
        return scores
    rests = [[at, *on] for at, on in enumerate(rests_on)]
    while ((lower := np.array([scores[on].min() for on in rests])) < scores).any():
        scores = lower
    return scores


def features(claims: Sequence[str], witnesses: Sequence[str]) -> Floats:
    """Return contain, gram4, keys, weakest, rare and A of each of the K >= 1 claims of one answer,
    shape (K, 6).

    `witnesses`: the other answers to the prompt, without their reasoning; blank ones are passed
    over. Raises `ValueError` if there is no witness: such an answer is held.
    """
    others = [_plain(one) for one in witnesses if not is_blank(one)]
    if not others:
        raise ValueError("support needs another answer that is not blank")
    words, grams = [set(_words(one)) for one in others], [_grams(one) for one in others]
    rows = []
    for claim in map(_plain, claims):
        content, sequences = _content(claim), _grams(claim)
        shares = np.array([sum(word in one for one in words) for word in content]) / len(words)
        telling = {one for one in content if any(map(str.isdigit, one))} | set(names_of(claim))
        keys = np.array([one in telling for one in content], dtype=np.bool_)
        third = np.sort(shares)[: math.ceil(len(shares) / 3)]
        alike = sum(len(sequences & one) for one in grams) / (max(1, len(sequences)) * len(grams))
        named = _mean(shares[keys]) if keys.any() else 1.0
        rows.append((_mean(shares), alike, named, shares.min(initial=1.0), _mean(third)))
    found = np.array(rows, dtype=np.float64).reshape(len(rows), 5)
    return np.column_stack([found, np.full(len(rows), (found[:, :3].sum(axis=1) / 3).mean())])


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _words(text: str) -> list[str]:
    symbols = [one for one in _SYMBOLS.findall(text) if unicodedata.category(one)[0] == "S"]
    return words_of(text) + symbols


def _content(claim: str) -> list[str]:
    return sorted(set(_words(claim)) - FUNCTION_WORDS)


def _grams(text: str) -> set[str]:
    letters = "".join(text.casefold().split())
    return {letters[i : i + 4] for i in range(max(1, len(letters) - 3))} if letters else set()


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
