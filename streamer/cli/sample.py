"""`streamer sample`: response clouds from language models, the paper's way."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli import FAILED
from streamer.cli import options as opt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.labels.llm import ChatEndpoint, Price
    from streamer.research.sampling import Estimate, SamplingSession
    from streamer.settings.settings import Settings

UNASKED = 100
"""Requests that are sent without asking."""

_WHO, _CLOUD, _DECODING, _SENDING = (
    "Who answers",
    "What a cloud is made of",
    "How answers are decoded",
    "What is sent, and what it may cost",
)


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
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="C1...C6",
            rich_help_panel=_CLOUD,
            help="A configuration of the paper: answers, paraphrases, mix, temperature, top-p, tokens, seed. Other "
            "options win over it.",
        ),
    ] = None,
    answers: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=_CLOUD, help="Answers of a cloud. Default: 10."),
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="N/E/Z",
            rich_help_panel=_CLOUD,
            help="Shares of normal answers, of answers told to name the canonical one, and of noise. Default: 1/0/0.",
        ),
    ] = None,
    noise_family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_CLOUD,
            help="A kind of noise, repeatable: gibberish, off-topic, fabricated-citation, prompt-injection, "
            "contradiction, emoji-flood, multilingual-snippet. Default: all.",
        ),
    ] = None,
    model_noise: Annotated[
        bool,
        typer.Option(
            "--model-noise",
            rich_help_panel=_CLOUD,
            help="Let the model write noise that is off-topic, cites, contradicts itself or is in another language; "
            "otherwise a program makes all noise.",
        ),
    ] = False,
    paraphrases: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            rich_help_panel=_CLOUD,
            help="Paraphrases of the first reference, which join the references. Default: 0.",
        ),
    ] = None,
    rewordings: Annotated[
        int,
        typer.Option(
            metavar="R",
            rich_help_panel=_CLOUD,
            help="Rewordings of the question; the answers are spread over the question as it is and these.",
        ),
    ] = 0,
    limit: Annotated[
        int | None,
        typer.Option(metavar="Q", min=1, rich_help_panel=_CLOUD, help="Only the first Q prompts."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            rich_help_panel=_WHO,
            help="Its name at the endpoint; repeatable. Overrides the setting.",
        ),
    ] = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=_WHO,
            help="The endpoint, like https://api.openai.com/v1: one for all models, or one for each --model in turn.",
        ),
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            rich_help_panel=_WHO,
            help="Several models or temperatures share each cloud; otherwise each has a file of its own.",
        ),
    ] = False,
    temperature: Annotated[
        list[float] | None,
        typer.Option(
            metavar="T",
            rich_help_panel=_DECODING,
            help="In [0, 2]; repeatable, every model at each. Default: 1.",
        ),
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", rich_help_panel=_DECODING, help="In (0, 1]. Default: 1.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=_DECODING, help="Most tokens of an answer. Default: 256."),
    ] = None,
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_DECODING,
            help="The system prompt of normal answers; an empty file sends none. Default: short answer first.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            rich_help_panel=_DECODING,
            help="Every choice derives from it; a number derived from it is sent with each request. Default: 0.",
        ),
    ] = None,
    send_seed: Annotated[
        bool, typer.Option("--send-seed/--no-send-seed", rich_help_panel=_DECODING, help="Send seeds at all.")
    ] = True,
    per_request: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=_SENDING,
            help="Most answers that one request asks for; its prompt is paid once.",
        ),
    ] = 5,
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=_SENDING,
            help="Most requests in flight at an endpoint; overrides the setting.",
        ),
    ] = None,
    requests_per_minute: Annotated[
        float | None,
        typer.Option(
            metavar="R", rich_help_panel=_SENDING, help="Most to an endpoint; overrides the setting."
        ),
    ] = None,
    tokens_per_minute: Annotated[
        float | None,
        typer.Option(
            metavar="R", rich_help_panel=_SENDING, help="Most at an endpoint; overrides the setting."
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IN/OUT",
            rich_help_panel=_SENDING,
            help="For a million tokens of requests and of replies, from your price list: one for all models, or one "
            "for each --model in turn.",
        ),
    ] = None,
    max_cost: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            rich_help_panel=_SENDING,
            help="What all replies may cost together, those of earlier runs too; needs --price. No request is sent that "
            "could exceed it.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", rich_help_panel=_SENDING, help="Ask again for answers that were refused or empty."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", rich_help_panel=_SENDING, help="Show the plan, examples and cost; send nothing."
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            rich_help_panel=_SENDING,
            help=f"Do not ask before more than {UNASKED} requests are sent.",
        ),
    ] = False,
    json: opt.JsonOption = False,
) -> None:
    """Sample response clouds from any endpoint that speaks OpenAI's chat protocol.

    Every reply is kept in FILE.journal as it comes: stop when you like, the same command does the rest and pays for
    nothing twice. The settings are in the group `sampling`; docs/sampling.md says what is ours in place of the paper's.
    """
    from streamer.cli.sample_options import amount, families, given, mix_of, prices_of, text_of
    from streamer.cli.sample_report import print_plan
    from streamer.errors import UsageError
    from streamer.research.sampling import PRESETS, Recipe, SamplingPlan, SamplingSession, read_prompts
    from streamer.research.sampling.session import arms_of
    from streamer.research.sampling.wiring import sampling_endpoints
    from streamer.settings.settings import load_settings

    settings = load_settings(
        sampling=given(
            concurrency=concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
    )
    if preset is not None and preset.upper() not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}; the paper has {', '.join(PRESETS)}")
    chosen = {} if preset is None else dict(PRESETS[preset.upper()])
    chosen |= given(
        answers=answers,
        paraphrases=paraphrases,
        mix=mix_of(mix),
        families=families(noise_family),
        top_p=top_p,
        max_tokens=max_tokens,
        instruction=None if system_prompt is None else text_of(system_prompt),
        seed=seed,
    )
    at = temperature or [chosen.pop("temperature", 1.0)]
    chosen.pop("temperature", None)
    recipe = Recipe(
        **chosen,
        rewordings=rewordings,
        noise_by_model=model_noise,
        per_request=per_request,
        send_seed=send_seed,
        together=together,
    )
    endpoints = sampling_endpoints(settings, model or [], base_url or [])
    prices = prices_of(price or [], len(endpoints))
    most = None if max_cost is None else amount(max_cost, "--max-cost")
    if most is not None and None in prices:
        raise UsageError("--max-cost needs --price IN/OUT, what a million tokens cost")
    plan = SamplingPlan(read_prompts(prompts, limit=limit), recipe, arms_of(endpoints, at))
    session = SamplingSession(plan, out)
    planned = session.estimate(prices, again=again)
    if dry_run or not json:
        print_plan(session, planned, again=again, examples=dry_run, json=json)
    if dry_run:
        return
    if planned.requests > UNASKED and not yes:
        _confirm(planned, prompts)
    _run(session, settings, endpoints, prices, most, again=again, json=json)


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
    from time import monotonic

    from streamer.cli.console import progress
    from streamer.cli.interrupts import WindDown
    from streamer.cli.sample_report import print_result
    from streamer.errors import StreamerError
    from streamer.research.sampling import Tally
    from streamer.research.sampling.wiring import sampling_vendor

    start = monotonic()
    stopped: BaseException | None = None
    tally, not_taken = Tally(), {}
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


def _confirm(planned: "Estimate", prompts: str) -> None:
    import sys

    from streamer.errors import UsageError

    if prompts == "-" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{planned.requests} requests are to be sent; give --yes to send more than {UNASKED} without being asked, or "
            "--dry-run to look first"
        )
    if not typer.confirm(f"Send {planned.requests} requests?", err=True):
        raise typer.Exit(FAILED)
