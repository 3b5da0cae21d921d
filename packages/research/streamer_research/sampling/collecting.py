"""Asks for everything that a plan still misses, keeps each reply before the next ones are asked for, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from streamer.errors import StreamerError, Unavailable, UsageError
from streamer.labels.llm.client import Chat
from streamer.labels.llm.endpoint import TokenLimitName
from streamer.labels.llm.pool import Pool
from streamer.labels.llm.record import Exchange, Price
from streamer_research.sampling.estimating import expected_usage, most_usage
from streamer_research.sampling.journal import ReplyJournal
from streamer_research.sampling.plan import RecordPart, Request, SamplingPlan
from streamer_research.sampling.replies import Ledger, Reply

GIVE_UP_AFTER = 20
"""Consecutive failed requests to one vendor past which the run ends: it is unavailable, or refuses."""

WIND_DOWN_SECONDS = 10.0
"""How long requests in flight may take when a run is told to stop; their answers are paid for."""

_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Who is asked, and on what terms.

    `asker`: the endpoint's client. `token_limit_name`: what the endpoint calls the bound on an
    answer's tokens. `concurrency`: most requests in flight there. `price`: None where nobody said.
    """

    asker: Chat
    token_limit_name: TokenLimitName = "max_tokens"  # noqa: S105
    concurrency: int = 8
    price: Price | None = None


@dataclass(slots=True)
class SamplingTally:
    """What a run has done so far; replies of earlier runs are not in it, except in `cost`, None
    without prices.

    `wanted`: places that were empty when it began; `answered`: of them, those for which something
    came; `failed`: those that could not be filled, by the failure's code; `examples`: the first
    failures, in words. `requests`: all that were sent, with those that were tried again. Tokens are
    as far as endpoints counted. `over_budget`: it ended because a further request might have cost
    more than was allowed.
    """

    wanted: int = 0
    answered: int = 0
    requests: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    over_budget: bool = False


class _Result(NamedTuple):
    request: Request
    exchanges: tuple[Exchange, ...]
    error: StreamerError | None


