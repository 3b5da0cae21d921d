"""Judge: a language model's ratings give the severities, and every exchange is recorded with them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamer.errors import Unavailable, UsageError
from streamer.labels.filling import Attempted
from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.endpoint import JudgeEndpoint
from streamer.labels.judge.marks import AnsweredQuestion, severity_case
from streamer.labels.judge.record import Judgement
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.llm.record import PASSING, Price
from streamer.labels.severity import LabelTask, Severity
from streamer.labels.severity_kind import ProgramKind, option
from streamer.scoring.blank import is_blank

if TYPE_CHECKING:
    from streamer.settings.settings import Settings

GIVE_UP_AFTER = 20
"""Consecutive cases that failed because of the endpoint, after which it counts as unavailable."""


@dataclass(frozen=True, slots=True)
class JudgeKind(ProgramKind):
    """Severity by a judge's rating."""

    name: ClassVar[str] = "judge"
    place: ClassVar[int] = 3
    title: ClassVar[str] = "judge, JS"
    formula: ClassVar[str] = "1 - J / 100"
    values: ClassVar[str] = "[0, 1], steps of .001"
    needs: ClassVar[str] = "extra `judge`, an endpoint"
    use_when: ClassVar[str] = "there are no references, or wording varies too much for the others"
    needs_references: ClassVar[bool] = False
    labels_claims: ClassVar[bool] = True
    group: ClassVar[str] = "judge"
    command: ClassVar[
        str
    ] = """Have a language model label what waits in the queues of gates of the kind `judge`.

        The endpoint is any that speaks OpenAI's chat protocol; docs/severities.md has the rubric, the settings are in the
        group `judge`. Each label is stored as soon as its reply arrives, with every request and reply: stop when you
        like, a second run does the rest. What cannot be judged stays in the queue, and the exit status is 1.
        """

    model: str | None = option(
        None, "The model's name at the endpoint; overrides the setting.", metavar="MODEL"
    )
    base_url: str | None = option(
        None, "The endpoint, like https://api.openai.com/v1; overrides the setting.", metavar="URL"
    )
    concurrency: int | None = option(
        None, "Most requests in flight; overrides the setting.", metavar="N", least=1
    )

    @contextmanager
    def labeller(self, settings: Settings) -> Iterator[JudgeLabeller]:
        """Ask the configured judge; what it is asked when the block ends is cancelled."""
        with JudgeClient(judge_endpoint(settings)) as judge:
            yield JudgeLabeller(judge)

    def priced(self, settings: Settings) -> bool:
        """Return whether the model's prices are known."""
        return bool(judge_endpoint(settings).prices)


def judge_endpoint(settings: Settings) -> JudgeEndpoint:
    """Return where the judge is and how it is asked. Raises `UsageError` when nobody has said."""
    judge = settings.judge
    if judge.base_url is None or judge.model is None:
        raise UsageError(
            "no judge is configured: set STREAMER_JUDGE_BASE_URL (like https://api.openai.com/v1) and "
            "STREAMER_JUDGE_MODEL, or name them by the options that `streamer label judge` and `streamer evaluate` have "
            "for them (--help); the key, where the endpoint asks for one, goes "
            "into a file that STREAMER_JUDGE_API_KEY_FILE names"
        )
    price = Price.of(judge.price_per_million_input, judge.price_per_million_output)
    return JudgeEndpoint(
        base_url=judge.base_url,
        model=judge.model,
        api_key=judge.api_key or "",
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        token_limit_name=judge.limit_parameter,
        seed=judge.seed,
        json_mode=judge.json_mode,
        timeout=judge.timeout_seconds,
        tries=judge.tries,
        concurrency=judge.concurrency,
        prices={} if price is None else {judge.model: price},
        allow_plaintext=settings.insecure,
    )


class JudgeLabeller:
    """Severities JS = 1 - J/100 of answers' heads, with references where there are some. The
    judge's `id` is the labeller's.
    """

    kind = "judge"
    needs_references = False

    def __init__(self, judge: JudgeClient) -> None:
        self._judge = judge
        self.id = judge.id

    def label(self, tasks: Iterable[LabelTask]) -> Generator[Sequence[Attempted]]:
        """Label tasks; one whose answer has no head has severity 1, without asking.

        Raises `UsageError` when the endpoint takes no request at all, `Unavailable` when it
        answered none of `GIVE_UP_AFTER` cases one after another, each as often as it is tried.
        """
        asked: dict[int, LabelTask] = {}
        blank: list[Attempted] = []

        def cases() -> Iterator[JudgeCase]:
            number = 0
            for task in tasks:
                answered = AnsweredQuestion(task.prompt, task.response, task.references or ())
                case = severity_case(answered, part=task.judged.head, claim=task.unit or None)
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
