"""The HTTP service from settings: two lanes over one store, the application, and, with Kafka, a relay."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Any

from streamer.errors import Unavailable, UsageError
from streamer.events.topics import HTTP_LOG
from streamer.failpoints import from_environment
from streamer.gates.settings import NO_ENCODER, GateSettings
from streamer.settings.settings import Settings
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
from streamer.wiring.upstreams import upstreams
from streamer_client.loopback import is_loopback

if TYPE_CHECKING:
    from streamer.deciding.policy_book import PolicyBook
    from streamer.labels.judge.scores import JudgeScores
    from streamer.labels.llm.record import Choice
    from streamer.risk.rounds.report import RiskReport
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.security.api_keys import KeyRing
    from streamer.serving.authorize import Authorize
    from streamer.serving.chat.counter import ChatCounter
    from streamer.serving.chat.sampler import Sampler
    from streamer.serving.lane import PendingAnswers, ServiceHealth
    from streamer.serving.releases import Releases
    from streamer.serving.request_log import RequestLog
    from streamer.serving.service import Service
    from streamer.serving.slots import Slots
    from streamer.store import Store
    from streamer.store.db.leases import ProcessLease
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.hooks import Hooks
    from streamer.stream.relay import Relay

_READERS = 4
"""Threads that look decisions up."""

_IDLE_SECONDS = 120
"""Longer than clients keep a connection: one that was closed at the moment of a request would be a hold for nothing."""


def run_serving(
    settings: Settings,
    *,
    kafka: bool,
    host: str,
    port: int,
    wait: float,
    sentence: Callable[[RiskReport], str],
    announce: Callable[[Mapping[str, object]], None],
) -> int:
    """Serve until asked to stop, and return the process's exit status; the process must then end.

    Parameters
    ----------
    kafka : publish what is decided.
    wait : seconds that a request may take, > 0.
    sentence : says how a gate stands.
    announce : gets the addresses once they are known, before the service is ready.

    Raises
    ------
    UsageError : the address is another machine's way in and there is no key, or cannot be listened on; the database is not
        migrated; no broker is configured; or an upstream's key or package is missing.
    """
    from streamer.security.api_keys import RateLimits
    from streamer.serving.authorize import Authorize
    from streamer.serving.chat.sampler import Sampler
    from streamer.serving.lane import PendingAnswers, ServiceHealth
    from streamer.serving.service import STOP_SECONDS, Service
    from streamer.stream.ending import Ending, StopDeadline, WorkerHalted
    from streamer.stream.hooks import Hooks
    from streamer.telemetry.metrics import Metrics, measured
    from streamer.web.server import base_url, listen, server

    bounds, behind = limits(settings), upstreams(settings)
    broker = connection(settings) if kafka else None
    identity = None if settings.encoder.name == NO_ENCODER else encoder_identity(settings)
    encoder_id = NO_ENCODER if identity is None else identity.id
    metrics = Metrics(encoder=encoder_id, service="endpoint")
    answers = PendingAnswers()
    essential = [topics(settings).actions] if kafka else []
    health = ServiceHealth(answers, metrics, essential=essential)
    loaded = threading.Event()
    ending = Ending(deadline=StopDeadline())
    with ExitStack() as stack:
        http = stack.enter_context(telemetry(settings, metrics, health, part="service", loaded=loaded))
        traces = stack.enter_context(tracing("serve"))
        samplers = {
            gate: Sampler(
                one,
                max_text_bytes=bounds.max_text_bytes,
                count_cached=metrics.cached_replies(gate),
                tracing=traces,
            )
            for gate, one in behind.items()
        }
        at_last = partial(when_available, report_status=health.part)
        store = stack.enter_context(at_last(partial(open_store, settings, publish=kafka)))
        ring = at_last(partial(_keys, store, host))
        if identity is not None:
            at_last(partial(store.encoders.register, identity))
        listening = stack.enter_context(listen(host, port, what="requests"))
        announce(
            {
                "endpoint": base_url(host, listening).rstrip("/"),
                "http": http.url,
                "encoder": encoder_id,
                "broker": "none" if broker is None else broker.bootstrap,
                "upstreams": ", ".join(f"{gate}: {one.upstream.id}" for gate, one in samplers.items())
                or "none",
            }
        )
        book = policy_book(settings, store, metrics)
        at_last(book.refresh)
        cached = loaded_encoder(settings, metrics, health)
        beside = candidate_encoder(settings, store)
        with suppress(Unavailable):
            ring.refresh()  # loading may take longer than what was read of the keys is trusted
        loaded.set()
        stack.enter_context(housekeeping(store, metrics, health, book, chore=ring.refresh))
        shared = _Shared(
            settings=settings,
            store=store,
            book=book,
            encoder=cached,
            candidate_encoder=beside,
            health=health,
            answers=answers,
            hooks=Hooks(observer=health, failpoint=from_environment(), tracing=traces),
            threads=_threads(stack),
            stack=stack,
        )
        relay = None if broker is None else _relay(broker, shared, lambda: request_log, lambda: slots)
        judge = stack.enter_context(judge_scores(settings, metrics, traces))
        slots = _slots(shared, relay, *at_last(store.leases.free_slot))
        stack.callback(slots.release)
        request_log = _request_log(shared, judge, relay, slots, sentence)
        authorize = Authorize(ring, RateLimits(), listening=host, clock=now, monotonic=time.monotonic)
        app, chat, releases = _application(shared, request_log, samplers, authorize, wait)
        service = Service(
            request_log=request_log,
            journal=store,
            slots=slots,
            answers=answers,
            server=server(
                measured(app, metrics, traces),
                signals=False,
                stop_seconds=STOP_SECONDS,
                idle_seconds=_IDLE_SECONDS,
                most=settings.endpoint.max_connections,
                most_of_one=settings.endpoint.max_connections_per_address,
            ),
            relay=relay,
            health=health,
            hooks=shared.hooks,
            ending=ending,
            executor=shared.threads["lease"],
            cut_off=partial(_cut_off, chat, releases),
        )
        settle_memory()
        try:
            asyncio.run(_run(service, listening, chat))
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What both lanes and the relay work with; `threads` by what they are for."""

    settings: Settings
    store: Store
    book: PolicyBook
    encoder: CachedEncoder | None
    candidate_encoder: CachedEncoder | None
    health: ServiceHealth
    answers: PendingAnswers
    hooks: Hooks
    threads: Mapping[str, Executor]
    stack: ExitStack


