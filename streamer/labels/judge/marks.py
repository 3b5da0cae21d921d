"""The judge's ratings as scores and as severities. The two see different things, and are never mixed.

A *score* Q_J = J/100 decides at run time, where there are no references: the judge that makes it sees none, neither
when the gate is calibrated nor when it serves. A *severity* JS = 1 - J/100 is made offline, and sees them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.record import Judgement
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.severity import not_blank
from streamer.scoring.answer_head import answer_head
from streamer.scoring.blank import is_blank


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """An answer to be labelled: what was asked, what was answered, and acceptable answers, if any are known."""

    question: str
    answer: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Marked:
    """One answer's score or severity, in [0, 1], rounded to 1e-6; None when the judge failed.

    An answer without a score is held; one without a severity has no label. `judgement` is None for
    a blank answer, which is the worst there is and is put before no judge.
    """

    value: float | None
    judgement: Judgement | None


def judge_scores(
    judge: JudgeClient, question: str, answers: Sequence[str], *, part: Callable[[str], str] = answer_head
) -> list[Marked]:
    """Q_J = J/100 of each answer to one question, in [0, 1], higher is safer; without references.

    `part` is what of a whole text is judged; by default its head, as in the paper. ``str`` judges
    all of it.
    """
    cases = [JudgeCase(question, part(answer)) for answer in answers]
    return [
        Marked(0.0 if judgement is None else judgement.normalised, judgement)
        for judgement in _grade_nonblank(judge, cases)
    ]


def judge_severities(
    judge: JudgeClient, answered: Sequence[AnsweredQuestion], *, part: Callable[[str], str] = answer_head
) -> list[Marked]:
    """JS = 1 - J/100 of each answer, in [0, 1], 0 = fine; with references where there are some.
    `part` is as in `judge_scores`.
    """
    cases = [severity_case(one, part=part) for one in answered]
    return [
        Marked(1.0 if judgement is None else judgement.severity, judgement)
        for judgement in _grade_nonblank(judge, cases)
    ]


def severity_case(
    answered: AnsweredQuestion,
    *,
    part: Callable[[str], str] = answer_head,
    claim: str | None = None,
) -> JudgeCase:
    """What a judge is shown of an answer, or of a claim of it, to be labelled.

    A blank candidate is the worst there is: ask nobody.
    """
    references = not_blank(answered.references)
    if claim is not None:
        return JudgeCase(answered.question, claim, references, answered.answer)
    return JudgeCase(answered.question, part(answered.answer), references)


def _grade_nonblank(judge: JudgeClient, cases: Sequence[JudgeCase]) -> list[Judgement | None]:
    judged = [case for case in cases if not is_blank(case.candidate)]
    judgements = iter(judge.grade(judged) if judged else [])
    return [None if is_blank(case.candidate) else next(judgements) for case in cases]
