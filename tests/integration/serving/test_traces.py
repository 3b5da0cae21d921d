"""A request's trace from its caller to the record, the topic and the model behind the gate, as a collector gets it."""

import json
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.faults.endpoint import GATE, Site, action, batch
from tests.faults.worker_process import WorkerProcess
from tests.integration.serving.model_server import ANSWERS, ENCODER, Model, differing
from tests.services.collector import Collector, Told
from tests.services.kafka import KafkaBroker
from tests.services.openai_server import ChatReply

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{CALLER}-01"
DECISIONS = "POST /v1/gates/{gate}/decisions"
TOLD_OF_A_SHIP = {
    "streamer.gate": GATE,
    "streamer.batch_id": "b-1",
    "streamer.attempt": 1,
    "streamer.unit": "best",
    "streamer.action": "ship",
    "streamer.reason": "scored",
    "streamer.enforced": True,
    "streamer.policy.version": 2,
    "streamer.policy.state": "cut",
    "streamer.policy.threshold": 0.5,
    "streamer.scorer": "external",
    "streamer.encoder": "none",
}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as started:
        yield started


def assert_inside(one: Told, outer: Told) -> None:
    assert one.parent == outer.id
    assert outer.began <= one.began <= one.ended <= outer.ended


def test_a_request_goes_on_from_its_caller_to_the_commit(sqlite_site: Site, collector: Collector) -> None:
    endpoint = sqlite_site.serve(**collector.environment)
    headers = {"traceparent": SAMPLED, "tracestate": "shop=1"}
    assert action(endpoint.ask(batch("b-1"), headers=headers))["action"] == "ship"
    assert endpoint.ask(batch("b-2", score=0.1) | {"attempt": 0}).status_code == 422
    assert endpoint.client.get("/v1/nowhere", headers={"traceparent": SAMPLED}).status_code == 404

    spans = collector.of_trace(TRACE, DECISIONS, "process http", "score", "gate", "commit", "GET")
    server, process = spans[DECISIONS], spans["process http"]
    assert (server.kind, server.parent, server.failed) == ("server", CALLER, False)
    assert server.service == "streamer-serve"
    assert server.attributes == {
        "http.request.method": "POST", "url.path": f"/v1/gates/{GATE}/decisions",
        "url.scheme": "http", "http.route": "/v1/gates/{gate}/decisions",
        "http.response.status_code": 200,
    }  # fmt: skip
    assert process.kind == "internal"
    assert process.parent == server.id
    assert process["streamer.outcome"] == "decision"
    for stage in ("score", "gate", "commit"):
        assert spans[stage].kind == "internal"
        assert_inside(spans[stage], process)
    assert spans["score"].ended <= spans["gate"].began
    assert spans["gate"].ended <= spans["commit"].began
    assert spans["gate"].attributes == TOLD_OF_A_SHIP
    assert (spans["GET"].parent, spans["GET"]["http.response.status_code"]) == (CALLER, 404)

    accept = {"Accept": "application/openmetrics-text"}
    shown = endpoint.client.get(f"{endpoint.url}/metrics", headers=accept).text
    assert f'{{span_id="{server.id}",trace_id="{TRACE}"}}' in shown

    endpoint.terminate()  # and what waits is exported
    (event,) = collector.events
    assert (event.name, event.trace, event.parent) == ("gen_ai.evaluation.result", TRACE, process.id)
    assert event.attributes == TOLD_OF_A_SHIP | {
        "gen_ai.evaluation.name": "external", "gen_ai.evaluation.score.value": 0.9,
        "gen_ai.evaluation.score.label": "ship", "gen_ai.response.id": "a",
    }  # fmt: skip
    for text in (b"Where?", b"Here.", b"There."):
        assert text not in collector.raw


