"""The judge's scores Q_J = J/100 of all answers of some clouds: each distinct answer is put to the judge once.

A score decides at run time, where there are no references: the judge sees question and answer head alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from streamer.clouds.line_record import append_lines, read_lines
from streamer.errors import Unavailable
from streamer.labels.answer_head import answer_head
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.kinds.judge import GIVE_UP_AFTER
from streamer.labels.llm.record import PASSING
from streamer.scoring.blank import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamer.labels.judge.client import JudgeClient
    from streamer.research.evaluation.data_sets import DataSet


class _JudgeMark(msgspec.Struct):
    key: str
    score: float
    subscores: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Wanted:
    key: str
    case: JudgeCase


def judged(
    data: DataSet, judge: JudgeClient, *, folder: Path, progress: Callable[[int, int], None]
) -> DataSet:
    """Return the data set with the scores ``judge``.

    Every mark is written to `folder` as soon as it is there, under a hash of question and answer head and the judge's
    name: a run that is ended, or whose endpoint becomes unavailable, loses nothing, and the next one asks for the rest. An answer
    without a mark has no score; one that is blank has 0 and is not asked about.

    Parameters
    ----------
    judge : who marks.
    folder : made if it is not there.
    progress : called with the numbers of answers that are marked and that there are, repeated ones counted once.

    Raises
    ------
    UsageError : the endpoint takes no request at all.
    Unavailable : it answered none of `GIVE_UP_AFTER` answers one after another, each as often as it is tried.
    """
    record = folder / f"{hashlib.sha256(judge.id.encode()).hexdigest()[:32]}.jsonl"
    marks = {mark.key: mark for mark in read_lines(record, strict_type=_JudgeMark) if 0 <= mark.score <= 1}
    cases = [
        [_wanted(cloud.question, response.text) for response in cloud.responses] for cloud in data.clouds
    ]
    distinct = {one.key: one for row in cases for one in row if not is_blank(one.case.candidate)}
    missing = [one for key, one in distinct.items() if key not in marks]
    progress(len(distinct) - len(missing), len(distinct))
    failures: Counter[str] = Counter()
    in_vain = 0

    def asked() -> Iterator[JudgeCase]:
        return (one.case for one in missing)

    with closing(judge.finished(asked())) as groups:
        for judgements in groups:
            found = []
            for number, judgement in judgements:
                if judgement.verdict is not None and judgement.normalised is not None:
                    found.append(
                        _JudgeMark(
                            missing[number].key, judgement.normalised, dict(judgement.verdict.subscores)
                        )
                    )
                    in_vain = 0
                elif judgement.failure is not None:
                    failures[judgement.failure.code] += 1
                    in_vain = in_vain + 1 if judgement.failure.code in PASSING else 0
            append_lines(record, found)
            marks |= {mark.key: mark for mark in found}
            progress(sum(key in marks for key in distinct), len(distinct))
            if in_vain >= GIVE_UP_AFTER:
                code = failures.most_common(1)[0][0]
                have = sum(key in marks for key in distinct)
                raise Unavailable(
                    f"the judge's endpoint answered none of the last {in_vain} answers ({code}); {have} of "
                    f"{len(distinct)} ratings are kept, and the same command resumes with the rest"
                )
    scores = [
        [
            0.0 if not one.case.candidate.strip() else marks[one.key].score if one.key in marks else None
            for one in row
        ]
        for row in cases
    ]
    made = data.with_scores("judge", scores)
    subscores = tuple(
        tuple(marks[one.key].subscores if one.key in marks else None for one in row) for row in cases
    )
    notes = data.notes
    if failures:
        listed = ", ".join(f"{code} {count}" for code, count in failures.most_common())
        notes = (
            *notes,
            f"The judge gave no rating to {sum(failures.values())} of {len(distinct)} distinct answers ({listed}); they are "
            "held by the gates that go by it, and the next run asks again.",
        )
    return replace(made, judge=judge.id, subscores=subscores, notes=notes)


def _wanted(question: str, answer: str) -> _Wanted:
    case = JudgeCase(question, answer_head(answer))
    content = msgspec.json.encode([case.question, case.candidate])
    return _Wanted(hashlib.sha256(content).hexdigest()[:32], case)
