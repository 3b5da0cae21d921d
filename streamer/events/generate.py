"""Write what is derived from the event types: JSON Schemas, the AsyncAPI 3 document, the page of codes.

``python -m streamer.events.generate`` writes them, ``--check`` lists which are stale (exit 3).
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from streamer.events import (
    actions,
    alerts,
    checkpoints,
    codes,
    dead_letters,
    desk,
    labels,
    responses,
    thresholds,
)
from streamer.events.limits import DEFAULT_LIMITS
from streamer.events.oversize import TRUNCATED
from streamer.events.receipts import RECEIPT_HEADER
from streamer.events.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES: dict[str, type[msgspec.Struct]] = {
    "responses.v1": responses.ResponsesV1,
    "actions.v1": actions.ActionsV1,
    "desk.v1": desk.DeskV1,
    "labels.v1": labels.LabelsV1,
    "thresholds.v1": thresholds.ThresholdsV1,
    "alerts.v1": alerts.AlertsV1,
    "checkpoints.v1": checkpoints.CheckpointsV1,
}
"""Topic and version of every event that has a JSON value."""

_PACKAGE = Path(__file__).parent
_REPOSITORY = _PACKAGE.parent.parent

_TOPICS = {
    "responses": (
        "receive",
        "Batches of responses to be decided. Key: anything or none; order is kept per key.",
    ),
    "labels": ("receive", "Severities. Use the batch id as key, so that revisions keep their order."),
    "actions": ("send", "One decision per batch, at least once; the key is the input's key."),
    "desk": (
        "send",
        "What became of a held batch that waited for a person, one per batch, at least once; the key is the input's key.",
    ),
    "thresholds": ("send", "The newest policy of each gate; compacted, the key is the gate."),
    "alerts": ("send", "What somebody should look at, and how soon. Key: the gate."),
    "checkpoints": (
        "send",
        "Where every hash chain of the record stood, signed; one partition, kept permanently. Key: the record's id.",
    ),
    "dead-letters": ("send", "Refused messages as they came (any bytes), with headers that say why."),
}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one event type, by its name in `TYPES`."""
    topic, _, version = name.rpartition(".")
    schema = msgspec.json.schema(TYPES[name])
    _say_plainly(schema["$defs"])
    return {"$schema": DIALECT, "$id": f"urn:streamer:schema:{topic}:{version}", **schema}


def _say_plainly(schemas: dict[str, Any]) -> None:
    """Turn docstrings into descriptions: running text, without the sections for Python."""
    for schema in schemas.values():
        prose = inspect.cleandoc(schema["description"]).partition("\n\nRaises\n")[0]
        schema["description"] = " ".join(prose.split())