def test_answers_are_asked_for_inside_the_request(
    new_site: Callable[..., Site], migrated_sqlite_url: str, collector: Collector
) -> None:
    site = new_site(migrated_sqlite_url, scorer="gram", encoder=ENCODER)
    site.settings |= collector.environment | {"OTEL_SERVICE_NAME": "gates"}
    with Model() as model:
        model.reply = lambda request: ChatReply(status=500) if len(model.asked) == 1 else differing(request)
        endpoint = model.serve(site, tries=2, temperature=0.7, max_tokens=200)
        body = {"model": f"gate/{GATE}", "messages": [{"role": "user", "content": "Where is my parcel?"}]}
        answered = endpoint.client.post("/v1/chat/completions", json=body, headers={"traceparent": SAMPLED})
        assert answered.json()["streamer"]["action"] == "abstain"
        endpoint.terminate()
        passed_on = [one.headers["traceparent"] for one in model.asked]
    spans = collector.of_trace(TRACE, "chat small", "gate", "commit")
    server = spans["POST /v1/chat/completions"]
    assert server.service == "gates"
    failed, asked = (one for one in collector.spans if one.name == "chat small")
    assert passed_on == [f"00-{TRACE}-{one.id}-01" for one in (failed, asked)]
    assert [(one.kind, one.failed) for one in (failed, asked)] == [("client", True), ("client", False)]
    sent = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small", "gen_ai.request.choice.count": ANSWERS,
        "gen_ai.request.temperature": 0.7, "gen_ai.request.max_tokens": 200,
        "server.address": "127.0.0.1",
        "server.port": int(model.url.split(":")[2].partition("/")[0]),
    }  # fmt: skip
    assert failed.attributes == sent | {"error.type": "server_error"}
    assert asked.attributes == sent | {
        "gen_ai.response.model": "small-2026", "gen_ai.response.finish_reasons": ["stop"] * ANSWERS,
        "gen_ai.usage.input_tokens": 400, "gen_ai.usage.output_tokens": 50,
    }  # fmt: skip
    for one in (failed, asked, spans["process http"]):
        assert_inside(one, server)
    assert spans["gate"]["streamer.encoder"] == ENCODER
    (event,) = collector.events
    assert event["gen_ai.evaluation.score.label"] == "abstain"
    for text in (b"Where is my parcel?", b"Perhaps number"):
        assert text not in collector.raw


def test_a_record_goes_on_from_its_publisher_to_the_topic(
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    migrated_sqlite_url: str,
    new_site: Callable[..., Site],
    collector: Collector,
) -> None:
    site = new_site(migrated_sqlite_url)
    site.with_kafka(kafka_broker, topic_prefix)
    responses, actions = (f"{topic_prefix}{name}" for name in ("responses", "actions"))
    own = {"STREAMER_DATABASE_URL": site.url, "STREAMER_ENCODER_NAME": "none"} | collector.environment
    worker = WorkerProcess(site.settings | own, site.folder / "worker.log")
    try:
        worker.wait_until_ready()
        producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap, acks="all")
        event = {"schema": "streamer.responses.v1", "gate": GATE} | batch("b-1")
        producer.send(responses, json.dumps(event).encode(), headers=[("traceparent", SAMPLED.encode())]).get(
            timeout=240
        )
        refused = "ffffffffffffffffffffffffffffffff"
        producer.send(
            responses, b"garbage", headers=[("traceparent", f"00-{refused}-{CALLER}-01".encode())]
        ).get(timeout=240)
        producer.close()
        spans = collector.of_trace(TRACE, f"process {responses}", "gate", "commit", f"publish {actions}")
        dead = collector.of_trace(refused, f"process {responses}", f"publish {topic_prefix}dead-letters")
        consumer = KafkaConsumer(
            actions, bootstrap_servers=kafka_broker.bootstrap, auto_offset_reset="earliest"
        )
        published = dict(next(consumer).headers)
        consumer.close()
        assert worker.terminate() == 0
    finally:
        worker.close()
    process, publish = spans[f"process {responses}"], spans[f"publish {actions}"]
    assert (process.kind, process.parent, process.links) == ("consumer", CALLER, (CALLER,))
    assert process.service == "streamer-worker"
    assert process["messaging.system"] == "kafka"
    assert process["messaging.destination.name"] == responses
    assert {"messaging.destination.partition.id", "messaging.kafka.offset"} <= set(process.attributes)
    # Whoever reads the action goes on from the decision.
    assert published["traceparent"] == f"00-{TRACE}-{process.id}-01".encode()
    assert (publish.kind, publish.parent, publish.links) == ("client", process.id, (process.id,))
    assert publish["messaging.destination.name"] == actions
    assert publish.began >= spans["commit"].ended
    lost = dead[f"process {responses}"]
    assert (lost.failed, lost["error.type"], lost["streamer.outcome"]) == (True, "not_json", "dead_letter")
    assert {event["streamer.batch_id"] for event in collector.events} == {"b-1"}
    for text in (b"Where?", b"Here.", b"garbage"):
        assert text not in collector.raw


@pytest.mark.parametrize("collector_is", ["away", "silent"])
def test_no_decision_waits_for_the_collector(sqlite_site: Site, collector_is: str) -> None:
    with Collector(silent=True) as silent:
        environment = silent.environment | (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"} if collector_is == "away" else {}
        )
        # Fewer than the spans of these requests: most find no room.
        small = {"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"}
        endpoint = sqlite_site.serve(**environment | small)
        for number in range(20):
            assert action(endpoint.ask(batch(f"b-{number}")))["action"] == "ship"
        assert endpoint.terminate() == 0
        assert (silent.asked > 0) == (collector_is == "silent")
    assert len(sqlite_site.recorded()) == 20
    sqlite_site.check()
