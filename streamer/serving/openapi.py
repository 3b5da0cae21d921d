"""The service for programs: its OpenAPI 3.1 document, with the schemas of the events."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from streamer.events.actions import ActionsV1
from streamer.events.generate import components
from streamer.events.labels import LabelsV1
from streamer.events.responses import ResponsesV1
from streamer.serving.bodies import MOST_LABELS
from streamer.serving.gate_view import GateView

_MAY_BE_LEFT_OUT: Final = {
    "ResponsesV1": {"schema", "gate", "batch_id"},
    "LabelsV1": {"schema", "gate", "labelled_at"},
}
_PROBLEM: Final = {
    "type": "object",
    "description": "RFC 9457. Whoever asked must hold.",
    "required": ["type", "title", "status", "detail", "code", "action"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Stable; docs/endpoint.md lists them."},
        "action": {"const": "abstain"},
    },
}
_RECORDED: Final = {
    "type": "object",
    "required": ["recorded"],
    "properties": {"recorded": {"type": "integer", "minimum": 0}},
}
_REFUSALS: Final = {
    400: "The request cannot be read.",
    403: "The service does not answer to this host name, or the caller may not ask this.",
    404: "There is no such gate, or nothing recorded.",
    408: "The body did not come in the longest time that a request may take.",
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
    schemas = components([ResponsesV1, LabelsV1, ActionsV1, GateView])
    for name, optional in _MAY_BE_LEFT_OUT.items():
        required = [member for member in schemas[name]["required"] if member not in optional]
        schemas[name] = schemas[name] | {"required": required}
    schemas |= {"Problem": _PROBLEM, "Recorded": _RECORDED}
    gate = _parameter("gate", "path", "The gate's name.", {"type": "string"})
    batch = _parameter("batch_id", "path", "The batch.", {"type": "string"})
    attempt = _parameter("attempt", "query", "Of the batch.", {"type": "integer", "minimum": 1, "default": 1})
    waits = [
        _parameter("Prefer", "header", "RFC 7240: `wait=SECONDS`, fractions too.", {"type": "string"}),
        _parameter(
            "wait_ms", "query", "The same in milliseconds.", {"type": "number", "exclusiveMinimum": 0}
        ),
    ]
    key = _parameter(
        "Idempotency-Key", "header", "The `batch_id`, where the body has none.", {"type": "string"}
    )
    severities = {
        "oneOf": [_ref("LabelsV1"), {"type": "array", "maxItems": MOST_LABELS, "items": _ref("LabelsV1")}]
    }
    of = "/v1/gates/{gate}"
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "streamer serve",
                "version": "1",
                "description": "Ships or holds language-model answers inside a stated risk budget. Show only `selected`, only "
                "when `action` is `ship` and `enforced` is true; everything else holds.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": {
                of: {
                    "get": _operation("showGate", "Show a gate.", [gate], _ref("GateView"), (403, 404, 503))
                },
                f"{of}/decisions": {
                    "post": _operation(
                        "decide",
                        "Decide a batch. The answer is on record; a repeat gets the same.",
                        [gate, key, *waits],
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
            },
            "components": {"schemas": schemas},
        }
    )


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
