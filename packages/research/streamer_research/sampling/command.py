"""`streamer sample`: response clouds from language models, the paper's way."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import typer

from streamer import wiring
from streamer.cli import FAILED
from streamer.cli import options as opt
from streamer.cli.console import progress
from streamer.errors import StreamerError, UsageError
from streamer.labels.llm import ChatEndpoint, Price
from streamer.settings.settings import Settings
from streamer_research.sampling.collecting import SamplingTally, Vendor
from streamer_research.sampling.estimating import CostEstimate
from streamer_research.sampling.options import (
    UNASKED,
    AnswererOptions,
    CloudOptions,
    DecodingOptions,
    SendingOptions,
    amount,
    prices_of,
    recipe_of,
)
from streamer_research.sampling.plan import SamplingPlan
from streamer_research.sampling.prompts import read_prompts
from streamer_research.sampling.report import print_plan, print_result
from streamer_research.sampling.session import SamplingSession, arms_of, connect


@opt.in_groups
def sample(
    prompts: str = opt.argument(
        "PROMPTS",
        "One prompt a line, as text or as JSON with question, question_id, references; .gz too; - is standard "
        "input.",
    ),
    out: Path = opt.option("FILE", "The clouds, .jsonl or .jsonl.gz; FILE.journal is kept beside it.", ...),
    *,
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
    settings = wiring.load_settings(sampling=sending.settings())
    recipe, temperatures = recipe_of(cloud, who, decoding, sending)
    endpoints = _endpoints(settings, who.model or [], who.base_url or [])
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
    session: SamplingSession,
    settings: Settings,
    endpoints: Sequence[ChatEndpoint],
    prices: Sequence[Price | None],
    most_cost: Decimal | None,
    *,
    again: bool,
    json: bool,
) -> None:
    """Ask for what is missing and write what is there, also when something stops it in the middle."""
    start = monotonic()
    stopped: BaseException | None = None
    tally, not_taken = SamplingTally(), {}
    signalled = None
    if session.requests(again=again):
        vendors = [
            _vendor(settings, endpoint, price) for endpoint, price in zip(endpoints, prices, strict=True)
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


def _confirm(planned: CostEstimate, prompts: str) -> None:
    if prompts == "-" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{planned.requests} requests are to be sent; give --yes to send more than {UNASKED} without being asked, or "
            "--dry-run to look first"
        )
    if not typer.confirm(f"Send {planned.requests} requests?", err=True):
        raise typer.Exit(FAILED)


def _endpoints(
    settings: Settings, models: Sequence[str], base_urls: Sequence[str]
) -> tuple[ChatEndpoint, ...]:
    """Return who is asked: the models that are named, or the configured one.

    `settings`: hold the bounds, the keys, and what is not named. `models`: names; none for the
    configured one. `base_urls`: one for all models or one each; none for the configured one. Raises
    `UsageError`: the model or its endpoint is not set; a key is missing for one of several hosts.
    """
    sampling = settings.sampling
    names = list(models) or ([sampling.model] if sampling.model else [])
    urls = list(base_urls) or ([sampling.base_url] if sampling.base_url else [])
    if not names or not urls:
        raise UsageError(
            "the model to ask, and its endpoint, are not set: give --model and --base-url (like "
            "https://api.openai.com/v1), or set STREAMER_SAMPLING_MODEL and STREAMER_SAMPLING_BASE_URL; the key, where "
            "the endpoint asks for one, goes into a file that STREAMER_SAMPLING_API_KEY_FILE names"
        )
    if len(urls) not in (1, len(names)):
        raise UsageError(
            f"{len(names)} models and {len(urls)} base URLs: give one --base-url for all, or one for each --model"
        )
    urls = urls * len(names) if len(urls) == 1 else urls
    hosts = {_host(url) for url in urls}
    if len(hosts) > 1 and sampling.api_key and not hosts <= sampling.api_keys.keys():
        raise UsageError(
            f"one key cannot be for {len(hosts)} hosts ({', '.join(sorted(hosts - sampling.api_keys.keys()))}): name a "
            "file with each host's, like STREAMER_SAMPLING_API_KEYS_API_TOGETHER_XYZ_FILE for api.together.xyz"
        )
    return tuple(
        ChatEndpoint(
            model=name,
            base_url=url,
            api_key=sampling.api_keys.get(_host(url), (sampling.api_key or "") if len(hosts) == 1 else ""),
            concurrency=sampling.concurrency,
            tries=sampling.tries,
            timeout=sampling.timeout_seconds,
            allow_plaintext=settings.insecure,
        )
        for name, url in zip(names, urls, strict=True)
    )


def _vendor(settings: Settings, endpoint: ChatEndpoint, price: Price | None) -> Vendor:
    """Return a vendor at an endpoint, within the configured rates."""
    sampling = settings.sampling
    return connect(
        endpoint,
        price=price,
        requests_per_minute=sampling.requests_per_minute,
        tokens_per_minute=sampling.tokens_per_minute,
        token_limit_name=sampling.limit_parameter,
    )


def _host(url: str) -> str:
    """The host that a key is for, without a port; what is wrong with an address is told where it is used."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


class WindDown:
    """The first Ctrl-C or SIGTERM calls `begin`, which asks to stop; the second one stops at once.
    For the main thread.

    A context manager: afterwards both signals do what they did before. `signal` is the first one's
    number, None while there was none.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self.signal: int | None = None

    def __enter__(self) -> WindDown:
        self._before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _stop(self, number: int, _frame: Any) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        self._begin()
