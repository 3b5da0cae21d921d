"""GPSO on response clouds, beside logistic regression and nearest class mean on the same splits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from streamer.errors import UsageError
from streamer.experiments.logistic import LogisticRegression
from streamer.experiments.score_cache import own_embeddings
from streamer.gate import is_blank
from streamer.gpso.classifier import DEFAULT_RANK_CAP
from streamer.gpso.figures import MEASURES, Estimate, Figures, figures
from streamer.gpso.methods import Gpso, NearestMean, Tightness
from streamer.gpso.protocols import (
    DEFAULT_FOLDS,
    DEFAULT_SPLITS,
    Outcomes,
    judge_across,
    judge_within,
)
from streamer.gpso.prototypes import DEFAULT_REPLICATES
from streamer.gpso.questions import DEFAULT_MIN_PER_CLASS, DEFAULT_TRAIN_SHARE, Question
from streamer.gpso.scatter import PIPELINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from streamer.experiments.clouds import Cloud
    from streamer.gpso.methods import Method
    from streamer.gpso.protocols import Protocol, Task

    Embeddings = NDArray[np.float32] | NDArray[np.float64]

DEFAULT_CUT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """Everything that a study depends on besides its clouds and their embeddings.

    Attributes
    ----------
    cut : a response is good if its severity is at most this, in [0, 1); else bad.
    pipelines : keys out of ``A`` to ``D``, at least one.
    splits : of each question, within questions.
    loo : whether questions are left out as well.
    folds : groups of questions that are left out together; None: one by one.
    equal_sizes : whether judged batches are of one size; the paper's are not, and then sizes tell classes apart.
    distinct : of responses to one question with the same text only the first is used.
    min_per_class : responses that a question needs in a class for that class to be used, >= 2.
    train_share : of each class's responses, within questions; in (0, 1).
    replicates : the paper's B.
    rank_cap : the paper's r_max.
    seed : of splits, folds and bootstrap.
    """

    cut: float = DEFAULT_CUT
    pipelines: tuple[str, ...] = tuple(PIPELINES)
    splits: int = DEFAULT_SPLITS
    loo: bool = True
    folds: int | None = DEFAULT_FOLDS
    equal_sizes: bool = True
    distinct: bool = False
    min_per_class: int = DEFAULT_MIN_PER_CLASS
    train_share: float = DEFAULT_TRAIN_SHARE
    replicates: int = DEFAULT_REPLICATES
    rank_cap: int = DEFAULT_RANK_CAP
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [key for key in self.pipelines if key not in PIPELINES]
        for wrong, message in (
            (not 0 <= self.cut < 1, f"the cut must be in [0, 1), not {self.cut:g}"),
            (not self.pipelines or bool(unknown), f"pipelines are A, B, C and D, not {', '.join(unknown)}"),
            (self.splits < 1, f"questions must be split at least once, not {self.splits} times"),
            (self.folds is not None and self.folds < 2, f"there must be at least 2 folds, not {self.folds}"),
            (
                self.min_per_class < 2,
                f"a class needs at least 2 responses to be split, not {self.min_per_class}",
            ),
            (
                not 0 < self.train_share < 1,
                f"the share to train on must be in (0, 1), not {self.train_share}",
            ),
            (self.replicates < 1, f"a prototype needs at least 1 replicate, not {self.replicates}"),
            (self.rank_cap < 1, f"the largest rank must be at least 1, not {self.rank_cap}"),
        ):
            if wrong:
                raise UsageError(message)

    @property
    def methods(self) -> list[Method]:
        """The pipelines, then what they are compared with."""
        chosen: list[Method] = [
            Gpso(PIPELINES[key], replicates=self.replicates, rank_cap=self.rank_cap) for key in self.pipelines
        ]
        return [*chosen, LogisticRegression(), NearestMean(), Tightness()]


RIVALS = (LogisticRegression().name, NearestMean().name)
"""What GPSO is compared with by differences."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticsSummary:
    """Means of GPSO's diagnostics over all judged batches; see `streamer.gpso.diagnostics.Diagnostics`."""

    batches: int
    separation: float
    concentration: float
    eigengap: float
    dispersion: float
    rank: float
    margin: float
    condition_share: float
    condition_share_paper: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One method at one task under one protocol.

    Attributes
    ----------
    diagnostics : GPSO on batches only.
    against : for GPSO, by rival and measure: this row's figure less the rival's, on the same splits.
    """

    protocol: Protocol
    task: Task
    method: str
    figures: Figures
    diagnostics: DiagnosticsSummary | None
    against: dict[str, dict[str, Estimate]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpsoStudy:
    """What came of one file: the rows of its tables, and every outcome behind them."""

    options: StudyOptions
    selection: Selection
    question_ids: tuple[str, ...]
    rows: tuple[Row, ...]
    outcomes: tuple[Outcomes, ...]


def gpso_study(
    clouds: Sequence[Cloud],
    embeddings: Sequence[Embeddings],
    options: StudyOptions | None = None,
    *,
    progress: Callable[[str, int], None] | None = None,
) -> GpsoStudy:
    """Test GPSO's pipelines and what they are compared with on labelled clouds.

    Parameters
    ----------
    clouds : with severities; unlabelled and blank responses are left out and counted.
    embeddings : one array for each cloud, shape (its responses, d), all of one d. Not normalised: what is normalised
        already makes pipeline C the same as A and D the same as B.
    options : the paper's, unless told otherwise.
    progress : told the protocol and how many questions are done in it.

    Raises
    ------
    UsageError
        No response has a severity, or all are of one class at this cut.
    """
    options = options or StudyOptions()
    questions, selection = select(clouds, embeddings, options)
    # The matrices are small: threads of the linear algebra library would wait for one another most of the time.
    with threadpool_limits(1):  # type: ignore[no-untyped-call]
        found = _judged(questions, options, progress)
    return GpsoStudy(
        options=options,
        selection=selection,
        question_ids=tuple(question.id for question in questions),
        rows=tuple(_rows([one for one in found if len(one.score)])),
        outcomes=tuple(found),
    )


def _judged(
    questions: Sequence[Question], options: StudyOptions, progress: Callable[[str, int], None] | None
) -> list[Outcomes]:
    found = judge_within(
        questions,
        options.methods,
        splits=options.splits,
        train_share=options.train_share,
        min_per_class=options.min_per_class,
        equal_sizes=options.equal_sizes,
        seed=options.seed,
        progress=None if progress is None else lambda done: progress("within", done),
    )
    if options.loo:
        found += judge_across(
            questions,
            options.methods,
            folds=options.folds,
            min_per_class=options.min_per_class,
            equal_sizes=options.equal_sizes,
            seed=options.seed,
            progress=None if progress is None else lambda done: progress("across", done),
        )
    return found


def cloud_embeddings(
    clouds: Sequence[Cloud], embed: Callable[[Sequence[str]], NDArray[np.float32]]
) -> Sequence[Embeddings]:
    """Return the embeddings of each cloud's responses: those that the file brings along, or what `embed` makes of texts.

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
            "no response has a severity, so there are no classes to tell apart; give each a label in [0, 1]"
        )
    if not counted["good"] or not counted["bad"]:
        only = "good" if counted["good"] else "bad"
        severities = [s for cloud in clouds for s in cloud.severities if s is not None]
        raise UsageError(
            f"every response is {only} at the cut {options.cut:g}: severities go from {min(severities):g} to "
            f"{max(severities):g}; choose a --cut between them"
        )
    return questions, Selection(questions=len(questions), **{name: counted[name] for name in _COUNTED})


