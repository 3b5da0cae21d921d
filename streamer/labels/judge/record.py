"""What is kept of each judgement: every request, every reply, the verdict or why there is none, and the cost."""

from dataclasses import dataclass
from decimal import Decimal

from streamer.labels.judge.parsing import JudgeVerdict
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.llm.record import Exchange, FailureCode, TokenUsage
from streamer.labels.severity import DECIMALS, judge_severity


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """Why a case has no verdict: the last problem, in one line."""

    code: FailureCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The outcome of one case: a verdict or a failure, never both.

    `judge` is model and rubric, for the record: ``gpt-4o-mini/rubric-1234abcd``. `exchanges` has
    every request, in order. `cost` is of all of them, in the price list's currency; None where the
    model has no price or the endpoint did not count the tokens of a reply.
    """

    case: JudgeCase
    judge: str
    verdict: JudgeVerdict | None
    failure: JudgeFailure | None
    exchanges: tuple[Exchange, ...]
    cost: Decimal | None

    def __post_init__(self) -> None:
        if (self.verdict is None) == (self.failure is None):
            raise ValueError("a judgement holds a verdict or a failure")

    @property
    def normalised(self) -> float | None:
        """J / 100, in [0, 1], higher is better; None when it failed."""
        return None if self.verdict is None else round(self.verdict.mark / 100.0, DECIMALS)

    @property
    def severity(self) -> float | None:
        """JS = 1 - J / 100, in [0, 1]; None when it failed: such an answer has no label."""
        return None if self.verdict is None else judge_severity(self.verdict.mark)

    @property
    def usage(self) -> TokenUsage:
        """The tokens of all exchanges that were counted."""
        counted = [exchange.usage for exchange in self.exchanges if exchange.usage is not None]
        return TokenUsage(sum(usage.prompt for usage in counted), sum(usage.completion for usage in counted))
