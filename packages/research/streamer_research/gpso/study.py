"""GPSO on response clouds, beside logistic regression and nearest class mean on the same splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamer.clouds.cloud import Cloud
from streamer_research.gpso.figures import MEASURES, Estimate, TaskFigures, figures
from streamer_research.gpso.options import RIVALS, StudyOptions
from streamer_research.gpso.protocols import Outcomes, Protocol, Task, judge_across, judge_within
from streamer_research.gpso.questions import Question
from streamer_research.gpso.selection import Embeddings, Selection, select

__all__ = ["DiagnosticsSummary", "GpsoStudy", "Row", "StudyOptions", "gpso_study"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticsSummary:
    """Means of GPSO's diagnostics over all judged batches; see `streamer_research.gpso.diagnostics.Diagnostics`."""

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
    """One method at one task under one protocol; GPSO on batches has `diagnostics`.

    `against`, for GPSO, by rival and measure: this row's figure less the rival's, on the same
    splits.
    """

    protocol: Protocol
    task: Task
    method: str
    figures: TaskFigures
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

    `clouds`: with severities; unlabelled and blank responses are left out and counted.
    `embeddings`: one array for each cloud, shape (its responses, d), all of one d. Not normalised:
    what is normalised already makes pipeline C the same as A and D the same as B. `options`: the
    paper's, unless told otherwise. `progress`: told the protocol and how many questions are done in
    it. Raises `UsageError` no response has a severity, or all are of one class at this cut.
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
    told = progress or (lambda _protocol, _done: None)
    common: dict[str, Any] = {
        name: getattr(options, name) for name in ("min_per_class", "equal_sizes", "seed")
    }
    found = judge_within(
        questions,
        options.methods,
        splits=options.splits,
        train_share=options.train_share,
        progress=partial(told, "within"),
        **common,
    )
    if options.loo:
        found += judge_across(
            questions, options.methods, folds=options.folds, progress=partial(told, "across"), **common
        )
    return found


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

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in each]))

    same = ("separation", "concentration", "eigengap", "dispersion", "rank", "margin")
    return DiagnosticsSummary(
        batches=len(each),
        condition_share=mean("holds"),
        condition_share_paper=mean("holds_paper"),
        **{name: mean(name) for name in same},
    )
