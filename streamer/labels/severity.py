"""Severities from references and from a judge's mark: numbers in [0, 1], 0 = fine, 1 = worst. Pure.

Severities are made offline, for calibration and monitoring; the gate never sees one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamer.labels.answer_head import answer_head
from streamer.labels.lexical import Match, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

DECIMALS = 6
"""Severities are rounded once, here: floating-point noise of a model is no difference between answers."""


@dataclass(frozen=True, slots=True)
class ReferencedAnswer:
    """An answer and what it should have said.

    Attributes
    ----------
    text : the whole answer.
    references : acceptable answers, paraphrases or aliases; at least one that is not blank.
    """

    text: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Severity:
    """A severity as it is used and as it was computed.

    Attributes
    ----------
    value : in [0, 1]: `raw`, clipped and rounded to 1e-6.
    raw : before that; a rescaled BERTScore below 0 makes it larger than 1.
    """

    value: float
    raw: float


class SimilarityScorer(Protocol):
    """What compares texts in pairs, for example by BERTScore."""

    def f1(self, candidates: Sequence[str], references: Sequence[str]) -> Sequence[float]:
        """The F1 of each candidate with the reference beside it; no text is blank. At most 1; may be negative."""


def factuality_severities(
    answers: Sequence[ReferencedAnswer], scorer: SimilarityScorer
) -> tuple[Severity, ...]:
    """Factuality severity of each answer: FS = 1 - max over its references of F1(answer head, reference).

    Parameters
    ----------
    answers : any number.
    scorer : asked once, for all distinct pairs of head and reference together; not at all when there are none.

    Returns
    -------
    tuple of Severity
        In the order of `answers`. An answer without a head has severity 1.

    Raises
    ------
    ValueError
        An answer has no reference that is not blank, or the scorer answered with a number that is not finite.

    Notes
    -----
    The paper's equation for FS (section "Data Generation Pipeline and Metrics").
    """
    heads = [answer_head(answer.text) for answer in answers]
    wanted = [_usable(answer.references, i) for i, answer in enumerate(answers)]
    pairs = list(
        dict.fromkeys(
            (head, reference)
            for head, references in zip(heads, wanted, strict=True)
            if head
            for reference in references
        )
    )
    f1 = dict(zip(pairs, _f1(scorer, pairs), strict=True))
    return tuple(
        _severity(1.0 - max(f1[head, reference] for reference in references)) if head else Severity(1.0, 1.0)
        for head, references in zip(heads, wanted, strict=True)
    )


def lexical_severity(text: str, references: Sequence[str], *, match: Match = "exact") -> float:
    """0.0 when the answer says one of the references, 1.0 when it does not.

    Parameters
    ----------
    text : the answer; pass `answer_head(text)` where an answer goes on after it has answered.
    references : acceptable answers and aliases, at least one that is not blank.
    match : ``exact`` or ``contained``; see `streamer.labels.lexical.matches`.

    Raises
    ------
    ValueError
        There is no reference that is not blank.
    """
    return 0.0 if matches(text, _usable(references, None), match) else 1.0


def judge_severity(mark: float) -> float:
    """JS = 1 - J/100, in [0, 1], for a judge's mark J in [0, 100] (higher is better).

    Raises
    ------
    ValueError
        The mark is outside its range or not a number.
    """
    if not 0.0 <= mark <= 100.0:
        raise ValueError(f"a judge's mark is a number from 0 to 100, not {mark}")
    return round(1.0 - mark / 100.0, DECIMALS)


def _usable(references: Sequence[str], index: int | None) -> list[str]:
    usable = [reference.strip() for reference in references if reference.strip()]
    if not usable:
        which = "the answer" if index is None else f"answer {index}"
        raise ValueError(f"{which} has no reference to be compared with; leave it out, or have it judged")
    return usable


def _f1(scorer: SimilarityScorer, pairs: Sequence[tuple[str, str]]) -> list[float]:
    if not pairs:
        return []
    scores = [float(score) for score in scorer.f1([head for head, _ in pairs], [ref for _, ref in pairs])]
    if len(scores) != len(pairs) or not all(map(math.isfinite, scores)):
        raise ValueError(f"the scorer must give one finite number for each of {len(pairs)} pairs")
    return scores


def _severity(raw: float) -> Severity:
    return Severity(round(min(max(raw, 0.0), 1.0), DECIMALS), raw)
