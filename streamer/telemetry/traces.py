"""Spans and events of decisions, by OpenTelemetry: a span for each record and, inside it, one for each stage.

How a record goes its way follows the conventions for messaging: a span for each message, whose parent is the context that
came with it (and which links to it), because whoever follows a trace asks for one decision. Records share the work of a
group; `streamer.group.records` says how many. What becomes of a decision is an event of the conventions for generative AI,
``gen_ai.evaluation.result``, and stands on the span ``gate`` too. No text of a prompt or an answer is in either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec
from urllib.parse import urlsplit

import structlog
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from streamer.events.cloudevents import trace_context
from streamer.events.topics import HTTP_LOG
from streamer.gates.gate import mean_score
from streamer.journal import (
    BatchDecision,
    DeadLetter,
    Headers,
    OutboxMessage,
    Outcome,
    OutcomeKind,
    Partition,
    Record,
)
from streamer.tracing import Answered, Call

Emit = Callable[[str, Mapping[str, Any], Context], None]


log = structlog.get_logger(__name__)
P = ParamSpec("P")

EVALUATION: Final = "gen_ai.evaluation.result"

_TRACE: Final = (b"traceparent", b"tracestate")
_METHODS: Final = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
_PORTS: Final = {"http": 80, "https": 443}
_LONGEST: Final = 256
"""Characters of a text that came from outside."""

_SCORED: Final[ContextVar[tuple[Link, ...]]] = ContextVar("scored", default=())
"""The records that calls are about, where there are several."""

_SENT: Final = {
    "n": "gen_ai.request.choice.count",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
}


@dataclass(slots=True)
class _Journey:
    """A record on its way: its span, the context of what happens inside, and when its present stage began."""

    span: Span
    context: Context
    mark: int


def _harmless(record: Callable[Concatenate[Traces, P], None]) -> Callable[Concatenate[Traces, P], None]:
    """Let a record go on that cannot be traced, as with a sampler of somebody's own that fails."""

    @wraps(record)
    def guarded(self: Traces, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            record(self, *args, **kwargs)
        except Exception:
            if not self.failed:
                self.failed = True
                log.warning("telemetry.trace_failed", detail="said once; there may be more", exc_info=True)

    return guarded


class Traces:
    """Records spans and events by OpenTelemetry. Implements `streamer.tracing.Tracing`.

    The tracer's sampler decides which spans are kept, and the others leave nothing. `emit` takes an
    event, its attributes and its context; None: there are no events. Of more than `capacity`
    records under way the oldest are forgotten: those of a group that nobody finished. `failed`:
    something of a record could not be traced.
    """

    def __init__(self, tracer: Tracer, emit: Emit | None = None, *, capacity: int = 20_000) -> None:
        self._tracer = tracer
        self._emit = emit
        self.failed = False
        self._capacity = capacity
        self._w3c = TraceContextTextMapPropagator()
        self._journeys: dict[tuple[Partition, int], _Journey] = {}
        self._lock = threading.Lock()

    # -- requests -------------------------------------------------------------------------------------------

    @contextmanager
    def request(self, scope: MutableMapping[str, Any]) -> Iterator[Answered]:
        """Keep a span of the server, which is the parent of what is recorded inside."""
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        received = tuple(
            (name.decode("latin-1"), value) for name, value in scope["headers"] if name in _TRACE
        )
        name = "HTTP" if method == "_OTHER" else method
        attributes = {
            "http.request.method": method,
            "url.path": _text(scope["path"]),
            "url.scheme": scope.get("scheme", "http"),
        }
        span = self._tracer.start_span(
            name, self._received(received), kind=SpanKind.SERVER, attributes=attributes
        )
        context = set_span_in_context(span, Context())
        own = [(name.encode(), value) for name, value in self._headers(context)]
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in _TRACE] + own

        def answered(route: str | None, status: int | None) -> None:
            if route is not None:
                span.set_attribute("http.route", route)
                span.update_name(f"{name} {route}")
            if status is not None:
                span.set_attribute("http.response.status_code", status)
            if status is None or status >= 500:
                _failed(span, "_OTHER" if status is None else str(status))

        token = attach(context)
        try:
            yield answered
        finally:
            detach(token)
            span.end()

    # -- language models ------------------------------------------------------------------------------------

    @contextmanager
    def call(self, base_url: str, parameters: Mapping[str, object]) -> Iterator[Call]:
        """Keep a span of the client inside the present one, or of its own where several records are about to be scored."""
        where, model = urlsplit(base_url), _text(str(parameters.get("model", "")))
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            # Of whoever's protocol it is; the model and the address say whose service.
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": model,
            "server.address": where.hostname or "",
            "server.port": where.port or _PORTS.get(where.scheme, 0),
        } | {
            name: value
            for sent, name in _SENT.items()
            if isinstance(value := parameters.get(sent), int | float)
        }
        span = self._tracer.start_span(
            f"chat {model}", kind=SpanKind.CLIENT, attributes=attributes, links=_SCORED.get()
        )

        def ended(
            *,
            model: str | None,
            finish_reasons: Sequence[str | None],
            tokens: tuple[int, int] | None,
            problem: str | None,
        ) -> None:
            if model is not None:
                span.set_attribute("gen_ai.response.model", _text(model))
            if finish_reasons:
                span.set_attribute(
                    "gen_ai.response.finish_reasons", [_text(reason or "") for reason in finish_reasons]
                )
            if tokens is not None:
                span.set_attribute("gen_ai.usage.input_tokens", tokens[0])
                span.set_attribute("gen_ai.usage.output_tokens", tokens[1])
            if problem is not None:
                _failed(span, problem)

        with _present(span, set_span_in_context(span)):
            yield ended

    @contextmanager
    def calibration(self, gate: str) -> Iterator[Callable[[str], None]]:
        """Keep a span for a run of the recalibrator."""
        span = self._tracer.start_span("recalibrate", Context(), attributes={"streamer.gate": gate})
        with _present(span, set_span_in_context(span, Context())):
            yield lambda outcome: span.set_attribute("streamer.outcome", outcome)

    def outgoing(self) -> Mapping[str, str] | None:
        """Return the headers of the present span."""
        carrier: dict[str, str] = {}
        self._w3c.inject(carrier)
        return carrier

    # -- records --------------------------------------------------------------------------------------------

    @_harmless
    def begin(self, records: Sequence[Record]) -> None:
        """Begin the span of each, where it is not under way."""
        now = time.time_ns()
        for record in records:
            place = (record.partition, record.offset)
            with self._lock:
                journey = self._journeys.get(place)
            if journey is None:
                journey = self._start(record, now)
                with self._lock:
                    self._journeys[place] = journey
                    if len(self._journeys) > self._capacity:
                        del self._journeys[next(iter(self._journeys))]
            journey.mark = now

    @contextmanager
    def scoring(self, records: Sequence[Record]) -> Iterator[None]:
        """Keep a span ``score`` for each.

        A call inside is a child of the only record's span; of several it links to all, for a judge is asked about them together.
        Spans that are not kept do not count, unless none is.
        """
        began = time.time_ns()
        under_way = [journey for record in records if (journey := self._journey(record)) is not None]
        about = [one for one in under_way if one.span.is_recording()] or under_way[:1]
        several = len(about) > 1
        links = _SCORED.set(tuple(Link(one.span.get_span_context()) for one in about) if several else ())
        token = attach(Context() if several or not about else about[0].context)
        try:
            yield
        finally:
            detach(token)
            _SCORED.reset(links)
            now = time.time_ns()
            for record in records:
                journey = self._journey(record)
                if journey is not None:
                    self._stage(journey, "score", began, now, {"streamer.group.scored": len(records)})
                    journey.mark = now

    def context(self, record: Record) -> Headers:
        """Return the headers of the record's span; those that came with it where nobody began it."""
        journey = self._journey(record)
        return record.headers if journey is None else self._headers(journey.context)

    @_harmless
    def decided(self, outcomes: Sequence[Outcome]) -> None:
        """Keep a span ``gate`` for each decision."""
        now = time.time_ns()
        for outcome in outcomes:
            if isinstance(outcome, BatchDecision):
                journey = self._journey(outcome.record)
                if journey is not None and journey.span.is_recording():
                    self._stage(journey, "gate", journey.mark, now, decision_attributes(outcome))

    @_harmless
    def committed(self, outcomes: Sequence[Outcome], kinds: Sequence[OutcomeKind], *, seconds: float) -> None:
        """Keep a span ``commit`` for each, record what was decided, and end the records' spans."""
        now = time.time_ns()
        for outcome, kind in zip(outcomes, kinds, strict=True):
            journey = None if outcome.record is None else self._end(outcome.record)
            if journey is None:
                continue
            span = journey.span
            if span.is_recording():
                self._stage(journey, "commit", now - int(seconds * 1e9), now, {})
                span.set_attributes({"streamer.outcome": kind, "streamer.group.records": len(outcomes)})
                if isinstance(outcome, DeadLetter):
                    _failed(span, outcome.code)  # what it says of it may quote it
                else:
                    key = outcome.key
                    span.set_attributes({"streamer.gate": key.gate, "streamer.batch_id": _text(key.batch_id)})
                if isinstance(outcome, BatchDecision) and kind == "decision":
                    span.set_attribute("streamer.action", outcome.outcome)
                    if self._emit is not None:
                        about = decision_attributes(outcome)
                        for evaluation in evaluations(outcome):
                            self._emit(EVALUATION, about | evaluation, journey.context)
            span.end(now)

    @_harmless
    def dropped(self, records: Sequence[Record]) -> None:
        """End the records' spans."""
        for record in records:
            journey = self._end(record)
            if journey is not None:
                _failed(journey.span, "lease_lost")
                journey.span.end()

    @_harmless
    def published(self, messages: Sequence[OutboxMessage], *, seconds: float) -> None:
        """Keep a span of the client for each message that carries a trace."""
        now = time.time_ns()
        for message in messages:
            parent = self._received(message.headers)
            if not get_current_span(parent).get_span_context().is_valid:
                continue
            span = self._tracer.start_span(
                f"publish {message.topic}",
                parent,
                kind=SpanKind.CLIENT,
                attributes=_messaging("publish", "send", message.topic)
                | {"streamer.group.records": len(messages)},
                links=(Link(get_current_span(parent).get_span_context()),),
                start_time=now - int(seconds * 1e9),
            )
            span.end(now)

    # -- how ------------------------------------------------------------------------------------------------

    def _start(self, record: Record, now: int) -> _Journey:
        parent = self._received(record.headers)
        topic, number = record.partition.topic, record.partition.number
        links: tuple[Link, ...] = ()
        if record.partition.log_id == HTTP_LOG:  # the parent is a span of this process
            attributes: dict[str, Any] = {"streamer.partition": number, "streamer.offset": record.offset}
            kind = SpanKind.INTERNAL
        else:
            attributes = _messaging("process", "process", topic) | {
                "messaging.destination.partition.id": str(number),
                "messaging.kafka.offset": record.offset,
            }
            came_with = get_current_span(parent).get_span_context()
            kind = SpanKind.CONSUMER
            links = (Link(came_with),) if came_with.is_valid else ()
        span = self._tracer.start_span(
            f"process {topic}", parent, kind=kind, attributes=attributes, links=links, start_time=now
        )
        return _Journey(span, set_span_in_context(span, Context()), now)

    def _stage(
        self, journey: _Journey, name: str, began: int, ended: int, attributes: Mapping[str, Any]
    ) -> None:
        if journey.span.is_recording():
            inside = self._tracer.start_span(
                name, journey.context, attributes=dict(attributes), start_time=began
            )
            inside.end(ended)

    def _journey(self, record: Record) -> _Journey | None:
        with self._lock:
            return self._journeys.get((record.partition, record.offset))

    def _end(self, record: Record) -> _Journey | None:
        with self._lock:
            return self._journeys.pop((record.partition, record.offset), None)

    def _received(self, headers: Headers) -> Context:
        """The context that came with these, empty where none did; never that of the task that happens to run."""
        carrier = {
            name: value.decode("latin-1") for name, value in trace_context(headers) if value is not None
        }
        return self._w3c.extract(carrier, Context()) if carrier else Context()

    def _headers(self, context: Context) -> Headers:
        carrier: dict[str, str] = {}
        self._w3c.inject(carrier, context)
        return tuple((name, value.encode("latin-1")) for name, value in carrier.items())


