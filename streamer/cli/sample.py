"""`streamer sample`: response clouds from language models, the paper's way."""

import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.console import progress
from streamer.cli.interrupts import WindDown
from streamer.cli.sample_options import (
    UNASKED,
    AnswererOptions,
    CloudOptions,
    DecodingOptions,
    SendingOptions,
    amount,
    prices_of,
    recipe_of,
)
from streamer.errors import StreamerError, UsageError
from streamer.labels.llm import ChatEndpoint, Price
from streamer.research.sampling import CostEstimate, SamplingSession
from streamer.settings.settings import Settings


@opt.in_groups
def sample(
    prompts: Annotated[
        str,
        typer.Argument(
            metavar="PROMPTS",
            help="One prompt a line, as text or as JSON with question, question_id, references; .gz too; - is standard "
            "input.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The clouds, .jsonl or .jsonl.gz; FILE.journal is kept beside it."),
    ],
    cloud: CloudOptions,
    who: AnswererOptions,
    decoding: DecodingOptions,
    sending: SendingOptions,
    json: opt.JsonOption = False,
) -> None:
    """Sample response clouds from any endpoint that speaks OpenAI's chat protocol.

    Every reply is kept in FILE.journal as it comes: stop when you like, the same command does the rest and pays for
    nothing twice. The settings are in the group `sampling`; docs/sampling.md says what differs from the paper.
    """
    from streamer.cli.sample_report import print_plan
    from streamer.research.sampling import SamplingPlan, SamplingSession, read_prompts
    from streamer.research.sampling.session import arms_of
    from streamer.research.sampling.wiring import sampling_endpoints

    settings = wiring.load_settings(sampling=sending.settings())
    recipe, temperatures = recipe_of(cloud, who, decoding, sending)
    endpoints = sampling_endpoints(settings, who.model or [], who.base_url or [])
    prices = prices_of(sending.price or [], len(endpoints))
    most = None if sending.max_cost is None else amount(sending.max_cost, "--max-cost")
    if most is not None and None in prices:
        raise UsageError("--max-cost needs --price IN/OUT, what a million tokens cost")
    plan = SamplingPlan(read_prompts(prompts, limit=cloud.limit), recipe, arms_of(endpoints, temperatures))
    session = SamplingSession(plan, out)
    planned = session.estimate(prices, again=sending.again)
    if sending.dry_run or not json:
        print_plan(session, planned, again=sending.again, examples=sending.dry_run, json=json)
    if sending.dry_run:
        return
    if planned.requests > UNASKED and not sending.yes:
        _confirm(planned, prompts)
    _run(session, settings, endpoints, prices, most, again=sending.again, json=json)


def _run(
    session: "SamplingSession",
    settings: "Settings",
    endpoints: "Sequence[ChatEndpoint]",
    prices: "Sequence[Price | None]",
    most_cost: Decimal | None,
    *,
    again: bool,
    json: bool,
) -> None:
    """Ask for what is missing and write what is there, also when something stops it in the middle."""
    from streamer.cli.sample_report import print_result
    from streamer.research.sampling import SamplingTally
    from streamer.research.sampling.wiring import sampling_vendor

    start = monotonic()
    stopped: BaseException | None = None
    tally, not_taken = SamplingTally(), {}
    signalled = None
    if session.requests(again=again):
        vendors = [
            sampling_vendor(settings, endpoint, price)
            for endpoint, price in zip(endpoints, prices, strict=True)
        ]
        with session.collector(vendors, most_cost=most_cost, again=again) as collector:
            tally = collector.tally
            wind_down = WindDown(collector.wind_down)
            try:
                with (
                    wind_down,
                    progress("sampling", tally.wanted) as advance,
                ):
                    for done in collector.run():
                        advance(done)
            except (KeyboardInterrupt, StreamerError) as reason:
                stopped = reason
            not_taken, signalled = collector.not_taken, wind_down.signal
            files = session.write(incomplete=stopped is None and signalled is None)
    else:
        files = session.write()
    print_result(
        session,
        tally,
        files,
        not_taken,
        monotonic() - start,
        stopped=stopped is not None or signalled is not None,
        json=json,
    )
    if stopped is not None:
        raise stopped
    if signalled is not None:
        raise typer.Exit(128 + signalled)
    if any(file.missing + file.refused + file.empty for file in files):
        raise typer.Exit(FAILED)


def _confirm(planned: "CostEstimate", prompts: str) -> None:
    if prompts == "-" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{planned.requests} requests are to be sent; give --yes to send more than {UNASKED} without being asked, or "
            "--dry-run to look first"
        )
    if not typer.confirm(f"Send {planned.requests} requests?", err=True):
        raise typer.Exit(FAILED)
