"""Labellers of the label queue from settings: a judge at its endpoint, BERTScore with its model."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamer.labels.judge.client import Judge
    from streamer.labels.judge.endpoint import JudgeEndpoint
    from streamer.labels.judge.labeller import JudgeLabeller
    from streamer.labels.reference_labellers import BertScoreLabeller
    from streamer.settings.settings import Settings


def judge_endpoint(settings: Settings) -> JudgeEndpoint:
    """Return where the judge is and how it is asked. Raises `UsageError` when nobody has said."""
    from streamer.labels.judge.endpoint import JudgeEndpoint
    from streamer.labels.llm.record import Price

    judge = settings.judge
    if judge.base_url is None or judge.model is None:
        raise UsageError(
            "no judge is configured: set STREAMER_JUDGE_BASE_URL (like https://api.openai.com/v1) and "
            "STREAMER_JUDGE_MODEL, or name them by the options that `streamer label judge` and `streamer evaluate` have "
            "for them (--help); the key, where the endpoint asks for one, goes "
            "into a file that STREAMER_JUDGE_API_KEY_FILE names"
        )
    prices = {}
    if judge.price_per_million_input is not None and judge.price_per_million_output is not None:
        prices[judge.model] = Price(judge.price_per_million_input, judge.price_per_million_output)
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
        prices=prices,
        allow_plaintext=settings.insecure,
    )


@contextmanager
def judge(settings: Settings) -> Iterator[Judge]:
    """Give the configured judge; what it is asked when the block ends is cancelled."""
    from streamer.labels.judge.client import Judge

    with Judge(judge_endpoint(settings)) as asked:
        yield asked


@contextmanager
def judge_labeller(endpoint: JudgeEndpoint) -> Iterator[JudgeLabeller]:
    """Give a judge that labels; what it is asked when the block ends is cancelled."""
    from streamer.labels.judge.client import Judge
    from streamer.labels.judge.labeller import JudgeLabeller

    with Judge(endpoint) as judge:
        yield JudgeLabeller(judge)


def bertscore_labeller(settings: Settings) -> BertScoreLabeller:
    """Load the model, which takes seconds. Raises `UsageError` when it cannot be loaded."""
    from streamer.labels.bertscore import BertScorer
    from streamer.labels.reference_labellers import BertScoreLabeller

    chosen = settings.bertscore
    return BertScoreLabeller(
        BertScorer(
            chosen.model,
            layers=chosen.layers,
            rescale_with_baseline=chosen.rescale,
            baseline_file=None if chosen.baseline_file is None else Path(chosen.baseline_file),
            batch_size=chosen.batch_size,
            device=chosen.device,
        )
    )
