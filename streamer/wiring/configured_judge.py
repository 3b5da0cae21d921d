"""The configured judge, for whoever asks it for scores: an evaluation, or what decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog

from streamer.errors import UsageError
from streamer.settings.settings import Settings
from streamer.telemetry.catalogue import JUDGE_RESULTS
from streamer.tracing import NO_TRACING, Tracing

if TYPE_CHECKING:
    from streamer.labels.judge.client import JudgeClient
    from streamer.labels.judge.scores import JudgeScores
    from streamer.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


@contextmanager
def judge(settings: Settings, tracing: Tracing = NO_TRACING) -> Iterator[JudgeClient]:
    """Give the configured judge; what it is asked when the block ends is cancelled."""
    from streamer.labels.judge.client import JudgeClient
    from streamer.labels.kinds.judge import judge_endpoint

    with JudgeClient(judge_endpoint(settings), tracing=tracing) as asked:
        yield asked


def judge_scoring_id(settings: Settings) -> str:
    """Return what a gate whose scores the configured judge makes names in the place of an encoder.

    Raises `UsageError` when no judge is configured.
    """
    from streamer.labels.judge.rubric import judge_name
    from streamer.labels.judge.scores import scoring_id
    from streamer.labels.kinds.judge import judge_endpoint

    endpoint = judge_endpoint(settings)
    return scoring_id(judge_name(endpoint.model, endpoint.seed), endpoint)


@contextmanager
def judge_scores(settings: Settings, metrics: Metrics, tracing: Tracing) -> Iterator[JudgeScores | None]:
    """Give who marks answers for gates of the scorer `judge`, with its figures among the metrics; None where no judge is configured."""
    if settings.judge.base_url is None or settings.judge.model is None:
        yield None
        return
    from streamer.labels.judge.scores import JudgeScores

    with ExitStack() as stack:
        try:
            asked = stack.enter_context(judge(settings, tracing))
        except UsageError as error:
            # It may be configured for labels alone; gates that need it hold, and `streamer doctor` says so.
            log.warning("judge.cannot_be_asked", reason=str(error))
            yield None
            return
        scores = JudgeScores(
            asked,
            name=judge_scoring_id(settings),
            seconds=settings.judge.score_seconds,
            per_minute=settings.judge.score_requests_per_minute,
            report_status=partial(metrics.part, "judge"),
        )
        metrics.watch_judge(
            {what: partial(scores.counts.__getitem__, what) for what in JUDGE_RESULTS},
            lambda: scores.tokens,
            lambda: float(scores.cost or 0),
        )
        yield scores
