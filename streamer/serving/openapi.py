"""The service for programs: its OpenAPI 3.1 document, with the schemas of the events."""

from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from streamer.events.actions import ActionsV1
from streamer.events.desk import DeskV1
from streamer.events.generate import components
from streamer.events.labels import LabelsV1
from streamer.events.responses import ResponsesV1
from streamer.serving.bodies import MOST_LABELS
from streamer.serving.gate_view import GateView

_MAY_BE_LEFT_OUT: Final = {
    "ResponsesV1": {"schema", "gate", "batch_id"},
    "LabelsV1": {"schema", "gate", "labelled_at"},
}
_REFUSALS: Final = {
    400: "The request cannot be read.",
    403: "The service does not answer to this host name, or the caller may not ask this.",
    404: "There is no such gate, or nothing recorded.",
    408: "The body did not come by the request's deadline (half a second at least, 30 at most).",
    409: "Decided before, with other content.",
    413: "The body is too large.",
    415: "The content type is not application/json.",
    422: "The event was refused.",
    429: "Too many requests wait; ask again after Retry-After seconds.",
    500: "Deciding or storing it failed.",
    503: "Nothing could be recorded in time; ask again after Retry-After seconds.",
}


@cache
def document() -> bytes:
    """Return the document, in JSON."""
    schemas = components([ResponsesV1, LabelsV1, ActionsV1, DeskV1, GateView])
    for name, optional in _MAY_BE_LEFT_OUT.items():
        required = [member for member in schemas[name]["required"] if member not in optional]
        schemas[name] = schemas[name] | {"required": required}
    answers = schemas["ResponsesV1"]["properties"]
    texts = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Texts alone; their ids are their places, from 0.",
    }
    answers["responses"] = {"anyOf": [answers["responses"], texts]}
    written = resources.files("streamer.serving").joinpath("schemas.json").read_bytes()
    schemas |= msgspec.json.decode(written)
    gate = _parameter("gate", "path", "The gate's name.", {"type": "string"})
    batch = _parameter("batch_id", "path", "The batch.", {"type": "string"})
    attempt = _parameter("attempt", "query", "Of the batch.", {"type": "integer", "minimum": 1, "default": 1})
    waits = [
        _parameter("Prefer", "header", "RFC 7240: `wait=SECONDS`, fractions too.", {"type": "string"}),
        _parameter(
            "wait_ms", "query", "The same in milliseconds.", {"type": "number", "exclusiveMinimum": 0}
        ),
    ]
    prefers = _parameter(
        "Prefer",
        "header",
        "RFC 7240: `wait=SECONDS`, fractions too; `desk=SECONDS` waits for a person besides, where the batch is held for one, and adds "
        "the member `desk`: what became of it, without who decided.",
        {"type": "string"},
    )
    key = _parameter(
        "Idempotency-Key", "header", "The `batch_id`, where the body has none.", {"type": "string"}
    )
    repeat = _parameter(
        "Idempotency-Key", "header", "The `batch_id`; a repeat samples nothing.", {"type": "string"}
    )
    asked = [repeat, prefers, waits[1]]
    severities = {
        "oneOf": [_ref("LabelsV1"), {"type": "array", "maxItems": MOST_LABELS, "items": _ref("LabelsV1")}]
    }
    of = "/v1/gates/{gate}"
    paths: dict[str, dict[str, Any]] = {
        of: {"get": _operation("showGate", "Show a gate.", [gate], _ref("GateView"), (403, 404, 503))},
        f"{of}/decisions": {
            "post": _operation(
                "decide",
                "Decide a batch. The answer is on record; a repeat gets the same. Where JSON or calls are held, the member `disputed` says "
                "in which fields the others differ from the best one: by JSON Pointer the share of them that say the same.",
                [gate, key, prefers, waits[1]],
                _ref("ActionsV1"),
                tuple(_REFUSALS),
                body=_ref("ResponsesV1"),
            )
        },
        f"{of}/decisions/{{batch_id}}": {
            "get": _operation(
                "findDecision",
                "Find a recorded decision.",
                [gate, batch, attempt],
                _ref("ActionsV1"),
                (400, 403, 404, 503),
            )
        },
        f"{of}/desk/{{batch_id}}": {"get": _find_at_desk([gate, batch, attempt, *waits])},
        f"{of}/labels": {
            "post": _operation(
                "label",
                "Record severities. A repeat is safe.",
                [gate, *waits],
                _ref("Recorded"),
                tuple(status for status in _REFUSALS if status != 409),
                body=severities,
            )
        },
        "/v1/chat/completions": {
            "post": _in_place_of_a_model("complete", "ChatRequest", "Completion", asked)
        },
        "/v1/responses": {"post": _in_place_of_a_model("respond", "ResponseRequest", "Response", asked)},
        "/v1/messages": {"post": _in_place_of_a_model("message", "MessageRequest", "Message", asked)},
        "/v1/models/{model}": {
            "get": _in_openais_form(
                _operation(
                    "showModel",
                    "Show a gate that has an upstream.",
                    [_parameter("model", "path", "As in the list, or the gate's name.", {"type": "string"})],
                    _ref("Model"),
                    (),
                )
            )
        },
        "/v1/models": {
            "get": _in_openais_form(
                _operation("listModels", "List the gates that have an upstream.", [], _ref("Models"), ())
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
                "schemas": _without_null(schemas),
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


def _without_null(schema: Any) -> Any:
    """A schema without defaults that are null: generators of clients take a member with a default for one that always comes."""
    if isinstance(schema, list):
        return [_without_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_null(one) for name, one in schema.items() if not (name == "default" and one is None)
    }


def _find_at_desk(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    operation = _operation(
        "findAtDesk",
        "Find what became of a batch that is held for a person; with a wait, once somebody has decided.",
        parameters,
        _ref("DeskV1"),
        (400, 403, 404, 503),
    )
    operation["responses"]["202"] = {
        "description": "It still waits; ask again after Retry-After seconds.",
        "content": {"application/json": {"schema": _ref("AtDesk")}},
    }
    return operation


def _in_place_of_a_model(
    identity: str, request: str, answer: str, parameters: list[dict[str, Any]]
) -> dict[str, Any]:
    operation = _in_openais_form(
        _operation(
            identity,
            "Sample answers from the gate's upstream, decide, and return the selected one.",
            parameters,
            _ref(answer),
            (),
            body=_ref(request),
        )
    )
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return operation


def _in_openais_form(operation: dict[str, Any]) -> dict[str, Any]:
    """Whatever is no success is OpenAI's error."""
    operation["responses"]["default"] = {
        "description": "Refused or, where the gate's upstream gives holds a status, held.",
        "content": {"application/json": {"schema": _ref("Error")}},
    }
    return operation


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, place: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "description": description,
        "required": place == "path",
        "schema": schema,
    }


def _operation(
    identity: str,
    summary: str,
    parameters: list[dict[str, Any]],
    answer: dict[str, Any],
    refusals: tuple[int, ...],
    *,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    responses = {"200": {"description": "Done.", "content": {"application/json": {"schema": answer}}}} | {
        str(status): {
            "description": _REFUSALS[status],
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
        for status in refusals
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
