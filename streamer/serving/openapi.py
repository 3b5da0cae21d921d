"""The service for programs: its OpenAPI 3.1 document, with the schemas of the events; for people the same as a page."""

import json
from functools import cache
from html import escape
from importlib import resources
from typing import Any, Final

import msgspec

from streamer.events.actions import ActionsV1
from streamer.events.desk import DeskV1
from streamer.events.generate import components
from streamer.events.labels import LabelsV1
from streamer.events.responses import ResponsesV1
from streamer.serving.bodies import MOST_LABELS
from streamer.serving.chat.protocols import PROTOCOLS
from streamer.serving.chat.request import MEMBERS
from streamer.serving.gate_view import GateView

_MAY_BE_LEFT_OUT: Final = {
    "ResponsesV1": {"schema", "gate", "batch_id"},
    "LabelsV1": {"schema", "gate", "labelled_at"},
}
_NAMES: Final = {
    "/v1/chat/completions": ("complete", "ChatRequest", "Completion"),
    "/v1/responses": ("respond", "ResponseRequest", "Response"),
    "/v1/messages": ("message", "MessageRequest", "Message"),
}
"""By addresses in place of a model: the operation, its request and its answer."""
_ERROR: Final = ("application/json", "Error")
"""In place of a model: OpenAI's, also of a hold where the gate's upstream gives holds a status."""


@cache
def document() -> bytes:
    """Return the document, in JSON."""
    schemas = components([ResponsesV1, LabelsV1, ActionsV1, DeskV1, GateView])
    for name, optional in _MAY_BE_LEFT_OUT.items():
        required = [member for member in schemas[name]["required"] if member not in optional]
        schemas[name] = schemas[name] | {"required": required}
    answers = schemas["ResponsesV1"]["properties"]
    texts = {"type": "array", "items": {"type": "string"}, "description": "Texts, with ids 0, 1, ..."}
    answers["responses"] = {"anyOf": [answers["responses"], texts]}
    written = resources.files("streamer.serving").joinpath("schemas.json").read_bytes()
    schemas |= msgspec.json.decode(written)
    for path, protocol in PROTOCOLS.items():
        body = schemas[_NAMES[path][1]]
        own: dict[str, Any] = {one: {} for one in sorted(protocol.members)}
        body["properties"] = {**own, **MEMBERS, **body["properties"]}
        body["additionalProperties"] = False  # which is refused
    gate = _parameter("gate", "path", "The gate's name.")
    batch = _parameter("batch_id", "path", "The batch.")
    attempt = _parameter("attempt", "query", "Of the batch.", type="integer", minimum=1, default=1)
    waits = [
        _parameter("Prefer", "header", "RFC 7240: `wait=SECONDS`, fractions too."),
        _parameter("wait_ms", "query", "The same in milliseconds.", type="number", exclusiveMinimum=0),
    ]
    prefers = _parameter(
        "Prefer",
        "header",
        "RFC 7240: `wait=SECONDS`, fractions too; `desk=SECONDS` waits for a person besides, where the batch is held for one, and adds "
        "the member `desk`: what became of it, without who decided.",
    )
    key = _parameter("Idempotency-Key", "header", "The `batch_id`, where the body has none.")
    asked = [key, prefers, waits[1]]
    several = {"type": "array", "maxItems": MOST_LABELS, "items": _ref("LabelsV1")}
    schemas["Labels"] = {"oneOf": [_ref("LabelsV1"), several], "description": "One label, or several."}
    of = "/v1/gates/{gate}"
    paths: dict[str, dict[str, Any]] = {
        of: {"get": _operation("showGate", "Show a gate.", [gate], _ref("GateView"))},
        f"{of}/decisions": {
            "post": _operation(
                "decide",
                "Decide a batch. The answer is on record; a repeat gets the same. Where JSON or calls are held, the member `disputed` says "
                "in which fields the others differ from the best one: by JSON Pointer the share of them that say the same.",
                [gate, key, prefers, waits[1]],
                _ref("ActionsV1"),
                body=_ref("ResponsesV1"),
            )
        },
        f"{of}/decisions/{{batch_id}}": {
            "get": _operation(
                "findDecision", "Find a recorded decision.", [gate, batch, attempt], _ref("ActionsV1")
            )
        },
        f"{of}/desk/{{batch_id}}": {"get": _find_at_desk([gate, batch, attempt, *waits])},
        f"{of}/labels": {
            "post": _operation(
                "label",
                "Record severities. A repeat is safe.",
                [gate, *waits],
                _ref("Recorded"),
                body=_ref("Labels"),
            )
        },
        **{path: {"post": _in_place_of_a_model(*_NAMES[path], asked)} for path in PROTOCOLS},
        "/v1/models/{model}": {
            "get": _operation(
                "showModel",
                "Show a gate that has an upstream.",
                [_parameter("model", "path", "As in the list, or the gate's name.")],
                _ref("Model"),
                problem=_ERROR,
            )
        },
        "/v1/models": {
            "get": _operation(
                "listModels", "List the gates that have an upstream.", [], _ref("Models"), problem=_ERROR
            )
        },
    }
    for path, operations in paths.items():
        for operation in operations.values():
            operation["tags"] = ["gates" if path.startswith(of) else "in place of a model"]
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "servers": [{"url": "/", "description": "This service."}],
            "security": [{"key": []}, {}],
            "info": {
                "title": "streamer serve",
                "version": "1",
                "description": "Ships or holds language-model answers inside a stated risk budget. Show only `selected`, only "
                "when `action` is `ship` and `enforced` is true; everything else holds.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": paths,
            "components": {
                "schemas": _for_generators(schemas),
                "securitySchemes": {
                    "key": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "Of `streamer key create`; none is needed on the loopback until one is made.",
                    }
                },
            },
        }
    )


