"""What a worker and the HTTP service are both made of: policies, encoders, metrics and health, small chores."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, Literal

from streamer.collector import look_as_usual
from streamer.deciding.decider import BatchDecider
from streamer.deciding.policy_book import PolicyBook, TrustedPolicies
from streamer.deciding.reading_ahead import reading_ahead
from streamer.events.alerts import AlertsV1, alert
from streamer.gates.settings import NO_ENCODER
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.scoring.encoders.endpoint_encoder import EndpointEncoder
from streamer.settings.settings import Settings
from streamer.signing.policies import REFUSAL_TEXTS, Refusal
from streamer.store import Store
from streamer.stream.health import WorkerHealth
from streamer.stream.housekeeping import Housekeeping
from streamer.stream.intake import Prepare
from streamer.stream.log_limits import limit_client_logs
from streamer.telemetry.exporting import tracing as as_environment_says
from streamer.telemetry.http import TelemetryServer
from streamer.telemetry.metrics import Metrics
from streamer.tracing import Tracing
from streamer.wiring.configured_judge import judge_scores
from streamer.wiring.encoders import encoder, encoder_identity, load_candidate_encoder
from streamer.wiring.keys import policy_keys
from streamer.wiring.parts import limits, now, open_store, topics, when_available

_ROUNDS_PER_COUNT = 15
"""Rounds of housekeeping from one count of all outcomes at the desk to the next."""


class Begun:
    """What decides, as far as it is begun: metrics and health, the store, and after `load` what it decides with.

    `stack` ends it. `part` : what the process is called in its health, and `traced` in traces. Raises `UsageError`.
    """

    def __init__(
        self,
        stack: ExitStack,
        settings: Settings,
        health_of: Callable[[Metrics], WorkerHealth],
        *,
        part: str,
        service: Literal["worker", "endpoint"] = "worker",
        traced: str = "worker",
        publish: bool = True,
    ) -> None:
        self.settings, self._stack, self._loaded = settings, stack, threading.Event()
        self._identity = None if settings.encoder.name == NO_ENCODER else encoder_identity(settings)
        self.encoder_id = NO_ENCODER if self._identity is None else self._identity.id
        self.metrics = Metrics(encoder=self.encoder_id, service=service)
        self.health = health_of(self.metrics)
        self.http = stack.enter_context(self._telemetry(part))
        self.tracing = stack.enter_context(tracing(traced))
        self.at_last = partial(when_available, report_status=self.health.part)
        self.store: Store = stack.enter_context(self.at_last(partial(open_store, settings, publish=publish)))
        if self._identity is not None:
            self.at_last(partial(self.store.encoders.register, self._identity))
        self.book = self._policy_book()

    def load(self) -> None:
        """Read the policies and load the encoders, which takes seconds: `encoder`, and beside it `candidate_encoder`."""
        self.at_last(self.book.refresh)
        self.encoder = self._shown_encoder()
        self.candidate_encoder = load_candidate_encoder(self.settings, in_worker=True)
        if self.candidate_encoder is not None:
            self.at_last(partial(self.store.encoders.register, self.candidate_encoder.identity))

    def decider(self, **by: Any) -> BatchDecider:
        """Make what decides by these, such as `encoder`."""
        return BatchDecider(
            book=self.book,
            known=self.store.known,
            topics=topics(self.settings),
            limits=limits(self.settings),
            clock=now,
            tracing=self.tracing,
            candidate_seconds=self.settings.worker.candidate_wait_seconds,
            **by,
        )

    def begin_deciding(self) -> tuple[BatchDecider, Prepare | None]:
        """Make what decides by all that is loaded, and what begins with each record before; after `load`."""
        judge = self._stack.enter_context(judge_scores(self.settings, self.metrics, self.tracing))
        made = self.decider(encoder=self.encoder, judge=judge, candidate_encoder=self.candidate_encoder)
        return made, self._stack.enter_context(reading_ahead(made, self.encoder))

    def keep_house(self, chore: Callable[[], None]) -> None:
        """Call the process ready as far as loading goes, and begin its chores, `chore` among them."""
        self._loaded.set()
        self._stack.enter_context(
            Housekeeping(
                self.store.policies.chain_closings,
                chore,
                partial(self._at_the_desk, count()),
                self._show_figures,
                seldom=self.book.refresh,  # in case the thresholds topic was unavailable or lost
            )
        )

    def _telemetry(self, part: str) -> TelemetryServer:
        health, loading = self.health, "the encoder is being loaded"

        def unready() -> list[str]:
            return (
                health.unready() if self._loaded.is_set() or not health.reachable("database") else [loading]
            )

        return TelemetryServer(
            self.metrics.exposition,
            alive=lambda: {} if health.alive else {part: "stopping"},
            ready=unready,
            stuck=health.stuck,
            open_metrics=self.metrics.open_metrics,
            **self.settings.http.model_dump(),
        )

    def _policy_book(self) -> PolicyBook:
        """The newest policies that the settings' keys trust; empty before it is refreshed."""
        return PolicyBook(
            TrustedPolicies(
                self.store.policies.versions,
                self.store.policies.before,
                policy_keys(self.settings),
                on_refused=lambda gate, _version, reason: self.metrics.count_refused_policy(gate, reason),
                raise_alert=partial(_raise_refused_policy, self.store.alerts.raise_),
                now=now,
            ),
            limits=limits(self.settings),
            on_change=lambda active: self.metrics.observe_policy(active.policy),
            on_rejected=lambda _code: self.metrics.count_rejected_policy_event(),
        )

    def _shown_encoder(self) -> CachedEncoder | None:
        """The settings' encoder, its figures shown among the metrics; None where they name none."""
        cached = encoder(self.settings, in_worker=True, report_status=partial(self.health.part, "encoder"))
        if cached is None:
            return None
        counts = (lambda: cached.encoded_texts, lambda: cached.cache_hits)
        asked = cached.encoder
        if isinstance(asked, EndpointEncoder):
            self.metrics.watch_encoder(*counts, lambda: asked.tokens, lambda: float(asked.cost or 0))
        else:
            self.metrics.watch_encoder(*counts)
        return cached

    def _show_figures(self) -> None:
        """Show what only SQL knows."""
        self.metrics.set_outbox_pending(self.store.reports.outbox_pending())
        for partition, height in self.store.reports.log_sizes().items():
            # The others belong to other workers, or to an earlier log with the same names.
            if self.health.reads(partition):
                self.metrics.set_log_leaves(partition.topic, partition.number, height)

    def _at_the_desk(self, rounds: Iterator[int]) -> None:
        """Reject what is overdue; show what waits and, less often, what became of the rest."""
        self.store.desk.reject_overdue(self.store.leases.of_desk())
        present, queues = now(), self.store.desk.queues().items()
        waiting = {
            gate: (one.waiting, max(0.0, (present - one.oldest).total_seconds())) for gate, one in queues
        }
        self.metrics.set_desk_queues(waiting)
        if next(rounds) % _ROUNDS_PER_COUNT == 0:
            self.metrics.set_desk_outcomes(self.store.desk.counts())


def settle_memory() -> None:
    """Spare the collector what the process has loaded: looking through it took 118 ms, in which nothing else goes on."""
    gc.collect()
    gc.freeze()
    look_as_usual()


@contextmanager
def tracing(service: str) -> Iterator[Tracing]:
    """Trace what the process does, where OpenTelemetry's environment variables ask for it."""
    with as_environment_says(service, os.environ) as found:
        limit_client_logs()
        yield found


def _raise_refused_policy(
    raise_: Callable[[AlertsV1], bool], gate: str, version: int, reason: Refusal, kept: int | None
) -> None:
    """Raise the alert; however many workers refuse a policy, and however often they start, it is raised once."""
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
