"""A worker from settings: encoder, policies, decider, stream, metrics and health, put together and run."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from streamer.gates.settings import NO_ENCODER
from streamer.journal import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamer.deciding.policy_book import PolicyBook
    from streamer.events.alerts import AlertsV1
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.settings.settings import Settings
    from streamer.signing.policies import Refusal
    from streamer.store import Store
    from streamer.stream.health import WorkerHealth
    from streamer.stream.worker import WorkerLimits
    from streamer.telemetry.metrics import Metrics

from streamer.wiring.audit import checkpointer
from streamer.wiring.encoders import encoder, encoder_identity
from streamer.wiring.parts import connection, limits, now, open_store, topics
from streamer.wiring.policy_keys import policy_keys


def run_worker(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run one worker until it is asked to stop, and return the process's exit status; the process must then end.

    `announce` gets the addresses once they are known, before the worker is ready.
    """
    from streamer.deciding.announcements import Announcements
    from streamer.deciding.decider import BatchDecider
    from streamer.failpoints import from_environment
    from streamer.stream.connection import Subscription
    from streamer.stream.ending import Ending
    from streamer.stream.exits import WorkerHalted
    from streamer.stream.health import WorkerHealth
    from streamer.stream.housekeeping import Housekeeping
    from streamer.stream.stop_deadline import StopDeadline
    from streamer.stream.worker import Thresholds
    from streamer.stream.worker import run_worker as run_stream
    from streamer.telemetry.http import TelemetryServer
    from streamer.telemetry.metrics import Metrics
    from streamer.telemetry.stream_observer import StreamTelemetry

    named, bounds = topics(settings), limits(settings)
    broker = connection(settings)
    identity = None if settings.encoder.name == NO_ENCODER else encoder_identity(settings)
    encoder_id = NO_ENCODER if identity is None else identity.id
    metrics = Metrics(encoder=encoder_id)
    health = WorkerHealth(StreamTelemetry(metrics), essential=[named.actions])
    loading = threading.Event()
    # Never called off: it also ends an interpreter that waits for a thread which does not come back.
    ending = Ending(deadline=StopDeadline())
    with ExitStack() as stack:
        http = stack.enter_context(
            TelemetryServer(
                metrics.exposition,
                alive=lambda: {} if health.alive else {"worker": "stopping"},
                ready=lambda: _unready(health, loading),
                stuck=health.stuck,
                host=settings.http.host,
                port=settings.http.port,
            )
        )
        store = stack.enter_context(open_store(settings))
        if identity is not None:
            store.encoders.register(identity)
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
        book.refresh()
        cached = encoder(settings, in_worker=True, report_status=partial(health.part, "encoder"))
        if cached is not None:
            watch_encoder(metrics, cached)
        loading.set()
        stack.enter_context(
            Housekeeping(
                refresh_policies=book.refresh,
                reports=store.reports,
                show=partial(show_figures, metrics, health),
                chore=announcements.keep,
                checkpoint=None
                if settings.audit.private_key is None
                else checkpointer(settings, store).run_if_due,
            )
        )
        decider = BatchDecider(
            book=book, known=store.known, encoder=cached, topics=named, limits=bounds, clock=now
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
            thresholds=Thresholds(topic=named.thresholds, on_message=announcements.hear),
            limits=_worker_limits(settings),
            health=health,
            failpoint=from_environment(),
            ending=ending,
        )
        try:
            asyncio.run(stream)
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


def watch_encoder(metrics: Metrics, cached: CachedEncoder) -> None:
    """Show what an encoder has done."""
    from streamer.scoring.encoders.endpoint_encoder import EndpointEncoder

    counts = (lambda: cached.encoded_texts, lambda: cached.cache_hits)
    asked = cached.encoder
    if isinstance(asked, EndpointEncoder):
        metrics.watch_encoder(*counts, lambda: asked.tokens, lambda: float(asked.cost or 0))
    else:
        metrics.watch_encoder(*counts)


def policy_book(settings: Settings, store: Store, metrics: Metrics) -> PolicyBook:
    """Return the newest policies that the settings' keys trust, empty before it is refreshed."""
    from streamer.deciding.policy_book import PolicyBook
    from streamer.deciding.trusted_policies import TrustedPolicies

    return PolicyBook(
        TrustedPolicies(
            store.policies,
            policy_keys(settings),
            on_refused=lambda gate, _version, reason: metrics.count_refused_policy(gate, reason),
            raise_alert=partial(_raise_refused_policy, store.alerts.raise_),
            now=now,
        ),
        limits=limits(settings),
        on_change=lambda active: metrics.observe_policy(active.policy),
        on_rejected=lambda _code: metrics.count_rejected_policy_event(),
    )


def _worker_limits(settings: Settings) -> WorkerLimits:
    from streamer.stream.dead_letter_cap import DeadLetterLimits
    from streamer.stream.reader_limits import ReaderLimits
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


def _raise_refused_policy(
    raise_: Callable[[AlertsV1], bool], gate: str, version: int, reason: Refusal, kept: int | None
) -> None:
    """Raise the alert; however many workers refuse a policy, and however often they start, it is raised once."""
    from streamer.events.alerts import alert
    from streamer.signing.policies import REFUSAL_TEXTS

    goes_on = (
        "Workers hold everything: no policy of this gate is good."
        if kept is None
        else f"Workers continue with policy {kept}."
    )
    raise_(
        alert(
            gate,
            "policy_refused",
            f"version {version}",
            message=f"Policy {version} of gate {gate} is refused: {REFUSAL_TEXTS[reason]}. {goes_on} See docs/security.md.",
            raised_at=now(),
            details={"version": version, "reason": reason, "kept": kept},
            policy_version=kept,
        )
    )


def _unready(health: WorkerHealth, loaded: threading.Event) -> list[str]:
    return health.unready() if loaded.is_set() else ["the encoder is being loaded"]


def show_figures(
    metrics: Metrics, health: WorkerHealth, pending: int, heights: Mapping[Partition, int]
) -> None:
    """Show what only SQL knows."""
    metrics.set_outbox_pending(pending)
    for partition, height in heights.items():
        # The others belong to other workers, or to an earlier log with the same names.
        if health.reads(partition):
            metrics.set_chain_height(partition.topic, partition.number, height)
