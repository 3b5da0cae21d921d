"""The HTTP service from settings: two lanes over one store, the application, and, with Kafka, a relay."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from socket import socket
from typing import Any

from streamer.deciding.decider import BatchDecider
from streamer.deciding.measuring import best_score
from streamer.errors import Unavailable, UsageError
from streamer.events.topics import HTTP_LOG
from streamer.failpoints import from_environment
from streamer.gates.settings import GateSettings
from streamer.labels.llm.record import Choice
from streamer.security.api_keys import KeyRing, RateLimits
from streamer.serving.app import OfGates, serving_app
from streamer.serving.authorize import Authorize
from streamer.serving.chat.counter import ChatCounter
from streamer.serving.chat.sampler import Sampler
from streamer.serving.lane import Lane, LaneLimits, PendingAnswers, ServiceHealth
from streamer.serving.releases import Releases
from streamer.serving.request_log import RequestLog
from streamer.serving.service import STOP_SECONDS, Service
from streamer.serving.slots import Slots, partitions_of
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.stream.connection import KafkaConnection
from streamer.stream.ending import Ending, StopDeadline, WorkerHalted
from streamer.stream.hooks import Hooks
from streamer.stream.relay import Relay
from streamer.stream.relay_lane import RelayLimits
from streamer.telemetry.metrics import measured
from streamer.web.server import base_url, listen, server
from streamer.wiring.parts import connection, limits, now, topics
from streamer.wiring.process import Begun, settle_memory
from streamer.wiring.upstreams import upstreams
from streamer.wording.verdicts import sentence
from streamer_client.loopback import is_loopback

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
    announce: Callable[[Mapping[str, object]], None],
) -> int:
    """Serve until asked to stop, and return the process's exit status; the process must then end.

    `kafka` : publish what is decided. `wait` : seconds that a request may take, > 0. `announce` gets the addresses once they are
    known, before the service is ready.

    Raises `UsageError` where the address is another machine's way in and there is no key, or it cannot be listened on; the
    database is not migrated; no broker is configured; or an upstream's key or package is missing.
    """
    behind, broker = upstreams(settings), connection(settings) if kafka else None
    ending = Ending(deadline=StopDeadline())
    with ExitStack() as stack:
        served = _Served(stack, settings, broker)
        samplers = {
            gate: Sampler(
                one,
                max_text_bytes=limits(settings).max_text_bytes,
                count_cached=served.metrics.cached_replies(gate),
                tracing=served.tracing,
            )
            for gate, one in behind.items()
        }
        ring = served.at_last(partial(_keys, served.store, host))
        listening = stack.enter_context(listen(host, port, what="requests"))
        announce(
            {
                "endpoint": base_url(host, listening).rstrip("/"),
                "http": served.http.url,
                "encoder": served.encoder_id,
                "broker": "none" if broker is None else broker.bootstrap,
                "upstreams": ", ".join(f"{gate}: {one.upstream.id}" for gate, one in samplers.items())
                or "none",
            }
        )
        served.load()
        with suppress(Unavailable):
            ring.refresh()  # loading may take longer than what was read of the keys is trusted
        served.keep_house(ring.refresh)
        served.begin_log()
        authorize = Authorize(ring, RateLimits(), listening=host, clock=now, monotonic=time.monotonic)
        app, chat, releases = served.application(samplers, authorize, wait)
        service = served.service(app, ending, cut_off=partial(_cut_off, chat, releases))
        settle_memory()
        try:
            asyncio.run(_run(service, listening, chat))
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


class _Served(Begun):
    """What decides, here for requests: two lanes over one store and a slot of the log `http`; with a broker, a relay."""

    health: ServiceHealth
    log: RequestLog
    slots: Slots

    def __init__(self, stack: ExitStack, settings: Settings, broker: KafkaConnection | None) -> None:
        self.answers = PendingAnswers()
        essential = [] if broker is None else [topics(settings).actions]
        super().__init__(
            stack,
            settings,
            lambda metrics: ServiceHealth(self.answers, metrics, essential=essential),
            part="service",
            service="endpoint",
            traced="serve",
            publish=broker is not None,
        )
        self._broker = broker
        self.hooks = Hooks(observer=self.health, failpoint=from_environment(), tracing=self.tracing)
        self.threads: dict[str, Executor] = {}
        for name in ("score", "commit", "side-score", "side-commit", "lease", "relay", "read"):
            workers = _READERS if name == "read" else 1
            pool = ThreadPoolExecutor(workers, thread_name_prefix=f"streamer-{name}")
            self.threads[name] = pool
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)

    def begin_log(self) -> None:
        """Lease a slot, and make the log of requests that it numbers, the relay with it; after `load`."""
        self.relay = None if self._broker is None else self._relay(self._broker)
        wake = _nothing if self.relay is None else self.relay.wake
        number, own = self.at_last(self.store.leases.free_slot)
        self.slots = Slots(
            number,
            own,
            lease=self.store.leases.of_slot,
            waiting=None if self.relay is None else partial(self.store.waiting_partitions, HTTP_LOG),
            journal=self.store,
            executor=self.threads["lease"],
            wake=wake,
        )
        self._stack.callback(self.slots.release)
        main, prepare = self.begin_deciding()
        self.log = RequestLog(
            main=self._lane(main, wake, "", prepare=prepare),
            side=self._lane(self.decider(encoder=None), wake, "side-"),
            book=self.book,
            actions=self.store,
            labels=self.store.labels,
            judges=partial(_judged, self.store),
            partitions=partitions_of(number),
            reachable=lambda: self.slots.mine() and self.health.reachable("database", "decider"),
            executor=self.threads["read"],
        )

    def _lane(self, decider: BatchDecider, wake: Callable[[], None], threads: str, **more: Any) -> Lane:
        """One of the two lanes; `threads` : what its threads are called before what they do."""
        endpoint, worker = self.settings.endpoint, self.settings.worker
        return Lane(
            decider,
            journal=self.store,
            limits=LaneLimits(
                max_waiting=endpoint.max_waiting,
                max_waiting_bytes=endpoint.max_waiting_bytes,
                max_commit_records=worker.commit_max_records,
                max_commit_bytes=worker.commit_max_bytes,
            ),
            hooks=self.hooks,
            answers=self.answers,
            health=self.health,
            on_commit=wake,
            score_executor=self.threads[f"{threads}score"],
            executor=self.threads[f"{threads}commit"],
            **more,
        )

    def _relay(self, broker: KafkaConnection) -> Relay:
        return Relay(
            broker,
            self.store,
            executor=self.threads["relay"],
            sources=lambda: {
                **self.log.main.intake.leases, **self.log.side.intake.leases, **self.slots.adopted(),
            },
            # Workers look after what commands left behind: two publishers could leave an older policy as the last one.
            takes_ownerless=lambda: False,
            limits=RelayLimits(max_request_size=limits(self.settings).max_output_bytes),
            hooks=self.hooks,
        )  # fmt: skip

    def application(
        self, samplers: Mapping[str, Sampler], authorize: Authorize, wait: float
    ) -> tuple[Any, ChatCounter, Releases]:
        """Make the application, with what counts chats and what waits for releases."""
        asked, bounds = self.settings.endpoint, limits(self.settings)
        chat = ChatCounter(
            self.log,
            samplers,
            best_score=self._best_score,
            limits=bounds,
            most=asked.max_waiting,
            most_bytes=asked.max_waiting_bytes,
        )
        releases = Releases(self.store.desk, executor=self.threads["read"], most=asked.max_waiting)
        gates = OfGates(
            request_log=self.log,
            limits=bounds,
            longest=wait,
            clock=now,
            authorize=authorize,
            releases=releases,
        )
        return serving_app(gates, chat, origins=asked.cors_origins), chat, releases

    async def _best_score(self, settings: GateSettings, answers: Sequence[Choice]) -> float:
        texts = [answer.text for answer in answers]
        both = (self.encoder, self.candidate_encoder)
        encoder = next((one for one in both if one is not None and one.identity.id == settings.encoder), None)
        return await asyncio.get_running_loop().run_in_executor(
            self.threads["score"], best_score, settings, texts, encoder, [one.logprob for one in answers]
        )

    def service(self, app: Any, ending: Ending, *, cut_off: Callable[[], None]) -> Service:
        """Put the service together that serves an application."""
        endpoint = self.settings.endpoint
        return Service(
            request_log=self.log,
            journal=self.store,
            slots=self.slots,
            answers=self.answers,
            server=server(
                measured(app, self.metrics, self.tracing),
                signals=False,
                stop_seconds=STOP_SECONDS,
                idle_seconds=_IDLE_SECONDS,
                most=endpoint.max_connections,
                most_of_one=endpoint.max_connections_per_address,
            ),
            relay=self.relay,
            health=self.health,
            hooks=self.hooks,
            ending=ending,
            executor=self.threads["lease"],
            cut_off=cut_off,
        )


def _keys(store: Store, host: str) -> KeyRing:
    ring = KeyRing(store.api_keys.list, monotonic=time.monotonic)
    ring.refresh()
    if not is_loopback(host) and ring.is_empty():
        raise UsageError(
            f"on {host} anyone could decide, label and read, for there is no key yet; make one (`streamer key create`), "
            "or serve on 127.0.0.1"
        )
    return ring


def _cut_off(chat: ChatCounter, releases: Releases) -> None:
    chat.cut_off()
    releases.end()


async def _run(service: Service, listening: socket, chat: ChatCounter) -> None:
    try:
        await service.run([listening])
    finally:
        await chat.close()


def _judged(store: Store, gate: str) -> tuple[str | None, str | None]:
    report = store.monitoring.judged(gate, now=now())
    return (None, None) if report is None else (report.verdict, sentence(report))


def _nothing() -> None:
    """Nothing waits to be published."""
