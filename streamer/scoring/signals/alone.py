"""Signals of the answer itself, its question, and how many answers there are. Pure."""

import re

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.signals.measured import Measured, middle
from streamer.scoring.signals.signal import signal

Floats = NDArray[np.float64]

_OPENING = 160
_REFUSAL = re.compile(
    r"\b(?:sorry|apologi[sz]e|unfortunately|as an? (?:ai|language model)|(?:i|we) (?:can ?not|can't|could not|couldn't|do not|"
    r"don't|am not|'m not|are not|am unable|was unable|won't|will not)|i'm (?:not|unable|afraid)|unable to|not (?:sure|certain|"
    r"clear|known|available|specified|mentioned|provided|possible)|no (?:information|answer|idea|mention|evidence)|unknown|"
    r"unclear|it depends|(?:insufficient|not enough) (?:information|context|data)|je ne sais|désolé|tut mir leid|weiß nicht|"
    r"lo siento|no (?:lo )?sé|não sei|desculpe|non lo so|mi dispiace)\b"
)


@signal("length", "length", "is long (logarithm of its characters)", mean=5.2, deviation=1.7)
def length(batch: Measured) -> Floats:
    """ln(1 + characters), white space at the ends left out."""
    return np.log1p([len(text.strip()) for text in batch.texts])


@signal(
    "length_to_median", "length against the median", "is longer than the others", mean=0.072, deviation=0.7
)
def length_to_median(batch: Measured) -> Floats:
    """Its `length` less the median of the written answers."""
    lengths = length.of(batch)
    return lengths - middle(np.sort(lengths[batch.written])) if batch.written.any() else lengths


@signal(
    "question_overlap",
    "overlap with the question",
    "repeats words of the question",
    mean=0.32,
    deviation=0.26,
)
def question_overlap(batch: Measured) -> Floats:
    """The share of its words that the question has; of a question that is not known the mean of the scale."""
    if not batch.question:
        return np.full(batch.size, question_overlap.mean)
    return batch.in_question


@signal("refusal", "opens like a refusal", "opens like a refusal, or with doubt", mean=0.024, deviation=0.15)
def refusal(batch: Measured) -> Floats:
    """1 where its first 160 characters have a phrase of refusal or doubt, else 0; English, and a few phrases of others."""
    openings = (text[:_OPENING].casefold().replace("’", "'") for text in batch.texts)
    return np.array([float(_REFUSAL.search(one) is not None) for one in openings])


@signal("has_number", "has a number", "has a digit", mean=0.43, deviation=0.5)
def has_number(batch: Measured) -> Floats:
    """1 where it has a digit of any script, else 0."""
    return np.array([float(one is not None) for one in batch.last_numbers])


@signal("one_of", "1 / answers", "is one of few", mean=0.13, deviation=0.074)
def one_of(batch: Measured) -> float:
    """1 / n."""
    return 1.0 / batch.size
