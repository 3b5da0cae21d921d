"""The judge's scores Q_J = J/100 of all answers of some clouds: each distinct answer is put to the judge once.

A score decides at run time, where there are no references: the judge sees question and answer head alone.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec

from streamer.clouds.line_record import append_lines, read_lines
from streamer.errors import Unavailable
from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.kinds.judge import GIVE_UP_AFTER
from streamer.labels.llm.record import PASSING
from streamer.research.evaluation.data_sets import DataSet
from streamer.scoring.answer_head import answer_head
from streamer.scoring.blank import is_blank


class _JudgeMark(msgspec.Struct):
    key: str
    score: float
    subscores: dict[str, float]


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
        [JudgeCase(cloud.question, answer_head(response.text)) for response in cloud.responses]
        for cloud in data.clouds
    ]
    distinct = {_key(case): case for row in cases for case in row if not is_blank(case.candidate)}
    missing = [key for key in distinct if key not in marks]
    progress(len(distinct) - len(missing), len(distinct))
    failures: Counter[str] = Counter()
    in_vain = 0
    with closing(judge.finished(distinct[key] for key in missing)) as groups:
        for judgements in groups:
            found = []
            for number, judgement in judgements:
                if judgement.verdict is not None and judgement.normalised is not None:
                    points = dict(judgement.verdict.subscores)
                    found.append(_JudgeMark(missing[number], judgement.normalised, points))
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
    found_marks = [[marks.get(_key(case)) for case in row] for row in cases]
    made = data.with_scores(
        "judge",
        [
            [
                0.0 if is_blank(case.candidate) else None if mark is None else mark.score
                for case, mark in zip(row, of_row, strict=True)
            ]
            for row, of_row in zip(cases, found_marks, strict=True)
        ],
    )
    subscores = tuple(tuple(None if one is None else one.subscores for one in row) for row in found_marks)
    made = replace(made, judge=judge.id, subscores=subscores)
    if not failures:
        return made
    listed = ", ".join(f"{code} {count}" for code, count in failures.most_common())
    return made.with_note(
        f"The judge gave no rating to {sum(failures.values())} of {len(distinct)} distinct answers ({listed}); they are "
        "held by the gates that go by it, and the next run asks again."
    )


def _key(case: JudgeCase) -> str:
    return hashlib.sha256(msgspec.json.encode([case.question, case.candidate])).hexdigest()[:32]
