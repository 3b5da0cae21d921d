"""The service for people who write its clients: the OpenAPI document as one page, without a script, a style or a network."""

import json
from functools import cache
from html import escape
from typing import Any

import msgspec

from streamer.serving.openapi import document


@cache
def page() -> str:
    """Return the page, in HTML."""
    described = msgspec.json.decode(document())
    operations = "".join(
        _operation(method, path, operation)
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


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
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
    names = dict.fromkeys(
        one["$ref"].rpartition("/")[2]
        for body in content.values()
        for one in body["schema"].get("oneOf", [body["schema"]])
        if "$ref" in one
    )
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in names)