def components(types: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the schemas of these types by name, for the `components` of a document that describes an interface."""
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    _say_plainly(schemas)
    return schemas


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3 document of all topics, with their default names."""
    schemas = components(TYPES.values())
    topics = Topics()
    addresses = {topic: getattr(topics, topic.replace("-", "_")) for topic in _TOPICS}
    messages: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for topic, (direction, description) in _TOPICS.items():
        message = "deadLetter" if topic == "dead-letters" else TYPES[f"{topic}.v1"].__name__
        messages[message] = _message(topic, direction)
        channels[topic] = {
            "address": addresses[topic],
            "description": description,
            "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        }
        if topic == "thresholds":
            channels[topic]["bindings"] = {
                "kafka": {"topicConfiguration": {"cleanup.policy": ["compact"]}, "bindingVersion": "0.5.0"}
            }
        operations[f"{direction}-{topic}"] = {
            "action": direction,
            "channel": {"$ref": f"#/channels/{topic}"},
            "messages": [{"$ref": f"#/channels/{topic}/messages/{message}"}],
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "streamer",
            "version": "1",
            "description": "Ships or holds language-model answers inside a stated risk budget.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": {
                **schemas,
                "CloudEventHeaders": _cloudevent_headers(),
                "ActionHeaders": _action_headers(),
                "DeadLetterHeaders": _dead_headers(),
            },
        },
    }


def _message(topic: str, direction: str) -> dict[str, Any]:
    if topic == "dead-letters":
        return {
            "name": topic,
            "title": "A refused message",
            "contentType": "application/octet-stream",
            "headers": {"$ref": "#/components/schemas/DeadLetterHeaders"},
            "payload": {"description": "The bytes of the refused value; nothing is promised about them."},
        }
    name = f"{topic}.v1"
    event = TYPES[name]
    examples = sorted((_PACKAGE / "examples" / topic / "v1").glob("*.json"))
    message: dict[str, Any] = {
        "name": f"streamer.{name}",
        "title": f"streamer.{name}",
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{event.__name__}"},
        "examples": [
            {"name": path.stem, "payload": json.loads(path.read_text("utf-8"))} for path in examples
        ],
    }
    if direction == "send":
        headers = "ActionHeaders" if event in (actions.ActionsV1, desk.DeskV1) else "CloudEventHeaders"
        message["headers"] = {"$ref": f"#/components/schemas/{headers}"}
    return message


def _action_headers() -> dict[str, Any]:
    return {
        "title": "ActionHeaders",
        "description": "Those of every event that comes out, and the receipt of the decision.",
        "type": "object",
        "allOf": [{"$ref": "#/components/schemas/CloudEventHeaders"}],
        "properties": {
            RECEIPT_HEADER: {
                "type": "string",
                "description": "The link of the record that the decision became: a JSON array of log, topic, partition, number "
                "and SHA-256. Keep it, and `streamer audit verify --receipts` holds the record to it.",
            }
        },
    }


def _cloudevent_headers() -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return {
        "title": "CloudEventHeaders",
        "description": "CloudEvents 1.0 in Kafka's binary mode, and a trace context of the input's trace as a link.",
        "type": "object",
        "properties": {
            "ce_specversion": {"const": "1.0"},
            "ce_id": text,
            "ce_type": text,
            "ce_source": {**text, "format": "uri-reference"},
            "ce_subject": text,
            "ce_time": {**text, "format": "date-time"},
            "ce_dataschema": {**text, "format": "uri"},
            "content-type": {"const": "application/json"},
            "traceparent": {"type": "string"},
            "tracestate": {"type": "string", "maxLength": 512},
        },
        "required": [
            "ce_specversion",
            "ce_id",
            "ce_type",
            "ce_source",
            "ce_subject",
            "ce_time",
            "ce_dataschema",
            "content-type",
        ],
    }


def _dead_headers() -> dict[str, Any]:
    added = sorted(dead_letters.ADDED)
    properties: dict[str, Any] = {name: {"type": "string"} for name in added}
    properties[dead_letters.ERROR_CODE]["enum"] = list(codes.MEANINGS)
    return {
        "title": "DeadLetterHeaders",
        "description": "The original headers, then these.",
        "type": "object",
        "properties": properties,
        "required": [name for name in added if name != TRUNCATED],
    }


def codes_page() -> str:
    """Return the Markdown page of the codes and the default limits."""
    lines = [
        "<!-- Generated by `python -m streamer.events.generate`; do not edit. -->",
        "# Why a message is refused",
        "",
        "The code stands in the header `streamer_error_code` of the dead letter and in the label `code` of",
        "`streamer_dead_letters_total`.",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{code}` | {meaning} |" for code, meaning in codes.MEANINGS.items()),
        "",
        "## Limits",
        "",
        "| limit | default |",
        "|---|---|",
        *(f"| `{name}` | {value} |" for name, value in _limits().items()),
        "",
    ]
    return "\n".join(lines)


def _limits() -> dict[str, int]:
    return {name: getattr(DEFAULT_LIMITS, name) for name in type(DEFAULT_LIMITS).__dataclass_fields__}


def documents(package: Path = _PACKAGE, repository: Path = _REPOSITORY) -> dict[Path, str]:
    """Return every derived file with the text that it should have. Pages only where there is a docs folder."""
    files = {package / "schemas" / f"{name}.json": _pretty(json_schema(name)) for name in TYPES}
    files[package / "schemas" / "asyncapi.json"] = _pretty(asyncapi())
    if (repository / "docs").is_dir():
        files[repository / "docs" / "events" / "codes.md"] = codes_page()
    return files


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 3 when ``--check`` finds a stale file."""
    parser = argparse.ArgumentParser(prog="python -m streamer.events.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    check: bool = parser.parse_args(arguments).check
    stale = [
        (path, text)
        for path, text in documents().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path, text in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        sys.stdout.write(f"{'stale' if check else 'written'}: {path.relative_to(_REPOSITORY)}\n")
    return 3 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
