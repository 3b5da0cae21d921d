"""A worker from settings: encoder, policies, decider, stream, metrics and health, put together and run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from streamer.gates.settings import NO_ENCODER
from streamer.journal import Partition
from streamer.settings.settings import Settings

if TYPE_CHECKING:
    from streamer.stream.worker import WorkerLimits

from streamer.wiring.configured_judge import judge_scores
from streamer.wiring.encoders import encoder_identity
from streamer.wiring.parts import connection, limits, now, open_store, topics
from streamer.wiring.process import (
    candidate_encoder,
    housekeeping,
    loaded_encoder,
    policy_book,
    settle_memory,
    telemetry,
    tracing,
    when_available,
)


def run_worker(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run one worker until it is asked to stop, and return the process's exit status; the process must then end.

    `announce` gets the addresses once they are known, before the worker is ready.
    """
    from streamer.deciding.decider import BatchDecider
    from streamer.deciding.policy_book import Announcements
    from streamer.deciding.reading_ahead import reading_ahead
    from streamer.failpoints import from_environment
    from streamer.stream.connection import Subscription
    from streamer.stream.ending import Ending, StopDeadline, WorkerHalted
    from streamer.stream.health import WorkerHealth
    from streamer.stream.worker import Thresholds
    from streamer.stream.worker import run_worker as run_stream
    from streamer.telemetry.metrics import Metrics

    named, bounds = topics(settings), limits(settings)
    broker = connection(settings)
    identity = None if settings.encoder.name == NO_ENCODER else encoder_identity(settings)
    encoder_id = NO_ENCODER if identity is None else identity.id
    metrics = Metrics(encoder=encoder_id)
    health = WorkerHealth(metrics, essential=[named.actions])
    loaded = threading.Event()
    # Never called off: it also ends an interpreter that waits for a thread which does not come back.
    ending = Ending(deadline=StopDeadline())
    with ExitStack() as stack:
        http = stack.enter_context(telemetry(settings, metrics, health, part="worker", loaded=loaded))
        traces = stack.enter_context(tracing("worker"))
        at_last = partial(when_available, report_status=health.part)
        store = stack.enter_context(at_last(partial(open_store, settings)))
        if identity is not None:
            at_last(partial(store.encoders.register, identity))
        group = settings.kafka.group_id
        announce({"http": http.url, "encoder": encoder_id, "broker": broker.bootstrap, "group": group})
        book = policy_book(settings, store, metrics)
        announcements = Announcements(
            book,
            store.policies,
            # This one publishes what commands left in the outbox.
            mine=lambda: health.reads(Partition(health.log_id, named.responses, 0)),
            limits=bounds,
            clock=time.monotonic,
        )
        at_last(book.refresh)
        cached = loaded_encoder(settings, metrics, health)
        beside = candidate_encoder(settings, store)
        loaded.set()
        stack.enter_context(housekeeping(store, metrics, health, book, chore=announcements.keep))
        judge = stack.enter_context(judge_scores(settings, metrics, traces))
        decider = BatchDecider(
            book=book,
            judge=judge,
            known=store.known,
            encoder=cached,
            topics=named,
            limits=bounds,
            clock=now,
            tracing=traces,
            candidate_encoder=beside,
            candidate_seconds=settings.worker.candidate_wait_seconds,
        )
        stream = run_stream(
            Subscription(
                connection=broker,
                topics=(named.responses, named.labels),
                group_id=group,
                log_id=settings.kafka.log_id,
            ),
            journal=store,
            decider=decider,
            prepare=stack.enter_context(reading_ahead(decider, cached)),
            thresholds=Thresholds(topic=named.thresholds, on_message=announcements.hear),
            limits=_worker_limits(settings),
            health=health,
            failpoint=from_environment(),
            tracing=traces,
            ending=ending,
        )
        settle_memory()
        try:
            asyncio.run(stream)
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


def _worker_limits(settings: Settings) -> WorkerLimits:
    from streamer.stream.faust_engine import ReaderLimits
    from streamer.stream.isolation import DeadLetterLimits
    from streamer.stream.worker import WorkerLimits

    bounds, worker = limits(settings), settings.worker
    return WorkerLimits(
        reader=ReaderLimits(
            max_buffered_records=worker.buffer_max_records,
            max_buffered_bytes=worker.buffer_max_bytes,
            max_record_bytes=bounds.max_input_bytes,
        ),
        dead_letters=DeadLetterLimits(
            run=worker.dead_letter_max_run,
            ratio=worker.dead_letter_max_ratio,
            window=worker.dead_letter_window,
        ),
        max_commit_records=worker.commit_max_records,
        max_commit_bytes=worker.commit_max_bytes,
        max_output_bytes=bounds.max_output_bytes,
    )
