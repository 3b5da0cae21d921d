"""The service for programs: its OpenAPI 3.1 document, with the schemas of the events; for people the same as a page."""

import json
from functools import cache
from html import escape
from importlib import resources
from typing import Any, Final

import msgspec

from streamer.events.actions import ActionsV1
from streamer.events.desk import DeskV1
from streamer.events.json_schema import components
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


@cache
def document() -> bytes:
    """Return the document, in JSON: `openapi.json` with what is declared elsewhere, and what all operations have."""
    written = resources.files("streamer.serving").joinpath("openapi.json").read_bytes()
    described: dict[str, Any] = msgspec.json.decode(written)
    schemas = components([ResponsesV1, LabelsV1, ActionsV1, DeskV1, GateView])
    for name, optional in _MAY_BE_LEFT_OUT.items():
        required = [member for member in schemas[name]["required"] if member not in optional]
        schemas[name] = schemas[name] | {"required": required}
    answers = schemas["ResponsesV1"]["properties"]
    texts = {"type": "array", "items": {"type": "string"}, "description": "Texts, with ids 0, 1, ..."}
    answers["responses"] = {"anyOf": [answers["responses"], texts]}
    schemas |= described["components"]["schemas"]
    schemas["Labels"]["oneOf"][1]["maxItems"] = MOST_LABELS
    for path, protocol in PROTOCOLS.items():
        (name,) = _schemas(described["paths"][path]["post"]["requestBody"]["content"])
        own: dict[str, Any] = {one: {} for one in sorted(protocol.members)}
        schemas[name]["properties"] = {**own, **MEMBERS, **schemas[name]["properties"]}
        schemas[name]["additionalProperties"] = False  # which is refused
    shared = described["components"].pop("parameters")
    for path, operations in described["paths"].items():
        of_gates = path.startswith("/v1/gates")
        # In place of a model it is OpenAI's error, also of a hold where the gate's upstream gives holds a status.
        kind, error = ("application/problem+json", "Problem") if of_gates else ("application/json", "Error")
        refused = {"content": {kind: {"schema": {"$ref": f"#/components/schemas/{error}"}}}}
        for operation in operations.values():
            operation["tags"] = ["gates" if of_gates else "in place of a model"]
            operation["parameters"] = [shared[_named(one)] for one in operation["parameters"]]
            operation["responses"] |= {
                "4XX": {"description": "Refused, `code` says why; after 429 ask again.", **refused},
                "5XX": {
                    "description": "Nothing is decided, or not known to be: hold; after 503 ask again.",
                    **refused,
                },
            }
    described["components"]["schemas"] = _for_generators(schemas)
    return msgspec.json.encode(described)


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
        f"<p>{_links(takes)} → {_links(gives)}</p><ul>{rows}</ul>"
    )


def _links(content: dict[str, Any]) -> str:
    """Links to the schemas that a body may have."""
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in _schemas(content))


def _schemas(content: dict[str, Any]) -> list[str]:
    return [_named(body["schema"]) for body in content.values() if "$ref" in body["schema"]]


def _named(reference: dict[str, str]) -> str:
    return reference["$ref"].rpartition("/")[2]
