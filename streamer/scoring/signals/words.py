"""Signals of words and characters: what the other answers say as well. Pure."""

from collections import Counter
from decimal import Decimal
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal import signal

Floats = NDArray[np.float64]

compared = partial(signal, of_others=True)


@compared(
    "exact_match",
    "same head",
    "begins with the same claim as many others (its head, normalised)",
    mean=0.092,
    deviation=0.22,
)
def exact_match(batch: Measured) -> Floats:
    """The share of the others with the same head: the vote of Wang et al. 2023. An empty head is like no other."""
    return _votes(
        ["" if empty else form for form, empty in zip(batch.batch.forms, batch.batch.blank, strict=True)]
    )


@compared("contains", "contains the others", "has the words of the others' heads", mean=0.53, deviation=0.23)
def contains(batch: Measured) -> Floats:
    """The mean share of the words of another's head that it has."""
    return batch.over_others(batch.heads_in_answers.T)


@compared(
    "contained",
    "contained in the others",
    "has a head whose words the others have",
    mean=0.53,
    deviation=0.26,
)
def contained(batch: Measured) -> Floats:
    """The mean share of the words of its head that another has."""
    return batch.over_others(batch.heads_in_answers)


@compared("jaccard", "Jaccard index", "has the same words as the others", mean=0.36, deviation=0.22)
def jaccard(batch: Measured) -> Floats:
    """The mean over the others of the words that both have, of those that either has."""
    return batch.over_others(batch.jaccard)


@compared("rouge_1", "ROUGE-1", "has the same words as the others, as often", mean=0.46, deviation=0.22)
def rouge_1(batch: Measured) -> Floats:
    """The mean F measure of Lin 2004 over the others, words not stemmed."""
    return batch.over_others(batch.rouge_1)


@compared("chrf", "chrF", "has the same sequences of characters as the others", mean=0.44, deviation=0.2)
def chrf(batch: Measured) -> Floats:
    """The mean over the others; see `Measured.chrf`."""
    return batch.over_others(batch.chrf)


@compared(
    "same_number", "same last number", "ends with the same number as many others", mean=0.12, deviation=0.26
)
def same_number(batch: Measured) -> Floats:
    """The share of the others whose last number has the same value; 0 for an answer without one."""
    return _votes(batch.last_numbers)


@compared(
    "same_names", "same names", "has the capitalised words that the others have", mean=0.53, deviation=0.27
)
def same_names(batch: Measured) -> Floats:
    """The mean share of its capitalised words that another has; 1 for an answer without any."""
    return batch.over_others(batch.names_in_names)


@compared(
    "best_match", "largest vote", "is one of answers many of which have one head", mean=0.14, deviation=0.25
)
def best_match(batch: Measured) -> float:
    """The largest `exact_match` of the batch."""
    return batch.best(exact_match.of(batch))


@compared("best_rouge_1", "best ROUGE-1", "is one of answers that share words", mean=0.54, deviation=0.18)
def best_rouge_1(batch: Measured) -> float:
    """The largest `rouge_1` of the batch."""
    return batch.best(rouge_1.of(batch))


@compared(
    "best_chrf",
    "best chrF",
    "is one of answers that share sequences of characters",
    mean=0.51,
    deviation=0.17,
)
def best_chrf(batch: Measured) -> float:
    """The largest `chrf` of the batch."""
    return batch.best(chrf.of(batch))


def _votes(claims: list[str] | list[Decimal | None]) -> Floats:
    """The share of the others that claim the same; nothing claimed is claimed alone."""
    votes = Counter(claims)
    return np.array([0 if one is None or one == "" else votes[one] - 1 for one in claims]) / (len(claims) - 1)