def _for_generators(schema: Any) -> Any:
    """A schema as generators of clients want it: without defaults, as they take a member that has
    one for one that always comes; saying of objects and lists without known members that they have
    any; with one type in each schema, and pairs as lists of two.
    """
    if isinstance(schema, list):
        return [_for_generators(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _for_generators(one) for name, one in schema.items() if name != "default"}
    match schema.get("type"):
        case [_, str(second), *_] if second != "null":
            plain["anyOf"] = [_for_generators({"type": one}) for one in plain.pop("type")]
        case "object" | ["object", "null"] if not schema.keys() & {"properties", "additionalProperties"}:
            plain["additionalProperties"] = True
        case "array":
            plain["items"] = plain.pop("prefixItems", [plain.get("items", {})])[0]
    return plain


def _find_at_desk(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    operation = _operation(
        "findAtDesk",
        "Find what became of a batch that is held for a person; with a wait, once somebody has decided.",
        parameters,
        _ref("DeskV1"),
    )
    operation["responses"]["202"] = {
        "description": "It still waits; ask again after Retry-After seconds.",
        "content": {"application/json": {"schema": _ref("AtDesk")}},
    }
    return operation


def _in_place_of_a_model(
    identity: str, request: str, answer: str, parameters: list[dict[str, Any]]
) -> dict[str, Any]:
    operation = _operation(
        identity,
        "Sample answers from the gate's upstream, decide, and return the selected one.",
        parameters,
        _ref(answer),
        body=_ref(request),
        problem=_ERROR,
    )
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return operation


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, place: str, description: str, **schema: object) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "description": description,
        "required": place == "path",
        "schema": {"type": "string"} | schema,
    }


def _operation(
    identity: str,
    summary: str,
    parameters: list[dict[str, Any]],
    answer: dict[str, Any],
    *,
    body: dict[str, Any] | None = None,
    problem: tuple[str, str] = ("application/problem+json", "Problem"),
) -> dict[str, Any]:
    kind, name = problem
    refused = {"content": {kind: {"schema": _ref(name)}}}
    responses = {
        "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
        "4XX": {"description": "Refused, `code` says why; after 429 ask again.", **refused},
        "5XX": {
            "description": "Nothing is decided, or not known to be: hold; after 503 ask again.",
            **refused,
        },
    }
    operation: dict[str, Any] = {
        "operationId": identity,
        "summary": summary,
        "parameters": parameters,
        "responses": responses,
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


@cache
def page() -> str:
    """Return the document as one page in HTML, without a script, a style or a network."""
    described = msgspec.json.decode(document())
    operations = "".join(
        _shown(method, path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(
        f'<details id="{name}"><summary><code>{name}</code> {escape(schema.get("description", ""))}</summary>'
        f"<pre>{escape(json.dumps(schema, indent=2))}</pre></details>"
        for name, schema in described["components"]["schemas"].items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>streamer serve</title><h1>streamer serve</h1><p>{escape(described['info']['description'])}</p>"
        '<p><a href="openapi.json">openapi.json</a> is the same for programs. With keys, send '
        f"<code>Authorization: Bearer KEY</code>.</p>{operations}<h2>Schemas</h2>{schemas}</html>"
    )


def _shown(method: str, path: str, operation: dict[str, Any]) -> str:
    takes = operation.get("requestBody", {}).get("content", {})
    gives = operation["responses"]["200"]["content"]
    rows = "".join(
        f"<li><code>{one['name']}</code> ({one['in']}): {escape(one['description'])}</li>"
        for one in operation["parameters"]
    )
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
        f"<p>{_schemas(takes)} → {_schemas(gives)}</p><ul>{rows}</ul>"
    )


def _schemas(content: dict[str, Any]) -> str:
    """Links to the schemas that a body may have."""
    names = [
        body["schema"]["$ref"].rpartition("/")[2] for body in content.values() if "$ref" in body["schema"]
    ]
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in names)
