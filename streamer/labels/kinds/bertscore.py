"""BERTScore: how far an answer is from its references in meaning, the paper's factuality severity."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from streamer.events.excerpts import one_line
from streamer.labels.filling import Attempted, in_groups
from streamer.labels.severity import LabelTask, Severity, not_blank, of_raw, usable
from streamer.labels.severity_kind import ANSWERS_AT_ONCE, ProgramKind, option
from streamer.scoring.answer_head import answer_head

if TYPE_CHECKING:
    from streamer.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class BertScore(ProgramKind):
    """Factuality severity by BERTScore."""

    name: ClassVar[str] = "bertscore"
    place: ClassVar[int] = 2
    title: ClassVar[str] = "factuality, FS"
    formula: ClassVar[str] = "1 - max over references of BERTScore F1"
    values: ClassVar[str] = "[0, 1], clipped"
    needs: ClassVar[str] = "references, extra `bertscore`"
    use_when: ClassVar[str] = "answers are short and paraphrased"
    group: ClassVar[str] = "bertscore"
    command: ClassVar[
        str
    ] = """Compare what waits in the queues of gates of the kind `bertscore` with the references that came with it.

        A response without references cannot be compared: it is counted, and stays in the queue. The other settings are
        in the group `bertscore`. Labels are stored as they are computed: stop when you like, a second run does the rest.
        """

    model: str | None = option(
        None, "A folder, or a name on the Hugging Face hub; overrides the setting.", metavar="MODEL"
    )
    layers: int | None = option(
        None, "The layer that is compared; overrides the setting.", metavar="L", least=1
    )
    rescale: bool | None = option(None, "Rescale with a baseline, or not; overrides the setting.")

    @contextmanager
    def labeller(self, settings: Settings) -> Iterator[BertScoreLabeller]:
        """Load the model, which takes seconds."""
        from streamer.labels.bertscore import BertScorer

        chosen = settings.bertscore
        yield BertScoreLabeller(
            BertScorer(
                chosen.model,
                layers=chosen.layers,
                rescale_with_baseline=chosen.rescale,
                baseline_file=None if chosen.baseline_file is None else Path(chosen.baseline_file),
                batch_size=chosen.batch_size,
                device=chosen.device,
            )
        )


@dataclass(frozen=True, slots=True)
class ReferencedAnswer:
    """A whole answer and what it should have said: at least one reference that is not blank."""

    text: str
    references: tuple[str, ...]


class SimilarityScorer(Protocol):
    """What compares texts in pairs, for example by BERTScore."""

    def f1(self, candidates: Sequence[str], references: Sequence[str]) -> Sequence[float]:
        """The F1 of each candidate with the reference beside it; no text is blank. At most 1; may be negative."""


def factuality_severities(
    answers: Sequence[ReferencedAnswer],
    scorer: SimilarityScorer,
    *,
    part: Callable[[str], str] = answer_head,
) -> tuple[Severity, ...]:
    """Factuality severity of each answer, in their order: FS = 1 - max over its references of
    F1(answer head, reference).

    The scorer is asked once, for all distinct pairs of head and reference together; not at all when
    there are none. `part` is what of a text is compared; ``str`` compares all of it. An answer
    without a head has severity 1. Raises `ValueError` when an answer has no reference that is not
    blank, or the scorer answers with a number that is not finite. The paper's equation for FS
    (section "Data Generation Pipeline and Metrics").
    """
    heads = [part(answer.text) for answer in answers]
    wanted = [usable(answer.references, i) for i, answer in enumerate(answers)]
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
        of_raw(1.0 - max(f1[head, reference] for reference in references)) if head else Severity(1.0, 1.0)
        for head, references in zip(heads, wanted, strict=True)
    )


class NamedScorer(SimilarityScorer, Protocol):
    """A scorer of pairs that names what it computes, as `streamer.labels.bertscore.BertScorer` does."""

    id: str


class BertScoreLabeller:
    """Factuality severities of answers' heads, in the name of the scorer."""

    kind = "bertscore"
    needs_references = True

    def __init__(self, scorer: NamedScorer) -> None:
        self._scorer = scorer
        self.id = scorer.id

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks in groups; one on which the scorer fails is scored apart, and fails alone."""
        for group in in_groups(tasks, ANSWERS_AT_ONCE):
            try:
                attempts = self._score(group)
            except (ValueError, RuntimeError):
                attempts = [self._alone(task) for task in group]
            yield attempts

    def _score(self, tasks: Sequence[LabelTask]) -> list[Attempted]:
        answers = [ReferencedAnswer(task.head, not_blank(task.references)) for task in tasks]
        severities = factuality_severities(answers, self._scorer, part=str)
        return [
            Attempted(task=task, severity=severity) for task, severity in zip(tasks, severities, strict=True)
        ]

    def _alone(self, task: LabelTask) -> Attempted:
        try:
            (attempt,) = self._score([task])
        except (ValueError, RuntimeError) as error:
            return Attempted(task=task, severity=None, failure=f"not_computed: {one_line(str(error))}")
        return attempt


def _f1(scorer: SimilarityScorer, pairs: Sequence[tuple[str, str]]) -> list[float]:
    if not pairs:
        return []
    scores = [float(score) for score in scorer.f1([head for head, _ in pairs], [ref for _, ref in pairs])]
    if len(scores) != len(pairs) or not all(map(math.isfinite, scores)):
        raise ValueError(f"the scorer must give one finite number for each of {len(pairs)} pairs")
    return scores
