"""What is kept of each judgement: every request, every reply, the verdict or why there is none, and the cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from streamer.labelling.severity import DECIMALS, judge_severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamer.judge.parsing import Verdict
    from streamer.judge.rubric import JudgeCase, Message

FailureCode = Literal[
    "malformed_reply", "refused", "rejected", "rate_limited", "server_error", "timed_out", "unreachable"
]
"""Why a case has no verdict.

malformed_reply: two replies that could not be read. refused: the model would not judge this. rejected: the endpoint
did not take this request (too long, filtered). The others: the endpoint did not answer, as often as it was asked.
"""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request and its reply, as the endpoint counted them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in one currency (the price list's), for a million tokens of prompt and of completion."""

    prompt_per_million: Decimal
    completion_per_million: Decimal

    def cost(self, usage: TokenUsage) -> Decimal:
        """The cost of one exchange, exactly."""
        return (
            self.prompt_per_million * usage.prompt + self.completion_per_million * usage.completion
        ) / Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and what came of it.

    Attributes
    ----------
    messages : what was sent.
    parameters : the decoding parameters that were sent, with the model's name.
    reply : the model's text; None where none came.
    model : the model that answered, in the endpoint's words; None where it did not say.
    fingerprint : the endpoint's `system_fingerprint`, which changes when marks may.
    finish_reason : why the reply ended (``stop``, ``length``, ...).
    usage : None where the endpoint did not count.
    problem : what went wrong, None when nothing did.
    detail : about the problem, one line.
    seconds : from request to reply or problem.
    """

    messages: tuple[Message, ...]
    parameters: Mapping[str, object]
    reply: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None
    problem: FailureCode | None = None
    detail: str | None = None
    seconds: float


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """Why a case has no verdict: the last problem, in one line."""

    code: FailureCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one case: a verdict or a failure, never both.

    Attributes
    ----------
    case : what was judged.
    judge : model and rubric, for the record: ``gpt-4o-mini/rubric-1234abcd``.
    verdict : None when it failed.
    failure : None when it did not.
    exchanges : every request, in order.
    cost : of all exchanges, in the price list's currency; None where the model has no price or the endpoint did not
        count the tokens of a reply.
    """

    case: JudgeCase
    judge: str
    verdict: Verdict | None
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


def cost_of(exchanges: tuple[Exchange, ...], price: Price | None) -> Decimal | None:
    """The cost of these exchanges; None without a price, or where a reply's tokens were not counted."""
    answered = [exchange for exchange in exchanges if exchange.reply is not None]
    if price is None or any(exchange.usage is None for exchange in answered):
        return None
    return sum((price.cost(exchange.usage) for exchange in answered if exchange.usage), Decimal(0))
