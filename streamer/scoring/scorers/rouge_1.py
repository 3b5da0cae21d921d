"""ROUGE-1: how many words an answer has in common with each other answer, each as often as both have it. Pure.

The F measure of Lin 2004 ("ROUGE"), which lm-polygraph's lexical similarity takes over all pairs of a prompt's answers; here each
answer has its own mean, and words are not stemmed. The order of the words does not count: the longest common subsequence
(ROUGE-L) served less on derivations, and takes the product of two lengths where this takes their sum.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import Scorer, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]

_ASCII_WORD = re.compile("[a-z0-9]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Japanese syllables, Chinese: written without spaces between words."""
_COLUMNS_AT_ONCE = 4096
"""Sums of fewer than 2**24 ones are exact in float32."""


@dataclass(frozen=True, slots=True)
class Rouge1(Scorer):
    """The mean of 2 c / (a + b) over the other answers: a and b words in the two, c in common."""

    name: ClassVar[str] = "rouge-1"
    place: ClassVar[int] = 9
    title: ClassVar[str] = "ROUGE-1 of words"
    says: ClassVar[str] = (
        "the answer shares most of its words with the others, as often as they have them and whatever the punctuation"
    )

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch; n answers of T words in all take about n T steps."""
        words = [
            [] if blank else words_of(text) for text, blank in zip(batch.texts, batch.blank, strict=True)
        ]
        common = _in_common(words)
        lengths = np.array([len(one) for one in words], dtype=np.float64)
        both = lengths[:, np.newaxis] + lengths[np.newaxis, :]
        alike = np.divide(2 * common, both, out=np.zeros_like(common), where=both > 0)
        np.fill_diagonal(alike, 0.0)
        return finished(alike.sum(axis=1) / (len(words) - 1), batch.blank)


def words_of(text: str) -> list[str]:
    """Return the words of a text: letters, digits and their marks in a row, without case; all else separates.

    In scripts without spaces each character is a word.
    """
    folded = text.casefold()
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    apart = {
        ord(one): f" {one} " if _UNSPACED.match(one) else " "
        for one in set(folded)
        if _UNSPACED.match(one) or not (one.isalnum() or unicodedata.category(one)[0] == "M")
    }
    return folded.translate(apart).split()


def _in_common(words: Sequence[Sequence[str]]) -> Floats:
    """Return shape (n, n): how many words two of n lists have in common, repeated ones as often as both have them."""
    n = len(words)
    columns: dict[tuple[str, int], int] = {}  # a word's second occurrence is another column than its first
    found = []
    for one in words:
        seen: dict[str, int] = {}
        places = []
        for word in one:
            before = seen.get(word, 0)
            seen[word] = before + 1
            places.append(columns.setdefault((word, before), len(columns)))
        found.append(places)
    column = np.array([place for places in found for place in places], dtype=np.intp)
    row = np.repeat(np.arange(n), [len(places) for places in found])
    shared = np.bincount(column, minlength=len(columns)) > 1
    kept = shared[column]
    column, row = (shared.cumsum() - 1)[column[kept]], row[kept]
    order = np.argsort(column, kind="stable")
    column, row = column[order], row[order]
    common = np.zeros((n, n))
    for first in range(0, int(shared.sum()), _COLUMNS_AT_ONCE):
        start, end = np.searchsorted(column, [first, first + _COLUMNS_AT_ONCE])
        has = np.zeros((n, min(_COLUMNS_AT_ONCE, int(column[end - 1]) - first + 1)), dtype=np.float32)
        has[row[start:end], column[start:end] - first] = 1.0
        common += has @ has.T  # of whole numbers: exact in whatever order they are added
    return common
