"""When there are traces at all, and what they say of the kinds of decisions. Processes: tests/integration/serving."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
from structlog.testing import capture_logs

from streamer.events.cloudevents import trace_context
from streamer.journal import Headers, OutboxMessage, Partition, Record
from streamer.scoring.encoders.encoder import CachedEncoder
from streamer.telemetry.exporting import tracing
from streamer.telemetry.traces import Traces
from streamer.tracing import NO_TRACING
from tests.made import a_decider
from tests.unit.deciding.test_decider import NOW, TOPICS, World, active, batch, raw

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{CALLER}-{flags}".encode() for flags in ("01", "00"))
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


class Traced(World):
    """A decider, and what its traces say."""

    def __init__(self, *, capacity: int = 20_000, **options: Any) -> None:
        super().__init__()
        self.exporter = InMemorySpanExporter()
        self.events: list[Mapping[str, Any]] = []
        provider = TracerProvider(shutdown_on_exit=False, **options)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.traces = Traces(
            provider.get_tracer("test"),
            lambda _name, told, _context: self.events.append(told),
            capacity=capacity,
        )
        encoder = CachedEncoder(self.encoder, capacity_texts=1000)
        self.decider = a_decider(self.book, encoder=encoder, clock=lambda: NOW, tracing=self.traces)

    def record(self, value: bytes, trace: bytes | None = SAMPLED, offset: int = 0) -> Record:
        headers: Headers = () if trace is None else (("traceparent", trace),)
        return Record(Partition("log", TOPICS.responses, 0), offset, b"key", value, headers, 0)

    def decided(self, *records: Record) -> list[Any]:
        """Decided and committed."""
        outcomes = self.decider.outcomes(records)
        self.commit(outcomes)
        return outcomes

    def commit(self, outcomes: Sequence[Any], kind: Any = "decision") -> None:
        self.traces.committed(outcomes, [kind] * len(outcomes), seconds=0.001)

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        return list(self.exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "gates", "OTEL_LOGS_EXPORTER": "otlp"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        ENDPOINT | {"OTEL_SDK_DISABLED": "True"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
    ],
)
def test_nothing_is_traced_that_nobody_asks_for(environment: dict[str, str]):
    with tracing("worker", environment) as found:
        assert found is NO_TRACING


@pytest.mark.parametrize("environment", [ENDPOINT, {"OTEL_TRACES_EXPORTER": "console"}])
def test_an_endpoint_or_an_exporter_asks_for_it(environment: dict[str, str]):
    with tracing("worker", environment) as found:
        assert isinstance(found, Traces)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "nobodys"},
            "no exporter of traces for 'nobodys' is installed; those that are: console, otlp",
        ),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "no exporter of traces for 'otlp'"),
        (ENDPOINT | {"OTEL_LOGS_EXPORTER": "nobodys"}, "no exporter of logs for 'nobodys'"),
    ],
)
def test_what_cannot_be_exported_is_logged_and_decisions_go_on(environment: dict[str, str], named: str):
    with capture_logs() as logs, tracing("worker", environment) as found:
        assert found is NO_TRACING
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("telemetry.no_traces", "warning")
    assert named in line["reason"]


def test_a_missing_extra_is_named_and_decisions_go_on(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    with capture_logs() as logs, tracing("worker", ENDPOINT) as found:
        assert found is NO_TRACING
    (line,) = logs
    assert "pip install 'conformal-streamer[traces]'" in line["reason"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (ENDPOINT, True),
        (ENDPOINT | {"OTEL_LOGS_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"} | ENDPOINT, True),
    ],
)
def test_events_go_where_traces_go_unless_something_else_is_said(environment: dict[str, str], told: bool):
    with tracing("worker", environment) as found:
        assert isinstance(found, Traces)
        assert (found._emit is not None) == told


def test_a_record_of_no_trace_begins_one_and_its_action_carries_it_on():
    world = Traced()
    (decision,) = world.decided(world.record(raw(batch("bot")), None))
    assert world.names == ["score", "gate", "commit", f"process {TOPICS.responses}"]
    process = world.spans[-1]
    assert process.parent is None
    assert process.links == ()
    ((_, carried),) = trace_context(decision.action.headers)
    assert carried.startswith(f"00-{process.context.trace_id:032x}-{process.context.span_id:016x}-".encode())
    assert int(carried[-2:], 16) & 1
    assert {span.parent.span_id for span in world.spans[:-1] if span.parent} == {process.context.span_id}


@pytest.mark.parametrize(
    ("gate", "scores", "told"),
    [
        ("judge", (0.2, 0.9), [(0.9, "ship", "b")]),
        ("judge", (0.2, 0.4), [(0.4, "abstain", "b")]),
        ("each-judge", (0.2, 0.9), [(0.2, "abstain", "a"), (0.9, "ship", "b")]),
        ("all-judge", (0.2, 0.9), [(0.55, "ship", None)]),
    ],
)
def test_an_evaluation_is_told_of_what_ships_as_one(
    gate: str, scores: tuple[float, float], told: list[tuple[float, str, str | None]]
):
    world = Traced()
    for name, unit in (("each-judge", "response"), ("all-judge", "batch")):
        world.sql[name] = active(name, scorer="external", encoder="none", threshold=0.5, unit=unit)
    event = batch(gate)
    event["responses"] = [
        {"id": name, "text": "Here.", "score": score} for name, score in zip("ab", scores, strict=True)
    ]
    world.decided(world.record(raw(event)))
    names = ("gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label", "gen_ai.response.id")
    assert [tuple(event.get(name) for name in names) for event in world.events] == told
    assert {event["gen_ai.evaluation.name"] for event in world.events} == {"external"}
    assert {event["streamer.policy.version"] for event in world.events} == {3}


def test_what_was_not_scored_is_told_with_the_reason():
    world = Traced()
    world.decided(world.record(raw(batch("other-encoder"))))
    (event,) = world.events
    assert (event["error.type"], event["gen_ai.evaluation.score.label"]) == ("encoder_mismatch", "abstain")
    assert "gen_ai.evaluation.score.value" not in event


def test_a_repeat_is_no_evaluation():
    world = Traced()
    world.commit(world.decider.outcomes([world.record(raw(batch("bot")))]), "duplicate")
    assert world.events == []
    assert world.spans[-1].attributes["streamer.outcome"] == "duplicate"


def test_what_is_decided_again_is_gated_twice_and_scored_once():
    world = Traced()
    record = world.record(raw(batch("bot")))
    (before,) = world.decider.outcomes([record])
    (after,) = world.decider.outcomes([record], [before])
    world.commit([after])
    assert world.names == ["score", "gate", "gate", "commit", f"process {TOPICS.responses}"]
    assert before.action.headers == after.action.headers


def test_of_what_is_not_sampled_nothing_is_told_and_the_action_says_so():
    for world, trace in ((Traced(), UNSAMPLED), (Traced(sampler=ParentBased(ALWAYS_OFF)), None)):
        (decision,) = world.decided(world.record(raw(batch("bot")), trace))
        assert (world.spans, world.events) == ([], [])
        ((_, carried),) = trace_context(decision.action.headers)
        assert not int(carried[-2:], 16) & 1
        assert (TRACE.encode() in carried) == (trace is not None)
        world.traces.published([decision.action], seconds=0.001)
        assert world.spans == []


def test_what_another_worker_decides_ends_as_lost():
    world = Traced()
    records = [world.record(raw(batch("bot")), offset=offset) for offset in range(2)]
    world.decider.outcomes(records)
    world.traces.dropped(records)
    lost = [span for span in world.spans if span.name.startswith("process")]
    assert [(span.attributes or {})["error.type"] for span in lost] == ["lease_lost"] * 2
    world.traces.dropped(records)
    assert world.traces._journeys == {}


def test_records_that_nobody_finishes_are_forgotten():
    world = Traced(capacity=3)
    world.decider.outcomes([world.record(raw(batch("bot")), offset=offset) for offset in range(10)])
    assert [place[1] for place in world.traces._journeys] == [7, 8, 9]


def test_a_sampler_that_fails_costs_no_decision():
    class Failing(Sampler):
        def should_sample(self, *_args: Any, **_options: Any) -> Any:
            raise RuntimeError("out of order")

        def get_description(self) -> str:
            return "failing"

    world = Traced(sampler=Failing())
    with capture_logs() as logs:
        for offset in range(2):
            (decision,) = world.decided(world.record(raw(batch("bot")), offset=offset))
            world.traces.published([decision.action], seconds=0.001)
            assert trace_context(decision.action.headers) == (("traceparent", SAMPLED),)
    assert [line["event"] for line in logs if line["log_level"] != "info"] == ["telemetry.trace_failed"]


def test_a_message_of_no_trace_is_published_untold():
    world = Traced()
    world.traces.published([OutboxMessage("t", None, b"", (("ce_id", b"1"),))], seconds=0.001)
    assert world.spans == []


def test_a_text_that_no_exporter_encodes_does_not_get_there():
    world = Traced()
    with world.traces.call("https://models.example/v1", {"model": "m", "n": 2}) as ended:
        ended(model="m-\ud800" + "x" * 999, finish_reasons=["stop", None], tokens=None, problem=None)
    (span,) = world.spans
    model = str(span.attributes["gen_ai.response.model"])
    assert model.startswith("m-?x")
    assert len(model) == 256
    assert span.attributes["server.port"] == 443


def test_a_run_of_the_recalibrator_is_a_trace_of_its_own():
    world = Traced()
    with world.traces.calibration("bot") as ended:
        ended("applied")
    with pytest.raises(OSError, match="gone"), world.traces.calibration("bot"):
        raise OSError("gone")
    told = [dict(span.attributes or {}) for span in world.spans]
    assert told == [
        {"streamer.gate": "bot", "streamer.outcome": "applied"},
        {"streamer.gate": "bot", "error.type": "OSError"},
    ]
    assert [span.parent for span in world.spans] == [None, None]


def test_no_tracing_leaves_everything_as_it_came():
    record = Traced().record(b"")
    scope = {"headers": [(b"traceparent", SAMPLED)]}
    with NO_TRACING.request(scope) as answered, NO_TRACING.call("", {}) as ended, NO_TRACING.scoring([]):
        with NO_TRACING.calibration("bot") as ran:
            ran("applied")
        answered("/", 200)
        ended(model=None, finish_reasons=(), tokens=None, problem=None)
    assert scope == {"headers": [(b"traceparent", SAMPLED)]}
    assert NO_TRACING.context(record) is record.headers
    assert NO_TRACING.outgoing() is None
