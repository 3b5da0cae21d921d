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

    from streamer.events.alerts import AlertsV1
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.settings.settings import Settings
    from streamer.signing.policies import Refusal
    from streamer.stream.health import WorkerHealth
    from streamer.telemetry.metrics import Metrics

from streamer.wiring.audit import checkpointer
from streamer.wiring.parts import connection, limits, now, open_store, topics
from streamer.wiring.policy_keys import policy_keys


def encoder(settings: Settings) -> CachedEncoder | None:
    """Load the encoder, which takes seconds, behind its cache; None when the worker is to have none."""
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.scoring.encoders.registry import load_encoder

    if settings.encoder.name == NO_ENCODER:
        return None
    loaded = load_encoder(
        settings.encoder.name, device=settings.encoder.device, threads=settings.encoder.threads
    )
    return CachedEncoder(loaded, capacity_texts=settings.encoder.cache_texts)


def run_worker(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run one worker until it is asked to stop, and return the process's exit status; the process must then end.

    `announce` gets the addresses once they are known, before the worker is ready.
    """
    from streamer.deciding.announcements import Announcements
    from streamer.deciding.decider import BatchDecider
    from streamer.deciding.policy_book import PolicyBook
    from streamer.deciding.trusted_policies import TrustedPolicies
    from streamer.failpoints import from_environment
    from streamer.scoring.encoders.registry import encoder_identity
    from streamer.stream.dead_letter_cap import DeadLetterLimits
    from streamer.stream.exits import WorkerHalted
    from streamer.stream.health import WorkerHealth
    from streamer.stream.housekeeping import Housekeeping
    from streamer.stream.reader_limits import ReaderLimits
    from streamer.stream.stop_deadline import StopDeadline
    from streamer.stream.worker import Thresholds, WorkerLimits, exit_at_once
    from streamer.stream.worker import run_worker as run_stream
    from streamer.telemetry.http import TelemetryServer
    from streamer.telemetry.metrics import Metrics
    from streamer.telemetry.stream_observer import StreamTelemetry

    named, bounds = topics(settings), limits(settings)
    broker = connection(settings)
    identity = None if settings.encoder.name == NO_ENCODER else encoder_identity(settings.encoder.name)
    encoder_id = NO_ENCODER if identity is None else identity.id
    metrics = Metrics(encoder=encoder_id)
    health = WorkerHealth(StreamTelemetry(metrics), essential=[named.actions])
    loading = threading.Event()
    # Never called off: it also ends an interpreter that waits for a thread which does not come back.
    deadline = StopDeadline(WorkerLimits().stop_timeout, exit_at_once)
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
        announce(
            {
                "http": http.url,
                "encoder": encoder_id,
                "broker": broker.bootstrap,
                "group": settings.kafka.group_id,
            }
        )
        book = PolicyBook(
            TrustedPolicies(
                store.policies,
                policy_keys(settings),
                on_refused=lambda gate, _version, reason: metrics.count_refused_policy(gate, reason),
                tell=partial(_tell_of_refused_policy, store.alerts.raise_),
                now=now,
            ),
            limits=bounds,
            on_change=lambda active: metrics.observe_policy(active.policy),
            on_rejected=lambda _code: metrics.count_rejected_policy_event(),
        )
        announcements = Announcements(
            book,
            store.policies,
            # This one publishes what commands left in the outbox.
            mine=lambda: health.reads(Partition(health.log_id, named.responses, 0)),
            limits=bounds,
            clock=time.monotonic,
        )
        book.refresh()
        cached = encoder(settings)
        if cached is not None:
            metrics.watch_encoder(lambda: cached.encoded_texts, lambda: cached.cache_hits)
        loading.set()
        stack.enter_context(
            Housekeeping(
                refresh_policies=book.refresh,
                reports=store.reports,
                show=partial(_show_standing, metrics, health),
                keep_announced=announcements.keep,
                checkpoint=None
                if settings.audit.private_key is None
                else checkpointer(settings, store).run_if_due,
            )
        )
        decider = BatchDecider(
            book=book, known=store.known, encoder=cached, topics=named, limits=bounds, clock=now
        )
        try:
            asyncio.run(
                run_stream(
                    connection=broker,
                    topics=(named.responses, named.labels),
                    group_id=settings.kafka.group_id,
                    journal=store,
                    decider=decider,
                    log_id=settings.kafka.log_id,
                    thresholds=Thresholds(topic=named.thresholds, on_message=announcements.hear),
                    limits=WorkerLimits(
                        reader=ReaderLimits(
                            max_buffered_records=settings.worker.buffer_max_records,
                            max_buffered_bytes=settings.worker.buffer_max_bytes,
                            max_record_bytes=bounds.max_input_bytes,
                        ),
                        dead_letters=DeadLetterLimits(
                            run=settings.worker.dead_letter_max_run,
                            ratio=settings.worker.dead_letter_max_ratio,
                            window=settings.worker.dead_letter_window,
                        ),
                        max_commit_records=settings.worker.commit_max_records,
                        max_commit_bytes=settings.worker.commit_max_bytes,
                        max_output_bytes=bounds.max_output_bytes,
                    ),
                    health=health,
                    failpoint=from_environment(),
                    deadline=deadline,
                )
            )
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


def _tell_of_refused_policy(
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


def _show_standing(
    metrics: Metrics, health: WorkerHealth, pending: int, heights: Mapping[Partition, int]
) -> None:
    metrics.set_outbox_pending(pending)
    for partition, height in heights.items():
        # The others belong to other workers, or to an earlier log with the same names.
        if health.reads(partition):
            metrics.set_chain_height(partition.topic, partition.number, height)
