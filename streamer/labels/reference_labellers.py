"""Labellers that compare an answer with references: BERTScore's factuality severity, and equal words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streamer.events.excerpts import one_line
from streamer.labels.answer_head import answer_head
from streamer.labels.filling import Attempted, in_groups, usable_references
from streamer.labels.severity import (
    ReferencedAnswer,
    Severity,
    SimilarityScorer,
    factuality_severities,
    lexical_severity,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from streamer.labels.label_files import LabelTask
    from streamer.labels.lexical import Match

_ANSWERS_AT_ONCE = 64
"""Answers in one transaction: enough for full passes of a model, few enough to be lost without regret."""


class NamedScorer(SimilarityScorer, Protocol):
    """A scorer of pairs that names what it computes, as `streamer.labels.bertscore.BertScorer` does."""

    id: str


class BertScoreLabeller:
    """Factuality severities: 1 - the best BERTScore F1 of the answer's head with a reference.

    Parameters
    ----------
    scorer : compares texts in pairs; its `id` is the labeller's.
    """

    kind = "bertscore"
    needs_references = True

    def __init__(self, scorer: NamedScorer) -> None:
        self._scorer = scorer
        self.id = scorer.id

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks in groups; one on which the scorer fails is scored apart, and fails alone."""
        for group in in_groups(tasks, _ANSWERS_AT_ONCE):
            try:
                attempts = self._score(group)
            except (ValueError, RuntimeError):
                attempts = [self._alone(task) for task in group]
            yield attempts

    def _score(self, tasks: Sequence[LabelTask]) -> list[Attempted]:
        answers = [ReferencedAnswer(task.response, usable_references(task)) for task in tasks]
        severities = factuality_severities(answers, self._scorer)
        return [
            Attempted(task=task, severity=severity) for task, severity in zip(tasks, severities, strict=True)
        ]

    def _alone(self, task: LabelTask) -> Attempted:
        try:
            (attempt,) = self._score([task])
        except (ValueError, RuntimeError) as error:
            return Attempted(task=task, severity=None, failure=f"not_computed: {one_line(str(error))}")
        return attempt


class LexicalLabeller:
    """Severity 0 where an answer says one of its references, else 1.

    Parameters
    ----------
    match : see `streamer.labels.lexical.matches`.
    whole : look at the whole answer; otherwise at its head.
    """

    kind = "lexical"
    needs_references = True

    def __init__(self, match: Match = "exact", *, whole: bool = False) -> None:
        self._match = match
        self._whole = whole
        self.id = f"lexical/{match}/{'whole' if whole else 'head'}"

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks in groups."""
        for group in in_groups(tasks, _ANSWERS_AT_ONCE):
            yield [Attempted(task=task, severity=self._severity(task)) for task in group]

    def _severity(self, task: LabelTask) -> Severity:
        said = task.response if self._whole else answer_head(task.response)
        value = lexical_severity(said, usable_references(task), match=self._match)
        return Severity(value, value)
