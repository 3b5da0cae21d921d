"""What is kept of each request to an endpoint: what was sent, what came back or went wrong, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Role = Literal["system", "developer", "user", "assistant", "tool"]

FailureCode = Literal[
    "malformed_reply",
    "only_reasoning",
    "refused",
    "rejected",
    "rate_limited",
    "server_error",
    "timed_out",
    "unreachable",
]
"""What went wrong with a request.

malformed_reply: the reply is not of the form that was asked for. only_reasoning: it holds no answer. refused: the model would not answer this. rejected:
the endpoint did not take this request (too long, filtered, a parameter it does not know). The others: the endpoint
did not answer.
"""

PASSING: frozenset[FailureCode] = frozenset({"rate_limited", "server_error", "timed_out", "unreachable"})
"""The endpoint is busy, failing or unavailable: the same request may succeed later."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat: who says it, and what.

    `calls` are the tool calls of an assistant, in JSON as OpenAI's protocol has them; `answers` is the call that a tool answers.
    """

    role: Role
    content: str
    calls: str = ""
    answers: str = ""


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

    @classmethod
    def of(cls, prompt: Decimal | None, completion: Decimal | None) -> Price | None:
        """Return the price of these; None where one of them is not known."""
        return None if prompt is None or completion is None else cls(prompt, completion)

    def cost(self, usage: TokenUsage) -> Decimal:
        """The cost of one exchange, exactly."""
        return (
            self.prompt_per_million * usage.prompt + self.completion_per_million * usage.completion
        ) / Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers that a reply holds; `text` and `calls`, its tool calls in JSON as they
    came, are empty where there is none.

    `finish_reason` is why it ended (``stop``, ``length``, ...); `refusal` why the model would not
    answer, in its words or the filter's. `logprob` is the mean log-probability of its tokens, in
    [-10000, 0], and `token_figures` what else `streamer.scoring.signals.declared` has of tokens, by
    name; without entropies where the likeliest did not come.
    """

    text: str
    finish_reason: str | None = None
    refusal: str | None = None
    logprob: float | None = None
    token_figures: dict[str, float] = field(default_factory=dict)
    calls: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its result, of which None is what did not come.

    `parameters` are the decoding parameters that were sent, with the model's name. `reply` is the
    model's text, of the first choice, as `logprob`, `token_figures` and `calls` are (see `Choice`);
    `further` are the choices after it. `cached` : its headers say that a cache had it. `model` is
    the one that answered, in the endpoint's words; `fingerprint` the endpoint's
    `system_fingerprint`, which changes when answers may. `problem` is what went wrong, `detail`
    about it, in one line; `seconds` go from request to reply or problem. `vectors` has a row for
    each message, as they came, where they were asked for.
    """

    messages: tuple[Message, ...]
    parameters: Mapping[str, object]
    reply: str | None = None
    id: str | None = None
    cached: bool = False
    model: str | None = None
    fingerprint: str | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None
    problem: FailureCode | None = None
    detail: str | None = None
    seconds: float
    logprob: float | None = None
    token_figures: dict[str, float] = field(default_factory=dict)
    calls: str = ""
    further: tuple[Choice, ...] = ()
    vectors: NDArray[np.float32] | None = None

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All answers of the reply; none where no reply came."""
        if self.reply is None:
            return ()
        refusal = (self.detail or "") if self.problem == "refused" else None
        first = Choice(self.reply, self.finish_reason, refusal, self.logprob, self.token_figures, self.calls)
        return (first, *self.further)


def cost_of(exchanges: tuple[Exchange, ...], price: Price | None) -> Decimal | None:
    """The cost of these exchanges; None without a price, or where a reply's tokens were not counted."""
    answered = [exchange for exchange in exchanges if exchange.reply is not None]
    if price is None or any(exchange.usage is None for exchange in answered):
        return None
    return sum((price.cost(exchange.usage) for exchange in answered if exchange.usage), Decimal(0))
