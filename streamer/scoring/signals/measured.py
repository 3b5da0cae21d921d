"""A batch as signals see it: what several of them need is computed once. Pure."""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


Marks = NDArray[np.bool_]

_CELLS_AT_ONCE = 2**22


def in_common(begins: Marks, rows: Integers, height: int, *, repeated: bool) -> tuple[Floats, Marks]:
    """Count what each two of some rows have in common.

    `begins`: shape (m,), of occurrences of elements, equal ones beside each other: True where
    another element begins. `rows`: shape (m,), in [0, height): where each occurs. `repeated`: an
    element counts as often as both have it; False: once. Returns `common`, shape (height, height),
    whole numbers: sum over elements of the smaller of two counts. Its diagonal counts what other
    rows have as well; `shared`, shape (m,), of which elements more than one row has.
    """
    common = np.zeros((height, height))
    first = np.flatnonzero(begins)
    if not len(first):
        return common, begins
    sizes = np.append(first[1:], len(rows)) - first
    another = ~begins
    another[1:] &= rows[1:] != rows[:-1]
    several = np.logical_or.reduceat(another, first)
    shared = np.repeat(several, sizes)
    element = np.repeat(np.arange(np.count_nonzero(several)), sizes[several])
    row = rows[shared]
    width, step = int(np.count_nonzero(several)), max(1, _CELLS_AT_ONCE // height)
    for start in range(0, width, step):
        low, high = np.searchsorted(element, [start, start + step]) if width > step else (0, len(element))
        wide = min(step, width - start)
        cells = row[low:high] * wide + (element[low:high] - start)
        counts = np.bincount(cells, minlength=height * wide).reshape(height, wide)
        has = (counts > 0).astype(np.float32)
        common += has @ has.T  # of fewer than 2**24 ones: exact in whatever order they are added
        more = counts.astype(np.int32) - 1
        again = (counts > 1).sum(axis=0, dtype=np.int32) > 1
        if repeated and again.any():
            more = np.ascontiguousarray(more[:, again]).clip(min=0)
            block = max(1, _CELLS_AT_ONCE // 16 // more.size)
            for one in range(0, height, block):
                common[one : one + block] += np.minimum(more[one : one + block, np.newaxis], more).sum(axis=2)
    return common, shared


def begins(ordered: Integers) -> Marks:
    """Where each run of equal values begins."""
    found = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found


LONGEST_GRAM = 6
"""The longest sequence of characters that chrF counts, as in Popović 2015."""

_POINT = "\0"
"""What the point of a number is while words are told apart."""
_ASCII_APART = {code: " " for code in range(1, 128) if not chr(code).isalnum()}
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u1950-\u1aaf\u3040-\u30ff\u3105-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\ua4cf"
    "\ua9e0-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f\U00016fe0-\U0001b2ff\U00020000-\U0003ffff]+"
)
"""Thai, Lao, Tibetan, Burmese, Khmer, Tai, Japanese syllables, Chinese, Yi and others written without spaces between words, by blocks:
they stay what they are in every version of Unicode, so that a row of signals does, too."""
_DIGITS = re.compile(r"\d[\d,.]*")
_NUMBER = re.compile(r"(?:(?<!\w)[-−])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
_JOINED = re.compile(r"\d[^\s\d=<>≈→()\[\]{}|;]?\Z")
_COUNTED = 2**16


class Measured:
    """The n >= 2 answers to one prompt.

    `batch`: the answers. `question`: the prompt; None or empty where it is not known. `size`: n.
    `written`: shape (n,), False for blank answers, which agree with none. `texts`: n, empty for a
    blank answer.
    """

    def __init__(self, batch: AnswerBatch, question: str | None = None) -> None:
        self.batch = batch
        self.question = question
        self.size = len(batch.texts)
        self.written = ~np.asarray(batch.blank, dtype=np.bool_)
        texts = batch.wholes or batch.texts
        self.texts = ["" if empty else text for text, empty in zip(texts, batch.blank, strict=True)]
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
    def _digits(self) -> list[list[re.Match[str]]]:
        return [list(_DIGITS.finditer(text)) for text in self.texts]

    @cached_property
    def last_numbers(self) -> list[Decimal | None]:
        """The last number of each answer; None where it has none."""
        return list(map(last_number, self.texts, self._digits))

    @cached_property
    def _numbered(self) -> tuple[dict[str, int], Integers, Integers]:
        """A number for each word, the numbers of all words of all answers, and how many each answer has."""
        words = list(map(words_of, self.texts, self._digits))
        numbers = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(words)))}
        every = list(map(numbers.__getitem__, chain.from_iterable(words)))
        return numbers, np.array(every, dtype=np.int64), np.array([len(one) for one in words])

    @cached_property
    def rouge_1(self) -> Floats:
        """Shape (n, n), its diagonal without meaning: 2 c / (a + b), a and b words in two answers, c in common, each as often as
        both have it.
        """
        numbers, lengths = self._numbered[1:]
        common = _in_common(numbers, np.repeat(np.arange(self.size), lengths), self.size, repeated=True)
        return _share(2 * common, np.add.outer(lengths, lengths))

    @cached_property
    def chrf(self) -> Floats:
        """Shape (n, n), its diagonal without meaning: the mean over k = 1..6, k at most both lengths, of 2 c / (a + b) for
        sequences of k characters; a and b of them in the two, c in common. Of texts in NFKC, casefolded, without white space.

        All places are sorted once by the six characters that begin there; the sequences of k are then beside each other for
        each k, and those of k + 1 are looked for only where those of k are shared.
        """
        plain = ["".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in self.texts]
        lengths = np.array([len(one) for one in plain])
        points = np.frombuffer("".join(plain).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        number = np.cumsum(
            np.bincount(points) > 0
        )  # of each kind of character, from 1; 0 is the end of a text
        row = np.repeat(np.arange(self.size), lengths)
        letters = np.zeros(len(points) + LONGEST_GRAM * self.size, dtype=np.int64)
        place = np.arange(len(points)) + LONGEST_GRAM * row
        letters[place] = number[points]
        kinds = int(letters.max(initial=0)) + 1
        # What fits into 16 bits is sorted by counting: a few such sorts, from the last letters to the first, beat a long one.
        wide = next(width for width in (3, 2, 1) if kinds**width <= _COUNTED or width == 1)
        several = sum(letters[i : len(letters) - wide + 1 + i] * kinds ** (wide - 1 - i) for i in range(wide))
        several = np.asarray(several).astype(np.uint16 if kinds**wide <= _COUNTED else np.uint32)
        for first in range(LONGEST_GRAM - wide, -1, -wide):
            order = np.argsort(several[place + first], kind="stable")
            place, row = place[order], row[order]
        begin = np.zeros(len(place), dtype=np.bool_)
        begin[:1] = True
        total = np.zeros((self.size, self.size))
        for k in range(1, LONGEST_GRAM + 1):
            letter = letters[place + k - 1]
            begin[1:] |= letter[1:] != letter[:-1]
            inside = letter > 0
            place, row, begin = place[inside], row[inside], begin[inside]
            common, shared = in_common(begin, row, self.size, repeated=True)
            have = np.maximum(lengths - k + 1, 0)
            total += _share(2 * common, np.add.outer(have, have))
            place, row, begin = place[shared], row[shared], begin[shared]
        return _share(total, np.minimum(np.minimum.outer(lengths, lengths), LONGEST_GRAM))

    @cached_property
    def _sets(self) -> Floats:
        """How many words each two of the answers, of their heads, of the names in them, and of the question share."""
        numbers, of_answers, lengths = self._numbered
        numbers = dict(numbers)
        heads = [
            "" if empty else form for form, empty in zip(self.batch.forms, self.batch.blank, strict=True)
        ]
        sets = [*map(words_of, heads), *map(names_of, self.texts), words_of(self.question or "")]
        others = [numbers.setdefault(word, len(numbers)) for one in sets for word in one]
        sizes = [
            *lengths,
            *map(len, sets),
            len(numbers),
        ]  # a last row of all words: so the diagonal counts every word
        elements = np.concatenate([of_answers, np.array(others, dtype=np.int64), np.arange(len(numbers))])
        return _in_common(elements, np.repeat(np.arange(len(sizes)), sizes), len(sizes), repeated=False)

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


def _in_common(elements: Integers, rows: Integers, height: int, *, repeated: bool) -> Floats:
    """Count what each two of some rows have in common, whatever the order of the elements; see `in_common`."""
    order = np.argsort(elements)
    return in_common(begins(elements[order]), rows[order], height, repeated=repeated)[0]


def last_number(
    text: str, digits: Iterable[re.Match[str]] | None = None, *, alone: bool = False
) -> Decimal | None:
    """Return the last number that a text has, in any script's digits, commas between thousands left out.

    `digits`: of `_DIGITS`, where they have been found already. `alone`: not a number where it is
    joined to digits before it, as in 12,50, 3/4, 1e5 or 12.11.2026; ``Decimal("nan")`` then.
    """
    last = deque(_DIGITS.finditer(text) if digits is None else digits, maxlen=1)
    if not last:
        return None
    (found,) = deque(_NUMBER.finditer(text, max(0, last[0].start() - 1), last[0].end()), maxlen=1)
    if alone and _JOINED.search(text, 0, found.start()):
        return Decimal("nan")
    return Decimal(found[0].replace(",", "").replace("−", "-"))


def middle(ordered: Floats) -> Floats:
    """Return the median along the last axis of what is sorted along it."""
    size = ordered.shape[-1]
    found: Floats = (ordered[..., (size - 1) // 2] + ordered[..., size // 2]) / 2
    return found


def words_of(text: str, digits: Iterable[re.Match[str]] | None = None) -> list[str]:
    """Return the words of a text: letters, digits and their marks in a row, without case; all else separates.

    In scripts without spaces each two characters that follow one another are a word. A number is one, without commas between thousands
    and zeros at the end: 1,500.50 is 1500.5. A comma before decimals separates, as no text says which language it is in. `digits` as for `last_number`.
    """
    if any(
        "." in one[0][:-1] or "," in one[0] for one in (_DIGITS.finditer(text) if digits is None else digits)
    ):
        text = _NUMBER.sub(_plain_number, text)
    folded = text.casefold()
    if folded.isascii():
        folded = folded.translate(_ASCII_APART)
    else:
        apart = {
            ord(one): " "
            for one in set(folded)
            if not (one.isalnum() or one == _POINT or unicodedata.category(one)[0] == "M")
        }
        folded = _UNSPACED.sub(_pairs, folded.translate(apart))
    return folded.replace(_POINT, ".").split()


def _plain_number(found: re.Match[str]) -> str:
    whole, point, decimals = found[0].replace(",", "").partition(".")
    return whole + (_POINT + decimals if point and (decimals := decimals.rstrip("0")) else "")


def _pairs(found: re.Match[str]) -> str:
    run = found[0]
    return f" {' '.join(run[place : place + 2] for place in range(max(1, len(run) - 1)))} "


def names_of(text: str) -> list[str]:
    """Return the words of a text that begin with a capital letter, casefolded."""
    if text.isascii():
        return [word.lower() for word in text.translate(_ASCII_APART).split() if "A" <= word < "["]
    return [word.casefold() for word in _WORD.findall(text) if word[0].isupper()]


def _share(part: Floats, whole: NDArray[np.integer] | Floats) -> Floats:
    """Return part / whole of counts, 0 where the whole is."""
    found: Floats = part / np.maximum(whole, 1)
    return found
