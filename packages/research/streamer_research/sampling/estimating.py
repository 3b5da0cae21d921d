"""What a run will send and cost, before anything is sent. Pure.

No tokenizer is asked: every model has its own. The expected figures are rules of thumb, the largest ones bounds that
hold for vocabularies of bytes, which all current models have.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from streamer.labels.llm.record import Message, Price, TokenUsage
from streamer_research.sampling.plan import Request, SamplingPlan
from streamer_research.sampling.replies import Reply

TYPICAL_REPLY = 40
"""Tokens of one answer that was told to be short. A model that reasons first uses many times more."""

_CHARACTERS_A_TOKEN = 4.0
_EXPECTED_AROUND, _MOST_AROUND = 4, 16
"""Tokens that the chat's form adds to a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """Requests of one kind to one arm.

    `kind`: ``paraphrase``, ``rewording``, ``normal``, ``enforced`` or ``noise``. `arm`: index into
    the plan's arms. `requests`, `answers`: how many of each, exactly, if nothing has to be asked
    twice. `expected`, `most`: tokens of all of them, as is to be expected and at most. `cost`,
    `most_cost`: in the price list's currency; None without a price.
    """

    kind: str
    arm: int
    requests: int
    answers: int
    expected: TokenUsage
    most: TokenUsage
    cost: Decimal | None
    most_cost: Decimal | None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a run will send and cost, by kind and arm."""

    rows: tuple[EstimateRow, ...]

    @property
    def requests(self) -> int:
        """All requests."""
        return sum(row.requests for row in self.rows)

    @property
    def answers(self) -> int:
        """All answers that are asked for."""
        return sum(row.answers for row in self.rows)

    @property
    def expected(self) -> TokenUsage:
        """Tokens to be expected."""
        return _sum(row.expected for row in self.rows)

    @property
    def most(self) -> TokenUsage:
        """Tokens at most."""
        return _sum(row.most for row in self.rows)

    @property
    def cost(self) -> Decimal | None:
        """The cost to be expected; None where an arm has no price."""
        return _total([row.cost for row in self.rows])

    @property
    def most_cost(self) -> Decimal | None:
        """The cost at most; None where an arm has no price."""
        return _total([row.most_cost for row in self.rows])


def estimate(
    plan: SamplingPlan,
    requests: Iterable[Request],
    prices: Sequence[Price | None],
    earlier: Sequence[Reply] = (),
) -> CostEstimate:
    """Count requests, tokens and costs.

    `plan`: what is being made. `requests`: what will be sent. `prices`: of each vendor. `earlier`:
    replies that are there already: an arm's mean tokens of an answer take the place of the rule of
    thumb.
    """
    measured = _measured(earlier)
    groups: dict[tuple[str, int], list[Request]] = defaultdict(list)
    for request in requests:
        kind = request.mode if request.batch.kind == "answer" else request.batch.kind
        groups[kind, request.arm].append(request)
    return CostEstimate(
        tuple(
            _row(plan, kind, arm, group, prices[plan.arms[arm].vendor], measured.get(arm))
            for (kind, arm), group in groups.items()
        )
    )


def expected_usage(plan: SamplingPlan, request: Request, reply: float | None = None) -> TokenUsage:
    """Tokens that a request and its answers are expected to use; `reply` are those of one answer, where known."""
    each = min(TYPICAL_REPLY if reply is None else reply, plan.recipe.max_tokens)
    prompt = sum(_tokens(message.content) + _EXPECTED_AROUND for message in request.messages)
    return TokenUsage(prompt, math.ceil(each * len(request.positions)))


def most_usage(plan: SamplingPlan, request: Request) -> TokenUsage:
    """Tokens that a request and its answers use at most: no token is shorter than a byte."""
    return TokenUsage(_most_prompt(request.messages), plan.recipe.max_tokens * len(request.positions))


def _row(
    plan: SamplingPlan, kind: str, arm: int, requests: list[Request], price: Price | None, reply: float | None
) -> EstimateRow:
    expected = _sum(expected_usage(plan, request, reply) for request in requests)
    most = _sum(most_usage(plan, request) for request in requests)
    return EstimateRow(
        kind=kind,
        arm=arm,
        requests=len(requests),
        answers=sum(len(request.positions) for request in requests),
        expected=expected,
        most=most,
        cost=None if price is None else price.cost(expected),
        most_cost=None if price is None else price.cost(most),
    )


def _measured(replies: Sequence[Reply]) -> dict[int, float]:
    tokens: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for reply in replies:
        if reply.usage is not None:
            tokens[reply.arm][0] += reply.usage.completion
            tokens[reply.arm][1] += len(reply.choices)
    return {arm: used / answers for arm, (used, answers) in tokens.items() if answers}


def _tokens(text: str) -> int:
    plain = sum(character.isascii() for character in text)
    return math.ceil(plain / _CHARACTERS_A_TOKEN + (len(text) - plain))


def _most_prompt(messages: Sequence[Message]) -> int:
    return sum(len(message.content.encode("utf-8", "replace")) + _MOST_AROUND for message in messages)


def _sum(usages: Iterable[TokenUsage]) -> TokenUsage:
    prompt = completion = 0
    for usage in usages:
        prompt, completion = prompt + usage.prompt, completion + usage.completion
    return TokenUsage(prompt, completion)


def _total(costs: Sequence[Decimal | None]) -> Decimal | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None