def _keys(store: Store, host: str) -> KeyRing:
    from streamer.security.api_keys import KeyRing

    ring = KeyRing(store.api_keys.list, monotonic=time.monotonic)
    ring.refresh()
    if not is_loopback(host) and ring.is_empty():
        raise UsageError(
            f"on {host} anyone could decide, label and read, for there is no key yet; make one (`streamer key create`), "
            "or serve on 127.0.0.1"
        )
    return ring


def _threads(stack: ExitStack) -> Mapping[str, Executor]:
    threads = {
        name: ThreadPoolExecutor(_READERS if name == "read" else 1, thread_name_prefix=f"streamer-{name}")
        for name in ("score", "commit", "side-score", "side-commit", "lease", "relay", "read")
    }
    for pool in threads.values():
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    return threads


def _request_log(
    shared: _Shared,
    judge: JudgeScores | None,
    relay: Relay | None,
    slots: Slots,
    sentence: Callable[[RiskReport], str],
) -> RequestLog:
    from streamer.deciding.decider import BatchDecider
    from streamer.deciding.reading_ahead import reading_ahead
    from streamer.serving.lane import Lane, LaneLimits
    from streamer.serving.request_log import RequestLog
    from streamer.serving.slots import partitions_of

    settings, store, threads = shared.settings, shared.store, shared.threads
    decider = partial(
        BatchDecider,
        book=shared.book,
        known=store.known,
        topics=topics(settings),
        limits=limits(settings),
        clock=now,
        tracing=shared.hooks.tracing,
        candidate_seconds=settings.worker.candidate_wait_seconds,
    )
    lane = partial(
        Lane,
        journal=store,
        limits=LaneLimits(
            max_waiting=settings.endpoint.max_waiting,
            max_waiting_bytes=settings.endpoint.max_waiting_bytes,
            max_commit_records=settings.worker.commit_max_records,
            max_commit_bytes=settings.worker.commit_max_bytes,
        ),
        hooks=shared.hooks,
        answers=shared.answers,
        health=shared.health,
        on_commit=_nothing if relay is None else relay.wake,
    )
    main = decider(encoder=shared.encoder, judge=judge, candidate_encoder=shared.candidate_encoder)
    return RequestLog(
        main=lane(
            main,
            prepare=shared.stack.enter_context(reading_ahead(main, shared.encoder)),
            score_executor=threads["score"],
            executor=threads["commit"],
        ),
        side=lane(
            decider(encoder=None), score_executor=threads["side-score"], executor=threads["side-commit"]
        ),
        book=shared.book,
        actions=store,
        labels=store.labels,
        judges=partial(_judged, store, sentence),
        partitions=partitions_of(slots.number),
        reachable=lambda: slots.mine() and shared.health.reachable("database", "decider"),
        executor=threads["read"],
    )


