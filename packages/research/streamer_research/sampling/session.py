"""A whole run: the journal that it resumes, what is left to ask, and the files that it writes."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from streamer.labels.llm.client import Chat
from streamer.labels.llm.endpoint import ChatEndpoint, TokenLimitName
from streamer.labels.llm.pace import Pace
from streamer.labels.llm.record import Price
from streamer_research.sampling.collecting import Collector, SamplingTally, Vendor, questions
from streamer_research.sampling.estimating import CostEstimate, estimate
from streamer_research.sampling.journal import ReplyJournal, read_journal
from streamer_research.sampling.output import WrittenFile, check_out, journal_path, write_clouds
from streamer_research.sampling.plan import Request, SamplingPlan
from streamer_research.sampling.prompts import Prompt
from streamer_research.sampling.recipe import Arm, Recipe
from streamer_research.sampling.replies import Ledger, Reply


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """What was asked for and what came, and the files written."""

    tally: SamplingTally
    files: tuple[WrittenFile, ...]


class SamplingSession:
    """One plan and its output; the journal is beside the file of clouds.

    Raises `UsageError` if the output is somebody else's file, or the journal another plan's.
    """

    def __init__(self, plan: SamplingPlan, out: Path) -> None:
        check_out(plan, out)
        self.plan = plan
        self.out = out
        self.earlier: tuple[Reply, ...] = read_journal(journal_path(out), plan.document())
        self.ledger = Ledger()
        self.ledger.add(self.earlier)

    def requests(self, *, again: bool = False) -> list[Request]:
        """What is left to send, if every endpoint gives as many answers as it is asked for."""
        plan = self.plan
        missing = self.ledger.missing(plan.batches(), again=again)
        # A rewording that is not there yet is assumed to be as long as the question.
        known = {
            (prompt.question_id, number): prompt.question
            for prompt in plan.prompts
            for number in range(1, plan.recipe.rewordings + 1)
        } | questions(plan, self.ledger)
        return [*plan.preparations(missing, {}), *plan.answers(missing, {}, known)]

    def estimate(self, prices: Sequence[Price | None], *, again: bool = False) -> CostEstimate:
        """What `requests` will use and cost."""
        return estimate(self.plan, self.requests(again=again), prices, self.earlier)

    @contextmanager
    def collector(
        self, vendors: Sequence[Vendor], *, most_cost: Decimal | None = None, again: bool = False
    ) -> Iterator[Collector]:
        """Give what asks for the rest and keeps it in the journal; arguments as those of `Collector`."""
        with ReplyJournal(journal_path(self.out), self.plan.document()) as journal:
            # Another run may have ended since the session began.
            self.earlier = journal.replies
            self.ledger = Ledger()
            self.ledger.add(self.earlier)
            with Collector(
                self.plan,
                vendors,
                self.ledger,
                journal,
                earlier=self.earlier,
                most_cost=most_cost,
                again=again,
            ) as collector:
                yield collector

    def write(self, *, incomplete: bool = True) -> tuple[WrittenFile, ...]:
        """Write the clouds that are there; without `incomplete` only those of which nothing is missing."""
        return write_clouds(self.plan, self.ledger, self.out, incomplete=incomplete)


def connect(
    endpoint: ChatEndpoint,
    *,
    price: Price | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    token_limit_name: TokenLimitName = "max_tokens",  # noqa: S107
) -> Vendor:
    """Return a vendor at an endpoint.

    Raises `UsageError` where the extra ``judge`` is not installed.
    """
    pace = Pace(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        clock=time.monotonic,
        sleep=asyncio.sleep,
    )
    return Vendor(
        asker=Chat(endpoint, sleep=asyncio.sleep, jitter=random.random, clock=time.monotonic, pace=pace),
        token_limit_name=token_limit_name,
        concurrency=endpoint.concurrency,
        price=price,
    )


def arms_of(endpoints: Sequence[ChatEndpoint], temperatures: Sequence[float]) -> tuple[Arm, ...]:
    """Every model at every temperature, model by model."""
    return tuple(
        Arm(vendor, endpoint.model, endpoint.host, temperature)
        for vendor, endpoint in enumerate(endpoints)
        for temperature in temperatures
    )


def sample(
    prompts: Sequence[Prompt],
    recipe: Recipe,
    endpoints: Sequence[ChatEndpoint],
    out: Path,
    *,
    temperatures: Sequence[float] = (1.0,),
    prices: Sequence[Price | None] | None = None,
    most_cost: Decimal | None = None,
) -> SamplingResult:
    """Make clouds of all prompts by every model at each temperature, and resume what an earlier
    call did not finish.

    The journal is beside `out`, the file of clouds, and has what came whatever is raised. `prices`:
    of each endpoint; `most_cost`: what all replies may cost together, earlier ones included. Raises
    `UsageError` where something is asked for that cannot be, or an endpoint takes no request;
    `Unavailable` where one answers no more.
    """
    session = SamplingSession(SamplingPlan(tuple(prompts), recipe, arms_of(endpoints, temperatures)), out)
    terms = [None] * len(endpoints) if prices is None else prices
    vendors = [connect(endpoint, price=price) for endpoint, price in zip(endpoints, terms, strict=True)]
    with session.collector(vendors, most_cost=most_cost) as collector:
        for _ in collector.run():
            pass
        return SamplingResult(collector.tally, session.write())
