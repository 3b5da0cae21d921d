"""What happened, for Prometheus. Every number of the catalogue has one method with a meaning here."""

import collections
import platform
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from importlib import metadata
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from streamer.calibration.threshold import THRESHOLD_STATES
from streamer.events import codes
from streamer.events.actions import REASONS
from streamer.events.cloudevents import exemplar
from streamer.gates.policy import Policy
from streamer.journal import (
    BatchDecision,
    DataGap,
    DeadLetter,
    Headers,
    LabelRevision,
    OutboxMessage,
    Outcome,
    OutcomeKind,
)
from streamer.scoring.unread_answers import RULES
from streamer.signing.policies import REFUSALS, Refusal
from streamer.telemetry.catalogue import (
    CATALOGUE,
    EXPECTED_STATUSES,
    JUDGE_RESULTS,
    MODEL_PARTS,
    PARTS,
    PREFIX,
    STAGES,
    MetricDefinition,
)
from streamer.tracing import NO_TRACING, Tracing

HOLD_REASONS = tuple(reason for reason in REASONS if reason != "scored")
"""Why a batch was held without a comparison with the threshold."""


DESK_OUTCOMES = ("released", "rejected", "expired")


class _Watched(Collector):
    """Encoder and judge count for themselves; their numbers are read when the metrics are collected."""

    NAMES = (
        *(f"streamer_{one}_total" for one in ("encoded_texts", "encoder_cache_hits")),
        *(f"streamer_{one}_{what}_total" for one in ("encoder", "judge") for what in ("tokens", "cost")),
        "streamer_judge_answers_total",
    )

    def __init__(self) -> None:
        self.of: dict[str, Callable[[], float]] = {}
        """By name; answers of the judge by result."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        for one in CATALOGUE:
            if one.name in self.NAMES:
                family = CounterMetricFamily(one.name.removesuffix("_total"), one.help, labels=one.labels)
                for values in [(result,) for result in JUDGE_RESULTS] if one.labels else [()]:
                    watched = self.of.get(*values or (one.name,))
                    family.add_metric(values, 0 if watched is None else watched())
                yield family


def register(registry: CollectorRegistry, definition: MetricDefinition) -> Counter | Gauge | Histogram:
    """Make a metric of the catalogue in a registry."""
    name, text, labels = definition.name, definition.help, definition.labels
    if definition.type == "counter":
        return Counter(name.removesuffix("_total"), text, labels, registry=registry)
    if definition.type == "histogram":
        return Histogram(name, text, labels, registry=registry, buckets=definition.buckets)
    return Gauge(name, text, labels, registry=registry)


def show(gauge: Any, value: float | None, *labels: str) -> None:
    """Show a gauge's value at these labels; None: show none."""
    if value is None:
        gauge.remove(*labels)
    else:
        gauge.labels(*labels).set(value)


class ServiceMetrics:
    """Metrics of some of `SERVICES`, in a registry of their own. Thread-safe; no call blocks or
    raises. `encoder` is the identity of the one that this process runs, for `build_info`;
    ``none`` for none."""

    def __init__(self, *, encoder: str = "none", services: Collection[str] = ("console",)) -> None:
        # A creation time beside every counter doubles the series and is in no catalogue.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation here
        self.registry = CollectorRegistry()
        self._of: dict[str, Any] = {
            d.name.removeprefix(PREFIX): register(self.registry, d)
            for d in CATALOGUE
            if {*services} & {*d.services} and d.name not in _Watched.NAMES
        }
        self._of["build_info"].labels(
            metadata.version("conformal-streamer"), platform.python_version(), encoder
        ).set(1)

    def exposition(self) -> bytes:
        """Render all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class RequestMetrics(ServiceMetrics):
    """Requests that a service answers by HTTP."""

    def open_metrics(self) -> bytes:
        """Render all metrics in the format OpenMetrics 1.0, which has exemplars."""
        rendered: bytes = openmetrics.generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return rendered

    def expect_requests(self, route: str) -> None:
        """Start the counters of a route's requests at zero."""
        for status in EXPECTED_STATUSES:
            self._of["http_requests_total"].labels(route, str(status))
        self._of["http_request_duration_seconds"].labels(route)

    def observe_request(
        self, route: str, status: int | None, seconds: float, exemplar: dict[str, str] | None = None
    ) -> None:
        """A request took so many seconds; `status` is None when nothing of an answer was sent."""
        self._of["http_requests_total"].labels(route, "none" if status is None else str(status)).inc()
        self._of["http_request_duration_seconds"].labels(route).observe(seconds, exemplar)


