"""What a worker and the HTTP service are both made of: policies, the encoder, metrics and health, small chores."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar, cast

from streamer.collector import look_as_usual
from streamer.events.alerts import AlertsV1
from streamer.settings.settings import Settings
from streamer.signing.policies import Refusal
from streamer.wiring.encoders import encoder, load_candidate_encoder
from streamer.wiring.keys import policy_keys
from streamer.wiring.parts import limits, now

if TYPE_CHECKING:
    from streamer.deciding.policy_book import PolicyBook
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.store import Store
    from streamer.stream.health import WorkerHealth
    from streamer.stream.housekeeping import Housekeeping
    from streamer.telemetry.http import TelemetryServer
    from streamer.telemetry.metrics import Metrics
    from streamer.tracing import Tracing

T = TypeVar("T")

_ROUNDS_PER_COUNT = 15
"""Rounds of housekeeping from one count of all outcomes at the desk to the next."""


def when_available(
    call: Callable[[], T], report_status: Callable[[str, bool], None] = lambda _part, _up: None
) -> T:
    """Return what a call of the database returns, however long it is away: what starts a service may start before it."""
    from streamer.stream.backoff import until_available

    return cast("T", asyncio.run(until_available(None, call, part="database", report_status=report_status)))


def telemetry(
    settings: Settings, metrics: Metrics, health: WorkerHealth, *, part: str, loaded: threading.Event
) -> TelemetryServer:
    """Serve metrics and health on the settings' address; `part` is called unready until `loaded`. Raises `UsageError`."""
    from streamer.telemetry.http import TelemetryServer

    loading = "the encoder is being loaded"
    return TelemetryServer(
        metrics.exposition,
        alive=lambda: {} if health.alive else {part: "stopping"},
        ready=lambda: health.unready() if loaded.is_set() or not health.reachable("database") else [loading],
        stuck=health.stuck,
        open_metrics=metrics.open_metrics,
        host=settings.http.host,
        port=settings.http.port,
        any_port=settings.http.any_port,
    )


def settle_memory() -> None:
    """Spare the collector what the process has loaded: looking through it took 118 ms, in which nothing else goes on."""
    gc.collect()
    gc.freeze()
    look_as_usual()


@contextmanager
def tracing(service: str) -> Iterator[Tracing]:
    """Trace what the process does, where OpenTelemetry's environment variables ask for it."""
    from streamer.stream.log_limits import limit_client_logs
    from streamer.telemetry.exporting import tracing as as_environment_says

    with as_environment_says(service, os.environ) as found:
        limit_client_logs()
        yield found


def policy_book(settings: Settings, store: Store, metrics: Metrics) -> PolicyBook:
    """Return the newest policies that the settings' keys trust, empty before it is refreshed."""
    from streamer.deciding.policy_book import PolicyBook, TrustedPolicies

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


def loaded_encoder(settings: Settings, metrics: Metrics, health: WorkerHealth) -> CachedEncoder | None:
    """Return the settings' encoder, its figures shown among the metrics; None where they name none."""
    from streamer.scoring.encoders.endpoint_encoder import EndpointEncoder

    cached = encoder(settings, in_worker=True, report_status=partial(health.part, "encoder"))
    if cached is None:
        return None
    counts = (lambda: cached.encoded_texts, lambda: cached.cache_hits)
    asked = cached.encoder
    if isinstance(asked, EndpointEncoder):
        metrics.watch_encoder(*counts, lambda: asked.tokens, lambda: float(asked.cost or 0))
    else:
        metrics.watch_encoder(*counts)
    return cached


def candidate_encoder(settings: Settings, store: Store) -> CachedEncoder | None:
    """Return the encoder that the settings name beside the process's own, in the record from now on; None where they name none."""
    cached = load_candidate_encoder(settings, in_worker=True)
    if cached is not None:
        when_available(partial(store.encoders.register, cached.identity))
    return cached


def housekeeping(
    store: Store,
    metrics: Metrics,
    health: WorkerHealth,
    book: PolicyBook,
    *,
    chore: Callable[[], None],
) -> Housekeeping:
    """Begin the chores of a process that decides, and `chore` with them."""
    from streamer.stream.housekeeping import Housekeeping

    return Housekeeping(
        store.policies.chain_closings,
        chore,
        partial(_at_the_desk, store, metrics, count()),
        partial(_show_figures, store, metrics, health),
        seldom=book.refresh,  # in case the thresholds topic was unavailable or lost
    )


def _show_figures(store: Store, metrics: Metrics, health: WorkerHealth) -> None:
    """Show what only SQL knows."""
    metrics.set_outbox_pending(store.reports.outbox_pending())
    for partition, height in store.reports.log_sizes().items():
        # The others belong to other workers, or to an earlier log with the same names.
        if health.reads(partition):
            metrics.set_log_leaves(partition.topic, partition.number, height)


def _at_the_desk(store: Store, metrics: Metrics, rounds: Iterator[int]) -> None:
    """Reject what is overdue; show what waits and, less often, what became of the rest."""
    store.desk.reject_overdue(store.leases.of_desk())
    present = now()
    metrics.set_desk_queues(
        {
            gate: (queue.waiting, max(0.0, (present - queue.oldest).total_seconds()))
            for gate, queue in store.desk.queues().items()
        }
    )
    if next(rounds) % _ROUNDS_PER_COUNT == 0:
        metrics.set_desk_outcomes(store.desk.counts())


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
