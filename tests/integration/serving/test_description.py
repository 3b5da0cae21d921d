"""What the service says of itself: the document for programs, which real traffic obeys, and a gate for those who ask."""

import json
import re
from typing import Any

import httpx
import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from streamer.errors import UsageError
from streamer.gates.batch_key import BatchKey
from streamer.settings.settings import load_settings
from streamer.store.desk.release_desk import Release
from tests.faults.endpoint import GATE, Endpoint, Site, batch, held
from tests.faults.site import wait_until
from tests.faults.worker_process import WorkerProcess
from tests.integration.serving.model_server import ENCODER, Model

CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def refs(value: Any) -> set[str]:
    """Every reference below a value."""
    if isinstance(value, list):
        return set().union(*map(refs, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(refs, value.values()))


def undefined(value: Any) -> set[str]:
    """Members that a schema requires and does not define."""
    if isinstance(value, list):
        return set().union(*map(undefined, value))
    if not isinstance(value, dict):
        return set()
    required = value.get("required") if value.get("type") == "object" else None
    own = set(required) - {*value.get("properties", {})} if isinstance(required, list) else set()
    return own.union(*map(undefined, value.values()))


def test_every_address_is_described_and_real_answers_are_as_described(sqlite_site: Site) -> None:
    sqlite_site.gate("chatty", scorer="gram", encoder=ENCODER)
    sqlite_site.gate("desked", hold_action="escalate", desk_deadline_seconds=600.0)
    with Model() as model:
        obey(sqlite_site, model.serve(sqlite_site, gates={"chatty": {}}))


def obey(site: Site, endpoint: Endpoint) -> None:
    document = endpoint.client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert refs(document) <= {f"#/components/schemas/{name}" for name in schemas}
    assert undefined(schemas) == set()
    registry = Registry().with_resource("urn:document", Resource(document, DRAFT202012))
    assert '"default":' not in json.dumps(schemas, separators=(",", ":")), "generators would have it required"
    assert document["security"] == [{"key": []}, {}]
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    for path, methods in document["paths"].items():
        for one in methods.values():
            named = {p["name"] for p in one["parameters"] if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
    answered = set()

    def valid(content: Any, value: Any) -> None:
        whole = {"$ref": f"urn:document{content['schema']['$ref']}"}
        jsonschema.Draft202012Validator(whole, registry=registry).validate(value)

    def obeys(path: str, answer: httpx.Response) -> None:
        operation = document["paths"][path][answer.request.method.lower()]
        responses = operation["responses"]
        described = responses.get(str(answer.status_code)) or responses[f"{answer.status_code // 100}XX"]
        content = described["content"][answer.headers["content-type"]]
        valid(content, answer.json())
        if answer.is_success and answer.request.content:
            valid(operation["requestBody"]["content"]["application/json"], json.loads(answer.request.content))
        answered.add((operation["operationId"], answer.status_code))

    of, mine = "/v1/gates/{gate}", f"/v1/gates/{GATE}"
    label = {"batch_id": "b-1", "response_id": "a", "severity": 0, "kind": "human", "labeller": "ana"}
    obeys(f"{of}/decisions", endpoint.ask(batch("b-1")))
    obeys(f"{of}/decisions", endpoint.ask(batch("b-2"), params={"wait_ms": "0.001"}))
    obeys(f"{of}/decisions", endpoint.ask(batch("b-1", prompt="Who?")))
    obeys(f"{of}/decisions", endpoint.ask({"prompt": 1}))
    obeys(f"{of}/decisions/{{batch_id}}", endpoint.client.get(f"{mine}/decisions/b-1"))
    obeys(f"{of}/decisions/{{batch_id}}", endpoint.client.get(f"{mine}/decisions/b-9"))
    obeys(f"{of}/labels", endpoint.client.post(f"{mine}/labels", json=label))
    obeys(f"{of}/labels", endpoint.client.post(f"{mine}/labels", json=[label]))
    theirs = "/v1/gates/desked/desk/b-1"
    endpoint.ask(batch("b-1", score=0.1), gate="desked")
    obeys(f"{of}/desk/{{batch_id}}", endpoint.client.get(theirs))
    site.store.desk.decide(BatchKey("desked", "b-1", 1), Release(response_id="a"), by="ana")
    obeys(f"{of}/desk/{{batch_id}}", endpoint.client.get(theirs))
    obeys(f"{of}/desk/{{batch_id}}", endpoint.client.get(f"{mine}/desk/b-1"))
    obeys(of, endpoint.client.get(mine))
    obeys(of, endpoint.client.get("/v1/gates/nobody"))
    chat: dict[str, Any] = {"model": "gate/chatty", "messages": [{"role": "user", "content": "Where?"}]}
    turns = [*chat["messages"], {"role": "assistant", "tool_calls": [CALL]}]
    turns.append({"role": "tool", "tool_call_id": "1", "content": "Here."})
    usual: dict[str, Any] = {"temperature": 0.1, "stop": None, "tools": [], "seed": 7, "user": "ana", "n": 1}
    form = {"format": {"type": "text"}, "verbosity": "low"}
    completes = chat | usual | {"messages": turns, "response_format": {"type": "text"}}
    obeys("/v1/chat/completions", endpoint.client.post("/v1/chat/completions", json=completes))
    obeys("/v1/chat/completions", endpoint.client.post("/v1/chat/completions", json=chat | {"n": 2}))
    asked = {"model": "chatty", "input": "Where?"} | usual | {"text": form, "truncation": "auto"}
    obeys("/v1/responses", endpoint.client.post("/v1/responses", json=asked))
    obeys("/v1/responses", endpoint.client.post("/v1/responses", json=asked | {"prompt": {"id": "p"}}))
    obeys("/v1/messages", endpoint.client.post("/v1/messages", json=chat | {"max_tokens": 9, "thinking": {}}))
    obeys("/v1/messages", endpoint.client.post("/v1/messages", json={}))
    obeys("/v1/models/{model}", endpoint.client.get("/v1/models/gate/chatty"))
    obeys("/v1/models/{model}", endpoint.client.get("/v1/models/nobody"))
    obeys("/v1/models", endpoint.client.get("/v1/models"))
    wanted = {one["operationId"] for one in operations}
    assert {operation for operation, status in answered if status == 200} == wanted


def test_a_page_shows_every_operation_and_loads_nothing(sqlite_site: Site) -> None:
    client = sqlite_site.serve().client
    answer, document = client.get("/docs"), client.get("/openapi.json").json()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "; form-action 'none'; " in policy
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in answer.text
    links = set(re.findall(r'href="([^"]+)"', answer.text))
    assert links - {"openapi.json"} <= {f"#{name}" for name in document["components"]["schemas"]}
    assert "src=" not in answer.text


def test_pages_of_the_origins_that_are_set_may_ask_and_no_others(sqlite_site: Site) -> None:
    shop, path = "https://shop.example", f"/v1/gates/{GATE}/decisions"
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-any"}
    closed = sqlite_site.serve().client
    assert "access-control-allow-origin" not in closed.get("/openapi.json", headers={"origin": shop}).headers
    opened = sqlite_site.serve(STREAMER_ENDPOINT_CORS_ORIGINS=f'["{shop}"]').client
    for origin, allowed in ((shop, shop), ("https://other.example", None)):
        before = opened.options(path, headers={"origin": origin} | asks)
        answer = opened.post(path, json=batch(f"b-{origin}"), headers={"origin": origin})
        for one in (before, answer):
            assert one.headers.get("access-control-allow-origin") == allowed
            assert "access-control-allow-credentials" not in one.headers
        assert before.is_success == (allowed is not None)
    with pytest.raises(UsageError, match="cors_origins"):
        load_settings(endpoint={"cors_origins": ["*"]})


def test_a_gate_shows_its_policy_its_promise_and_the_verdict(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    shown = endpoint.client.get(f"/v1/gates/{GATE}").json()
    policy = shown["policy"]
    assert (policy["version"], policy["state"], policy["lambda"], policy["enforced"]) == (2, "cut", 0.5, True)
    assert shown["verdict"] == "not known yet"
    assert shown["risk"] == f"{GATE}: not monitored yet; `streamer recalibrator` does that."
    held(endpoint.client.get("/v1/gates/nobody"), 404, "unknown_gate")


def test_without_kafka_a_recalibrator_runs_beside_it(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    endpoint.ask(batch("b-1"))
    settings = {"STREAMER_DATABASE_URL": sqlite_site.url}
    log = sqlite_site.folder / "recalibrator.log"
    recalibrator = WorkerProcess(settings, log, service="recalibrator", arguments=["--no-kafka"])
    try:
        recalibrator.wait_until_ready()
        path = f"/v1/gates/{GATE}"
        wait_until(
            lambda: "not monitored yet" not in endpoint.client.get(path).json()["risk"],
            "it has read the decision",
        )
    finally:
        recalibrator.close()


def test_health_and_metrics_are_on_another_port(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    assert endpoint.url != endpoint.base
    assert not endpoint.unready()
    endpoint.ask(batch("b-1"))
    shipped = f'streamer_batches_total{{action="ship",gate="{GATE}",reason="scored"}}'
    wait_until(lambda: endpoint.metrics()[shipped] == 1, "it is counted, beside its answer")
    held(endpoint.client.get("/metrics"), 404, "not_found")
