"""A worker from settings: what decides, and the stream that it reads, put together and run."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from streamer.deciding.policy_book import Announcements
from streamer.failpoints import from_environment
from streamer.journal import Partition
from streamer.settings.settings import Settings
from streamer.stream.connection import Subscription
from streamer.stream.ending import Ending, StopDeadline, WorkerHalted
from streamer.stream.faust_engine import ReaderLimits
from streamer.stream.health import WorkerHealth
from streamer.stream.isolation import DeadLetterLimits
from streamer.stream.worker import Thresholds, WorkerLimits
from streamer.stream.worker import run_worker as run_stream
from streamer.wiring.parts import connection, limits, topics
from streamer.wiring.process import Begun, settle_memory


def run_worker(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run one worker until it is asked to stop, and return the process's exit status; the process must then end.

    `announce` gets the addresses once they are known, before the worker is ready.
    """
    named, bounds = topics(settings), limits(settings)
    broker, group = connection(settings), settings.kafka.group_id
    # Never called off: it also ends an interpreter that waits for a thread which does not come back.
    ending = Ending(deadline=StopDeadline())
    with ExitStack() as stack:
        begun = Begun(
            stack, settings, lambda metrics: WorkerHealth(metrics, essential=[named.actions]), part="worker"
        )
        health, store = begun.health, begun.store
        addresses = {"http": begun.http.url, "encoder": begun.encoder_id, "broker": broker.bootstrap}
        announce(addresses | {"group": group})
        announcements = Announcements(
            begun.book,
            message=store.policies.message,
            announce=store.policies.announce,
            # This one publishes what commands left in the outbox.
            mine=lambda: health.reads(Partition(health.log_id, named.responses, 0)),
            limits=bounds,
            clock=time.monotonic,
        )
        begun.load()
        begun.keep_house(announcements.keep)
        decider, prepare = begun.begin_deciding()
        stream = run_stream(
            Subscription(
                connection=broker,
                topics=(named.responses, named.labels),
                group_id=group,
                log_id=settings.kafka.log_id,
            ),
            journal=store,
            decider=decider,
            prepare=prepare,
            thresholds=Thresholds(topic=named.thresholds, on_message=announcements.hear),
            limits=_worker_limits(settings),
            health=health,
            failpoint=from_environment(),
            tracing=begun.tracing,
            ending=ending,
        )
        settle_memory()
        try:
            asyncio.run(stream)
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


def _worker_limits(settings: Settings) -> WorkerLimits:
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