class Collector:
    """Fills the places of a plan. Also a context manager: `close` at the end.

    `vendors` are numbered as the plan's arms are; what comes is added to the `ledger` of what is
    there, and goes to `keep`. `most_cost`: what all replies may cost together, those of earlier
    runs included; None for no bound. `again`: ask again for answers that were refused or empty.
    Raises `UsageError` where there is a bound on the cost and no price.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        vendors: Sequence[Vendor],
        ledger: Ledger,
        keep: ReplyJournal,
        *,
        earlier: Sequence[Reply] = (),
        most_cost: Decimal | None = None,
        again: bool = False,
    ) -> None:
        self._plan = plan
        self._vendors = vendors
        self._ledger = ledger
        self._keep = keep
        self._most_cost = most_cost
        priced = all(vendor.price is not None for vendor in vendors)
        if most_cost is not None and not priced:
            raise UsageError("a bound on the cost needs the price of every model")
        places = plan.batches()
        self._places = {batch: len(positions) for batch, positions in places.items()}
        self._wanted = ledger.missing(places, again=again)
        self._given_up: dict[RecordPart, set[int]] = {}
        self._settled: dict[RecordPart, set[int]] = {}
        self._most: dict[int, int] = {}
        self._in_vain: Counter[int] = Counter()
        self._seen: set[tuple[RecordPart, str]] = set()
        self._reserved: dict[int, Decimal] = {}
        self._error: StreamerError | None = None
        self._stopped = False
        self._pool: Pool | None = None
        self.tally = SamplingTally(wanted=sum(map(len, self._wanted.values())))
        if priced:
            self.tally.cost = sum((self._cost_of(reply) for reply in earlier), Decimal(0))

    @property
    def not_taken(self) -> dict[int, frozenset[str]]:
        """By vendor, the parameters that its model was found not to take."""
        found = {i: vendor.asker.not_taken for i, vendor in enumerate(self._vendors)}
        return {i: names for i, names in found.items() if names}

    def run(self) -> Generator[int]:
        """Ask for what is missing: paraphrases and rewordings first, then answers.

        Yields how many places have been seen to, after everything that came has been kept. Raises
        `UsageError`: an endpoint takes no request at all. What was in flight elsewhere has been
        kept. Raises `Unavailable`: one vendor answered none of `GIVE_UP_AFTER` requests one after
        another.
        """
        if not self._wanted:
            return
        self._pool = Pool("sampler")
        for requests in (self._preparations, self._answers):
            while not self._stopped and self._error is None:
                before = self.tally.answered
                yield from self._round(requests())
                if self.tally.answered == before:
                    break
        if self._error is not None:
            raise self._error

    def wind_down(self, *, seconds: float = WIND_DOWN_SECONDS) -> None:
        """Ask for nothing more, wait for what is in flight for so long, then end. From any thread, or a signal."""
        self._stopped = True
        if self._pool is not None:
            self._pool.wind_down(self._give_up_waiting, seconds=seconds)

    def close(self) -> None:
        """Cancel what runs, and close all connections."""
        if self._pool is None:
            self._pool = Pool("sampler")
        self._pool.close(self._close_askers)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_up_waiting(self) -> None:
        for vendor in self._vendors:
            vendor.asker.wind_down()

    async def _close_askers(self) -> None:
        for vendor in self._vendors:
            await vendor.asker.close()

    def _preparations(self) -> Iterator[Request]:
        return self._plan.preparations(self._left("paraphrase", "rewording"), self._most)

    def _answers(self) -> Iterator[Request]:
        return self._plan.answers(self._left("answer"), self._most, questions(self._plan, self._ledger))

    def _left(self, *kinds: str) -> dict[RecordPart, tuple[int, ...]]:
        left = {}
        for batch, positions in self._wanted.items():
            if batch.kind in kinds:
                done = self._settled.get(batch, set()) | self._given_up.get(batch, set())
                if places := tuple(position for position in positions if position not in done):
                    left[batch] = places
        return left

    def _round(self, requests: Iterator[Request]) -> Generator[int]:
        if self._pool is None:
            raise ValueError("a round belongs to a run")
        self.tally.over_budget = False
        ahead = 2 * sum(vendor.concurrency for vendor in self._vendors)
        with closing(self._pool.finished(self._jobs(requests), ahead=ahead)) as groups:
            for group in groups:
                replies: list[Reply] = []
                for number, result in group:
                    self._reserved.pop(number, None)
                    reply = self._count(result)
                    if reply is not None:
                        replies.append(reply)
                self._keep.append(replies)
                self._ledger.add(replies)
                for reply in replies:
                    self._settled.setdefault(reply.batch, set()).update(reply.positions)
                    self.tally.answered += len(reply.positions)
                if self._error is not None and not self._stopped:
                    self.wind_down()
                yield self.tally.answered + self.tally.failed.total()
        self._reserved.clear()

    def _jobs(self, requests: Iterator[Request]) -> Iterator[Callable[[], Coroutine[Any, Any, _Result]]]:
        for number, request in enumerate(requests):
            if self._stopped or self._error is not None:
                return
            if self._most_cost is not None and self.tally.cost is not None:
                worst = self._worst(request)
                if self.tally.cost + sum(self._reserved.values()) + worst > self._most_cost:
                    self.tally.over_budget = True
                    return
                self._reserved[number] = worst
            yield partial(self._ask, request)

    async def _ask(self, request: Request) -> _Result:
        vendor = self._vendors[self._plan.arms[request.arm].vendor]
        expected = expected_usage(self._plan, request)
        try:
            exchanges = await vendor.asker.ask(
                request.messages,
                self._parameters(request, vendor),
                tokens=expected.prompt + expected.completion,
            )
        except UsageError as error:
            return _Result(request, (), error)
        return _Result(request, exchanges, None)

    def _parameters(self, request: Request, vendor: Vendor) -> dict[str, object]:
        recipe = self._plan.recipe
        parameters: dict[str, object] = {
            "model": self._plan.arms[request.arm].model,
            "temperature": request.temperature,
            "top_p": recipe.top_p,
            vendor.token_limit_name: recipe.max_tokens,
        }
        if recipe.send_seed:
            parameters["seed"] = request.seed
        if len(request.positions) > 1:
            parameters["n"] = len(request.positions)
        return parameters

    def _count(self, result: _Result) -> Reply | None:
        """Count one request; the reply, if there is one."""
        request, exchanges, error = result
        self.tally.requests += len(exchanges)
        if error is not None:
            self._error = self._error or error
            return None
        last = exchanges[-1]
        vendor = self._plan.arms[request.arm].vendor
        if last.reply is None:
            self._fail(request, last.problem or "server_error", last.detail or "")
            return None
        reply = Reply.of(request, last)
        if self._is_cached(reply, last):
            self._fail(
                request, "cached", "a cache answered, so that this is no sample of its own; turn it off"
            )
            return None
        self._in_vain[vendor] = 0
        if len(reply.choices) < len(request.positions):
            self._most[vendor] = min(self._most.get(vendor, len(reply.choices)), len(reply.choices))
        if reply.usage is not None:
            self.tally.input_tokens += reply.usage.prompt
            self.tally.output_tokens += reply.usage.completion
        if self.tally.cost is not None:
            self.tally.cost += self._cost_of(reply)
        return reply

    def _is_cached(self, reply: Reply, exchange: Exchange) -> bool:
        """Whether a cache had it, or another request for this cloud brought it. One reply with all answers is samples anyway."""
        if reply.batch.kind != "answer" or len(reply.positions) == self._places[reply.batch]:
            return False
        again = exchange.id is not None and (reply.batch, exchange.id) in self._seen
        if exchange.id is not None:
            self._seen.add((reply.batch, exchange.id))
        return exchange.cached or again

    def _fail(self, request: Request, code: str, detail: str) -> None:
        places = self._given_up.setdefault(request.batch, set())
        places.update(request.positions)
        self.tally.failed[code] += len(request.positions)
        arm = self._plan.arms[request.arm]
        if len(self.tally.examples) < _EXAMPLES:
            self.tally.examples.append(
                f"{request.batch.question_id} ({request.batch.kind}, {arm.model}): {code}: {detail}"
            )
        self._in_vain[arm.vendor] += 1
        if self._in_vain[arm.vendor] >= GIVE_UP_AFTER and self._error is None:
            self._error = Unavailable(
                f"{arm.host} answered none of the last {self._in_vain[arm.vendor]} requests for {arm.model} "
                f"({code}: {detail}); run the same command again when it does"
            )

    def _worst(self, request: Request) -> Decimal:
        price = self._vendors[self._plan.arms[request.arm].vendor].price
        return Decimal(0) if price is None else price.cost(most_usage(self._plan, request))

    def _cost_of(self, reply: Reply) -> Decimal:
        """What a reply cost; where the endpoint did not count, the most that its answers can have been."""
        price = self._vendors[self._plan.arms[reply.arm].vendor].price
        if price is None:
            return Decimal(0)
        if reply.usage is not None:
            return price.cost(reply.usage)
        return price.completion_per_million * self._plan.recipe.max_tokens * len(reply.choices) / 1_000_000


def questions(plan: SamplingPlan, ledger: Ledger) -> dict[tuple[str, int], str]:
    """The questions in other words, by question id and number from 1.

    One that was refused, or came empty, is the question as it is; one that is missing is absent.
    """
    found: dict[tuple[str, int], str] = {}
    for prompt in plan.prompts:
        there = ledger.places.get(RecordPart(prompt.question_id, "rewording", 0), {})
        for position, one in there.items():
            found[prompt.question_id, position + 1] = one.text or prompt.question
    return found
