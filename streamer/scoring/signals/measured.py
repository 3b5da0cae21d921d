"""A batch as signals see it: what several of them need is computed once. Pure."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals.counting import in_common

Floats = NDArray[np.float64]

LONGEST_GRAM = 6
"""The longest sequence of characters that chrF counts, as in Popović 2015."""

_ASCII_WORD = re.compile("[a-z0-9]+")
_ASCII_NAME = re.compile(r"\b[A-Z][A-Za-z0-9]*")
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Japanese syllables, Chinese: written without spaces between words."""
_LARGEST = 2**62


class Measured:
    """The n >= 2 answers to one prompt.

    Attributes
    ----------
    batch : the answers.
    question : the prompt; None or empty where it is not known.
    size : n.
    written : shape (n,), False for blank answers, which agree with none.
    texts : n, empty for a blank answer.
    """

    def __init__(self, batch: AnswerBatch, question: str | None = None) -> None:
        self.batch = batch
        self.question = question
        self.size = len(batch.texts)
        self.written = ~np.asarray(batch.blank, dtype=np.bool_)
        self.texts = ["" if empty else text for text, empty in zip(batch.texts, batch.blank, strict=True)]
        self._kept: dict[str, Floats] = {}

    def once(self, name: str, compute: Callable[[], Floats]) -> Floats:
        """Return what was computed under this name, or compute it."""
        if name not in self._kept:
            self._kept[name] = compute()
        return self._kept[name]

    def over_others(self, pairs: Floats) -> Floats:
        """Return the mean over the other n - 1 answers; `pairs` has shape (n, n), its diagonal does not count."""
        found: Floats = (pairs.sum(axis=1) - np.diagonal(pairs)) / (self.size - 1)
        return found

    def best(self, values: Floats) -> float:
        """Return the largest value of a written answer; 0 where none is."""
        return float(values[self.written].max(initial=0.0))

    @cached_property
    def cosines(self) -> Floats:
        """Shape (n, n), the cosines of the embeddings, 0 for a blank answer and on the diagonal."""
        rows = self.batch.unit_rows
        found: Floats = rows @ rows.T
        np.fill_diagonal(found, 0.0)
        return found

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each answer."""
        return [words_of(text) for text in self.texts]

    @cached_property
    def rouge_1(self) -> Floats:
        """Shape (n, n), its diagonal without meaning: 2 c / (a + b), a and b words in two answers, c in common, each as often as both have it."""
        numbers: dict[str, int] = {}
        lengths = np.array([len(one) for one in self.words])
        words = np.array(
            [numbers.setdefault(word, len(numbers)) for one in self.words for word in one], dtype=np.int64
        )
        common = in_common(words, np.repeat(np.arange(self.size), lengths), self.size, repeated=True)
        return _share(2 * common, np.add.outer(lengths, lengths))

    @cached_property
    def chrf(self) -> Floats:
        """Shape (n, n), its diagonal without meaning: the mean over k = 1..6, k at most both lengths, of 2 c / (a + b) for sequences of k characters.

        Of texts in NFKC, casefolded and without white space; a and b are the sequences of the two, c those in common.
        """
        plain = ["".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in self.texts]
        lengths = np.array([len(one) for one in plain])
        points = np.frombuffer("".join(plain).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        alphabet, letters = np.unique(points, return_inverse=True)
        letters = letters.astype(np.int64)
        row = np.repeat(np.arange(self.size), lengths)
        left = np.repeat(np.cumsum(lengths), lengths) - np.arange(
            len(points)
        )  # characters from here to the text's end
        total, grams, codes = np.zeros((self.size, self.size)), letters, max(1, len(alphabet))
        at = np.arange(len(points))
        for k in range(1, LONGEST_GRAM + 1):
            if k > 1:
                kept = left[at] >= k
                at, grams = at[kept], grams[kept]
                if (
                    codes * len(alphabet) * 2 * self.size >= _LARGEST
                ):  # too many to be told apart by a product
                    seen, grams = np.unique(grams, return_inverse=True)
                    codes = len(seen)
                grams = grams * len(alphabet) + letters[at + k - 1]
                codes *= len(alphabet)
            have = np.maximum(lengths - k + 1, 0)
            common = in_common(grams, row[at], self.size, repeated=True)
            total += _share(
                2 * common, np.where(np.minimum.outer(have, have) > 0, np.add.outer(have, have), 0)
            )
        return _share(total, np.minimum(np.minimum.outer(lengths, lengths), LONGEST_GRAM))

    @cached_property
    def _sets(self) -> Floats:
        """How many words each two of the answers, of their heads, of the names in them, and of the question share."""
        sets: list[Sequence[str]] = [
            *self.words,
            *(
                ("" if empty else form).split()
                for form, empty in zip(self.batch.forms, self.batch.blank, strict=True)
            ),
            *map(names_of, self.texts),
            words_of(self.question or ""),
        ]
        numbers: dict[str, int] = {}
        words = np.array(
            [numbers.setdefault(word, len(numbers)) for one in sets for word in one], dtype=np.int64
        )
        # A row of all words makes the diagonal count what no other row has.
        return in_common(
            np.concatenate([words, np.arange(len(numbers))]),
            np.concatenate(
                [
                    np.repeat(np.arange(len(sets)), [len(one) for one in sets]),
                    np.full(len(numbers), len(sets)),
                ]
            ),
            len(sets) + 1,
            repeated=False,
        )

    @cached_property
    def jaccard(self) -> Floats:
        """Shape (n, n): the words that two answers share, of those that either has."""
        common = self._sets[: self.size, : self.size]
        sizes = np.diagonal(common)
        return _share(common, np.add.outer(sizes, sizes) - common)

    @cached_property
    def heads_in_answers(self) -> Floats:
        """Shape (n, n): the share of the words of answer i's head that answer j has."""
        n = self.size
        return _share(self._sets[n : 2 * n, :n], np.diagonal(self._sets)[n : 2 * n, np.newaxis])

    @cached_property
    def names_in_names(self) -> Floats:
        """Shape (n, n): the share of answer i's capitalised words that answer j has; 1 where i has none."""
        n = self.size
        common = self._sets[2 * n : 3 * n, 2 * n : 3 * n]
        sizes = np.diagonal(common)[:, np.newaxis]
        return np.where(sizes > 0, _share(common, sizes), 1.0)

    @cached_property
    def in_question(self) -> Floats:
        """Shape (n,): the share of an answer's words that the question has."""
        return _share(self._sets[: self.size, 3 * self.size], np.diagonal(self._sets)[: self.size])


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


def names_of(text: str) -> list[str]:
    """Return the words of a text that begin with a capital letter, casefolded."""
    if text.isascii():
        return [word.lower() for word in _ASCII_NAME.findall(text)]
    return [word.casefold() for word in _WORD.findall(text) if word[0].isupper()]


def _share(part: Floats, whole: NDArray[np.integer] | Floats) -> Floats:
    """Return part / whole, 0 where the whole is."""
    whole = np.broadcast_to(whole, part.shape)
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