def _application(
    shared: _Shared, log: RequestLog, samplers: Mapping[str, Sampler], authorize: Authorize, wait: float
) -> tuple[Any, ChatCounter, Releases]:
    from streamer.serving.app import serving_app
    from streamer.serving.chat.counter import ChatCounter
    from streamer.serving.releases import Releases

    asked, bounds = shared.settings.endpoint, limits(shared.settings)
    chat = ChatCounter(
        log,
        samplers,
        best_score=partial(_best_score, shared),
        limits=bounds,
        most=asked.max_waiting,
        most_bytes=asked.max_waiting_bytes,
    )
    releases = Releases(shared.store.desk, executor=shared.threads["read"], most=asked.max_waiting)
    app = serving_app(
        log,
        limits=bounds,
        longest=wait,
        clock=now,
        authorize=authorize,
        chat=chat,
        releases=releases,
        origins=asked.cors_origins,
    )
    return app, chat, releases


def _cut_off(chat: ChatCounter, releases: Releases) -> None:
    chat.cut_off()
    releases.end()


async def _best_score(shared: _Shared, settings: GateSettings, answers: Sequence[Choice]) -> float:
    from streamer.deciding.measuring import best_score

    texts = [answer.text for answer in answers]
    both = (shared.encoder, shared.candidate_encoder)
    encoder = next((one for one in both if one is not None and one.identity.id == settings.encoder), None)
    return await asyncio.get_running_loop().run_in_executor(
        shared.threads["score"], best_score, settings, texts, encoder, [one.logprob for one in answers]
    )


async def _run(service: Service, listening: socket, chat: ChatCounter) -> None:
    try:
        await service.run([listening])
    finally:
        await chat.close()


def _slots(shared: _Shared, relay: Relay | None, number: int, own: ProcessLease) -> Slots:
    from streamer.serving.slots import Slots

    store = shared.store
    return Slots(
        number,
        own,
        lease=store.leases.of_slot,
        waiting=None if relay is None else partial(store.waiting_partitions, HTTP_LOG),
        journal=store,
        executor=shared.threads["lease"],
        wake=_nothing if relay is None else relay.wake,
    )


def _relay(
    broker: KafkaConnection, shared: _Shared, log: Callable[[], RequestLog], slots: Callable[[], Slots]
) -> Relay:
    from streamer.stream.relay import Relay
    from streamer.stream.relay_lane import RelayLimits

    return Relay(
        broker,
        shared.store,
        executor=shared.threads["relay"],
        sources=lambda: {**log().main.intake.leases, **log().side.intake.leases, **slots().adopted()},
        # Workers look after what commands left behind: two publishers could leave an older policy as the last one.
        takes_ownerless=lambda: False,
        limits=RelayLimits(max_request_size=limits(shared.settings).max_output_bytes),
        hooks=shared.hooks,
    )


def _judged(store: Store, sentence: Callable[[RiskReport], str], gate: str) -> tuple[str | None, str | None]:
    report = store.monitoring.judged(gate, now=now())
    return (None, None) if report is None else (report.verdict, sentence(report))


def _nothing() -> None:
    """Nothing waits to be published."""
