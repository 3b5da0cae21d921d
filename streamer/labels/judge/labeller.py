"""A judge as labeller of a queue: its ratings give the severities, and every exchange is recorded with them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from streamer.errors import Unavailable
from streamer.labels.filling import Attempted
from streamer.labels.judge.marks import AnsweredQuestion, severity_case
from streamer.labels.llm.record import PASSING
from streamer.labels.severity import Severity
from streamer.scoring.blank import is_blank

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from streamer.labels.judge.record import Judgement
    from streamer.labels.judge.rubric import JudgeCase
    from streamer.labels.label_files import LabelTask

GIVE_UP_AFTER = 20
"""Consecutive cases that failed because of the endpoint, after which it counts as unavailable."""


class PatientGrader(Protocol):
    """What judges any number of cases; `streamer.labels.judge.client.Judge` does.

    Attributes
    ----------
    id : model and rubric.
    """

    id: str

    def finished(self, cases: Iterable[JudgeCase]) -> Generator[list[tuple[int, Judgement]]]:
        """Yield judgements with the numbers of their cases, all that are ready together."""
        ...


class JudgeLabeller:
    """Severities JS = 1 - J/100 of answers' heads, with references where there are some.

    Parameters
    ----------
    judge : who marks; its `id` is the labeller's.
    """

    kind = "judge"
    needs_references = False

    def __init__(self, judge: PatientGrader) -> None:
        self._judge = judge
        self.id = judge.id

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks; one whose answer has no head has severity 1, without asking.

        Raises
        ------
        UsageError : the endpoint takes no request at all.
        Unavailable : it answered none of `GIVE_UP_AFTER` cases one after another, each as often as it is tried.
        """
        asked: dict[int, LabelTask] = {}
        blank: list[Attempted] = []

        def cases() -> Iterator[JudgeCase]:
            number = 0
            for task in tasks:
                case = severity_case(AnsweredQuestion(task.prompt, task.response, task.references or ()))
                if is_blank(case.candidate):
                    blank.append(Attempted(task=task, severity=Severity(1.0, 1.0)))
                    continue
                asked[number] = task
                number += 1
                yield case

        in_vain = 0
        with closing(self._judge.finished(cases())) as groups:
            for judgements in groups:
                attempts = [_attempted(asked.pop(number), judgement) for number, judgement in judgements]
                yield [*_taken(blank), *attempts]
                for _, judgement in judgements:
                    failure = judgement.failure
                    in_vain = in_vain + 1 if failure and failure.code in PASSING else 0
                    if failure and in_vain >= GIVE_UP_AFTER:
                        raise Unavailable(
                            f"the judge's endpoint answered none of the last {in_vain} cases ({failure.code}: "
                            f"{failure.detail}); run this again when it does"
                        )
        if blank:
            yield _taken(blank)


def _attempted(task: LabelTask, judgement: Judgement) -> Attempted:
    if judgement.failure is not None:
        failure = f"{judgement.failure.code}: {judgement.failure.detail}"
        return Attempted(task=task, severity=None, failure=failure, judgement=judgement)
    value = judgement.severity
    if value is None:
        raise ValueError("a judgement without a failure has a severity")
    return Attempted(task=task, severity=Severity(value, value), judgement=judgement)


def _taken(attempts: list[Attempted]) -> list[Attempted]:
    taken = attempts.copy()
    attempts.clear()
    return taken