def decision_attributes(decision: BatchDecision) -> dict[str, Any]:
    """Return what a decision's span and events say of it."""
    policy = decision.policy
    cut = decision.cut
    threshold = policy.threshold if cut is None else cut.threshold
    return {
        "streamer.gate": decision.key.gate,
        "streamer.batch_id": _text(decision.key.batch_id),
        "streamer.attempt": decision.key.attempt,
        "streamer.unit": decision.unit,
        "streamer.action": decision.outcome,
        "streamer.reason": decision.reason,
        "streamer.enforced": decision.mode == "enforce",
        "streamer.policy.version": policy.version,
        "streamer.policy.state": policy.state if cut is None else cut.state,
        "streamer.scorer": decision.scorer,
        "streamer.encoder": decision.encoder,
    } | ({} if threshold is None else {"streamer.policy.threshold": threshold})


def evaluations(decision: BatchDecision) -> list[dict[str, Any]]:
    """Return the attributes of each evaluation in a decision: one, or under the unit `response` one for each response."""
    responses = decision.responses
    scores = [one.score for one in responses if one.score is not None]
    found: list[tuple[float | None, str, str | None]]
    if len(scores) < len(responses) or not scores:
        found = [(None, decision.outcome, None)]
    elif decision.unit == "response":
        found = [(one.score, one.action, one.id) for one in responses]
    elif decision.unit == "batch":
        found = [(mean_score(scores), decision.outcome, None)]
    else:
        best = scores.index(max(scores))  # a blank answer's is 0
        found = [(scores[best], decision.outcome, decision.selected or responses[best].id)]
    return [
        {"gen_ai.evaluation.name": decision.scorer, "gen_ai.evaluation.score.label": label}
        | ({"error.type": decision.reason} if score is None else {"gen_ai.evaluation.score.value": score})
        | ({} if response is None else {"gen_ai.response.id": _text(response)})
        for score, label, response in found
    ]


def _messaging(operation: str, kind: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


@contextmanager
def _present(span: Span, context: Context) -> Iterator[None]:
    """Make it the present span, end it, and note what is raised meanwhile."""
    token = attach(context)
    try:
        yield
    except BaseException as error:
        _failed(span, type(error).__qualname__)
        raise
    finally:
        detach(token)
        span.end()


def _failed(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR))


def _text(text: str) -> str:
    """A text from outside, of bounded length and as an exporter can encode it: it would lose the others with it."""
    return text[:_LONGEST].encode(errors="replace").decode()
