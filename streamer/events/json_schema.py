"""The JSON Schemas of events, made of their types."""

import inspect
from collections.abc import Iterable
from typing import Any

import msgspec

from streamer.events.topic import types

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one event type, by its name in `types`."""
    topic, _, version = name.rpartition(".")
    schema = msgspec.json.schema(types()[name])
    _say_plainly(schema["$defs"])
    return {"$schema": DIALECT, "$id": f"urn:streamer:schema:{topic}:{version}", **schema}


def _say_plainly(schemas: dict[str, Any]) -> None:
    """Turn docstrings into descriptions: running text, without what Python raises."""
    for schema in schemas.values():
        prose = inspect.cleandoc(schema["description"]).partition("\n\nRaises ")[0]
        schema["description"] = " ".join(prose.split())


def components(types: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the schemas of these types by name, for the `components` of a document that describes an interface."""
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    _say_plainly(schemas)
    return schemas
