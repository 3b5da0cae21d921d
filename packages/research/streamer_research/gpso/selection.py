"""From labelled clouds to questions with two classes: what a study of GPSO uses, and what it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.clouds.cloud import Cloud
from streamer.errors import UsageError
from streamer.research.experiments.score_cache import own_embeddings
from streamer.scoring.blank import is_blank
from streamer_research.gpso.options import StudyOptions
from streamer_research.gpso.questions import Question

Embeddings = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a file a study uses.

    Attributes
    ----------
    questions, responses : of the file.
    unlabelled, blank : responses left out because nobody gave a severity, or because there is no text to embed.
    repeated : responses left out because an earlier one to the same question has the same text, if that was asked for.
    copied : of those left, responses whose text another response to the same question has too, word for word: within
        questions a copy of a training response is easily judged.
    good, bad : responses of each class, of those left.
    both_classes : questions with enough of both classes: those of the protocol `within`.
    too_few_good, too_few_bad, too_few_both : why the others are skipped there.
    batches_good, batches_bad : classes of questions with enough responses: the batches of the protocol `across`.
    """

    questions: int
    responses: int
    unlabelled: int
    blank: int
    repeated: int
    copied: int
    good: int
    bad: int
    both_classes: int
    too_few_good: int
    too_few_bad: int
    too_few_both: int
    batches_good: int
    batches_bad: int

    @property
    def skipped(self) -> int:
        """Questions that the protocol `within` cannot use."""
        return self.questions - self.both_classes


def cloud_embeddings(
    clouds: Sequence[Cloud], embed: Callable[[Sequence[str]], NDArray[np.float32]]
) -> Sequence[Embeddings]:
    """Return the embeddings of each cloud's responses: those in the file, or what `embed` makes of texts.

    Raises `UsageError` when some clouds bring embeddings and others do not, or of another dimension.
    """
    if own_embeddings(clouds):
        return [np.array([r.embedding for r in cloud.responses], dtype=np.float64) for cloud in clouds]
    ends = np.cumsum([len(cloud.responses) for cloud in clouds])[:-1]
    return np.split(embed([text for cloud in clouds for text in cloud.texts]), ends)


def select(
    clouds: Sequence[Cloud], embeddings: Sequence[Embeddings], options: StudyOptions
) -> tuple[list[Question], Selection]:
    """Turn clouds into questions with two classes, and count what is used. Raises as `gpso_study`."""
    questions, counted = [], Counter[str]()
    for cloud, rows in zip(clouds, embeddings, strict=True):
        blank = np.array([is_blank(text) for text in cloud.texts])
        labelled = np.array([severity is not None for severity in cloud.severities])
        used = labelled & ~blank
        again = (
            used & _repeats(cloud.texts, used) if options.distinct else np.zeros(len(used), dtype=np.bool_)
        )
        used &= ~again
        good = np.array([s is not None and s <= options.cut for s in cloud.severities])[used]
        questions.append(Question(cloud.batch_id, np.asarray(rows, dtype=np.float64)[used], good))
        few_good = int(good.sum()) < options.min_per_class
        few_bad = int((~good).sum()) < options.min_per_class
        counted.update(
            responses=len(used),
            unlabelled=int((~labelled).sum()),
            blank=int((labelled & blank).sum()),
            repeated=int(again.sum()),
            copied=_copies([text for text, use in zip(cloud.texts, used, strict=True) if use]),
            good=int(good.sum()),
            bad=int((~good).sum()),
            both_classes=int(not few_good and not few_bad),
            too_few_good=int(few_good and not few_bad),
            too_few_bad=int(few_bad and not few_good),
            too_few_both=int(few_good and few_bad),
            batches_good=int(not few_good),
            batches_bad=int(not few_bad),
        )
    if not counted["good"] + counted["bad"]:
        raise UsageError(
            "no response has a severity, so there are no classes to separate; give each a label in [0, 1]"
        )
    if not counted["good"] or not counted["bad"]:
        only = "good" if counted["good"] else "bad"
        severities = [s for cloud in clouds for s in cloud.severities if s is not None]
        low, high = min(severities), max(severities)
        raise UsageError(
            f"every response is {only} at the cut {options.cut:g}: "
            + (
                f"severities go from {low:g} to {high:g}; choose a --cut between them"
                if low < high
                else f"all severities are {low:g}, so there are no two classes to separate"
            )
        )
    return questions, Selection(questions=len(questions), **counted)


def _repeats(texts: Sequence[str], used: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the texts that an earlier used response has too."""
    seen: set[str] = set()
    marks = []
    for text, use in zip(texts, used, strict=True):
        marks.append(bool(use) and text in seen)
        if use:
            seen.add(text)
    return np.array(marks, dtype=np.bool_)


def _copies(texts: Sequence[str]) -> int:
    return sum(count for count in Counter(texts).values() if count > 1)