class Metrics(RequestMetrics):
    """All metrics of one worker or endpoint, which has metrics of its own beside a worker's.
    Implements `streamer.stream.hooks.StreamObserver`; the stream itself writes the log."""

    def __init__(
        self,
        *,
        encoder: str = "none",
        service: Literal["worker", "endpoint"] = "worker",
    ) -> None:
        super().__init__(encoder=encoder, services=("worker", service))
        self._watched = _Watched()
        self.registry.register(self._watched)
        self._children: dict[tuple[str, ...], Any] = {}
        self._kinds: dict[str, str] = {}
        self._desk_gates: set[str] = set()
        self._desk_counts: dict[tuple[str, str], int] = {}
        for code in codes.MEANINGS:
            self._of["dead_letters_total"].labels(code)
        for stage in STAGES:
            self._of["stage_duration_seconds"].labels(stage)
        for part in PARTS:
            self._of["part_reachable"].labels(part)

    # -- decisions ------------------------------------------------------------------------------------------

    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind]) -> None:
        """Count what was recorded; `kinds` says what each outcome became."""
        for outcome, kind in zip(outcomes, kinds, strict=True):
            self._count(outcome, kind)

    def _count(self, outcome: Outcome, kind: OutcomeKind) -> None:
        if isinstance(outcome, DeadLetter):
            self._count_dead_letter(outcome.code)
        elif isinstance(outcome, LabelRevision):
            if kind == "label":
                self._count_label(outcome.key.gate, outcome.kind)
            else:
                self._count_dead_letter(codes.UNKNOWN_GATE)
        elif kind == "conflict":
            self._count_dead_letter(codes.CONFLICTING_CONTENT)
        elif kind == "duplicate":
            self._of["duplicates_total"].labels(outcome.key.gate).inc()
        elif isinstance(outcome, BatchDecision):
            self._count_decision(outcome)

    def _count_dead_letter(self, code: str) -> None:
        self._of["dead_letters_total"].labels(code).inc()

    def _count_label(self, gate: str, kind: str) -> None:
        # Publishers of labels choose the kind: only the gate's own may become a label value.
        known = kind if kind == self._kinds.get(gate) else "other"
        self._of["labels_total"].labels(gate, known).inc()

    def _count_decision(self, decision: BatchDecision) -> None:
        gate = decision.key.gate
        self._child("batches_total", gate, decision.outcome, decision.reason).inc()
        for rule in {one.not_read for one in decision.responses if one.not_read}:
            self._child("batches_not_read_total", gate, rule).inc()
        for action, number in collections.Counter(one.action for one in decision.responses).items():
            self._child("responses_total", gate, action).inc(number)
        observe = self._child("response_score", gate).observe
        for response in decision.responses:
            if response.score is not None:
                observe(response.score)
        if decision.sampled:
            self._child("audit_sampled_batches_total", gate).inc()

    def _child(self, name: str, *labels: str) -> Any:
        """The metric with these labels, which the library would look up under a lock; for those that are never removed."""
        found = self._children.get((name, *labels))
        if found is None:
            found = self._children[name, *labels] = self._of[name].labels(*labels)
        return found

    def observe_policy(self, policy: Policy) -> None:
        """Show the policy that a gate decides with from now on; its counters start at zero."""
        gate, settings = policy.gate, policy.settings
        self._of["policy_version"].labels(gate).set(policy.version)
        self._of["policy_alpha_ratio"].labels(gate).set(settings.alpha)
        self._of["policy_activated_timestamp_seconds"].labels(gate).set(policy.valid_from.timestamp())
        for state in THRESHOLD_STATES:
            self._of["policy_state"].labels(gate, state).set(state == policy.state)
        show(self._of["policy_lambda_ratio"], policy.threshold, gate)
        batches = self._of["batches_total"]
        for outcome, reason in (
            ("ship", "scored"),
            (settings.hold_action, "scored"),
            *((settings.hold_action, reason) for reason in HOLD_REASONS),
            *((("mixed", "scored"),) if settings.unit == "response" else ()),
        ):
            batches.labels(gate, outcome, reason)
        for action in ("ship", settings.hold_action):
            self._of["responses_total"].labels(gate, action)
        for rule in RULES if settings.embeds else ():
            self._of["batches_not_read_total"].labels(gate, rule)
        for name in ("duplicates_total", "audit_sampled_batches_total", "response_score"):
            self._of[name].labels(gate)
        for refusal in REFUSALS:
            self._of["policies_refused_total"].labels(gate, refusal)
        self._kinds[gate] = settings.severity_kind
        for kind in (settings.severity_kind, "other"):
            self._of["labels_total"].labels(gate, kind)

    def count_refused_policy(self, gate: str, reason: Refusal) -> None:
        """A policy of a gate in the record is not obeyed, for one of `REFUSALS`."""
        self._of["policies_refused_total"].labels(gate, reason).inc()

    def count_rejected_policy_event(self) -> None:
        """A message on the thresholds topic was not valid and changed nothing."""
        self._of["policy_events_rejected_total"].inc()

    # -- the way through a worker ---------------------------------------------------------------------------

    def stage(self, stage: str, seconds: float) -> None:
        """Record how long one group took in `stage`, one of `STAGES`."""
        self._of["stage_duration_seconds"].labels(stage).observe(seconds)

    def acknowledged(self, seconds: float, headers: Headers) -> None:
        """Record an action's latency from its input record's timestamp, with the trace that its headers carry.

        A clock that runs ahead of the broker's would make that negative; it counts as 0.
        """
        self._of["end_to_end_latency_seconds"].observe(max(0.0, seconds), exemplar(headers))

    def parked(self, message: OutboxMessage, error: str) -> None:
        """Count a message that was set aside because the broker will never accept it."""
        self._of["outbox_parked_total"].inc()

    def set_outbox_pending(self, messages: int) -> None:
        """Set how many outbox messages wait to be published."""
        self._of["outbox_pending"].set(messages)

    def set_desk_queues(self, queues: Mapping[str, tuple[int, float]]) -> None:
        """Set how many batches wait at the desk, and seconds since the oldest was held, by gate; 0 at all other gates."""
        self._desk_gates |= queues.keys()
        for gate in self._desk_gates:
            waiting, oldest = queues.get(gate, (0, 0.0))
            self._of["desk_waiting"].labels(gate).set(waiting)
            self._of["desk_oldest_seconds"].labels(gate).set(oldest)

    def set_desk_outcomes(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set how many batches were ever released, rejected or expired at the desk, by gate and word."""
        for gate in self._desk_gates:
            for outcome in DESK_OUTCOMES:  # from zero, so that the first one is seen as a rise
                self._of["desk_outcomes_total"].labels(gate, outcome)
        for (gate, outcome), number in counts.items():
            counter = self._of["desk_outcomes_total"].labels(gate, outcome)
            before = self._desk_counts.get((gate, outcome), 0)
            if number > before:
                counter.inc(number - before)
                self._desk_counts[gate, outcome] = number

    def lag(self, topic: str, partition: int, records: int) -> None:
        """Set how many records of a partition wait after the last committed one."""
        self._of["consumer_lag_records"].labels(topic, str(partition)).set(records)

    def set_log_leaves(self, topic: str, partition: int, entries: int) -> None:
        """Set how many entries the Merkle log of a partition has."""
        self._of["audit_log_leaves"].labels(topic, str(partition)).set(entries)

    def released(self, topic: str, partition: int) -> None:
        """Another worker has this partition now: its gauges are no longer ours to show."""
        for name in ("consumer_lag_records", "audit_log_leaves"):
            self._of[name].remove(topic, str(partition))

    def gap(self, gap: DataGap) -> None:
        """Count that the broker had deleted records before they were read."""
        self._of["data_gaps_total"].inc()

    def part(self, part: str, reachable: bool) -> None:
        """Show whether a part answers, where it is one that the catalogue knows."""
        if part in (*PARTS, *MODEL_PARTS):
            self._of["part_reachable"].labels(part).set(reachable)

    def lane(self, topic: str, partition: int | None, stuck: str | None) -> None:
        """Messages for a topic (or one partition of it) cannot be published, or can again."""
        of_lane = "all" if partition is None else str(partition)
        self._of["relay_lane_stuck"].labels(topic, of_lane).set(stuck is not None)

    def reset(self, reason: str) -> None:
        """Count that the reader was set back because a record that was due had not arrived."""
        self._of["reader_resets_total"].inc()

    # -- requests -------------------------------------------------------------------------------------------

    def cached_replies(self, gate: str) -> Callable[[float], None]:
        """Return what counts replies of a gate's upstream that a cache had; for an endpoint alone."""
        counter = self._of["upstream_cached_replies_total"].labels(gate)
        return lambda replies: counter.inc(replies)

    def watch_judge(
        self,
        results: Mapping[str, Callable[[], float]],
        tokens: Callable[[], float],
        cost: Callable[[], float],
    ) -> None:
        """Read the running counts of the judge of gates' scores, since the process started,
        whenever the metrics are collected; answers by each of `JUDGE_RESULTS`."""
        totals = {"streamer_judge_tokens_total": tokens, "streamer_judge_cost_total": cost}
        self._watched.of |= {**results, **totals}

    def watch_encoder(
        self,
        encoded: Callable[[], int],
        cache_hits: Callable[[], int],
        tokens: Callable[[], int] = lambda: 0,
        cost: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Read the encoder's running counts, since the process started, whenever the metrics are
        collected: texts encoded, and answered from the cache; of one at an endpoint, tokens and
        cost."""
        self._watched.of |= zip(_Watched.NAMES, (encoded, cache_hits, tokens, cost), strict=False)


NO_ROUTE: Final = "none"
"""The route of requests to unknown addresses."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def measured(app: Any, requests: RequestMetrics, tracing: Tracing = NO_TRACING) -> ASGIApp:
    """Return a Starlette application, whose requests are reported to both."""
    for route in (*(_template(one) for one in app.routes), NO_ROUTE):
        requests.expect_requests(route)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None

        async def watched(message: Scope) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with tracing.request(scope) as answered:
            try:
                await app(scope, receive, watched)
            finally:
                route = scope.get("route")
                trace = exemplar(
                    tuple(("traceparent", text) for name, text in scope["headers"] if name == b"traceparent")
                )
                requests.observe_request(_template(route), status, time.perf_counter() - began, trace)
                answered(None if route is None else _template(route), status)

    return run


def _template(route: Any) -> str:
    return str(getattr(route, "path_format", NO_ROUTE))