_COUNTED = (
    "responses",
    "unlabelled",
    "blank",
    "repeated",
    "copied",
    "good",
    "bad",
    "both_classes",
    "too_few_good",
    "too_few_bad",
    "too_few_both",
    "batches_good",
    "batches_bad",
)


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


def _rows(found: Sequence[Outcomes]) -> list[Row]:
    made = {(one.protocol, one.task, one.method): figures(one) for one in found}
    return [
        Row(
            protocol=one.protocol,
            task=one.task,
            method=one.method,
            figures=made[one.protocol, one.task, one.method],
            diagnostics=_summary(one),
            against={}
            if not one.method.startswith("GPSO")
            else {
                rival: {
                    name: made[one.protocol, one.task, one.method]
                    .measure(name)
                    .minus(made[one.protocol, one.task, rival].measure(name))
                    for name in MEASURES
                }
                for rival in RIVALS
            },
        )
        for one in found
    ]


def _summary(outcomes: Outcomes) -> DiagnosticsSummary | None:
    each = outcomes.diagnostics
    if not each:
        return None

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    return DiagnosticsSummary(
        batches=len(each),
        separation=mean([one.separation for one in each]),
        concentration=mean([one.concentration for one in each]),
        eigengap=mean([one.eigengap for one in each]),
        dispersion=mean([one.dispersion for one in each]),
        rank=mean([one.rank for one in each]),
        margin=mean([one.margin for one in each]),
        condition_share=mean([one.holds for one in each]),
        condition_share_paper=mean([one.holds_paper for one in each]),
    )
