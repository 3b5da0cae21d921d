"""Write what is derived from the event types: JSON Schemas, the AsyncAPI 3 document, the page of codes.

``python -m docs.generate_events`` writes them, ``--check`` lists which are stale (exit 3).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_args

from streamer.events import codes, dead_letters
from streamer.events.json_schema import components, json_schema
from streamer.events.limits import DEFAULT_LIMITS
from streamer.events.outgoing import TRUNCATED
from streamer.events.receipts import RECEIPT_HEADER
from streamer.events.topic import SCHEMA_VERSION, Topic, Who, every, types
from streamer.events.topics import Topics

_REPOSITORY = Path(__file__).parents[1]
_PACKAGE = Path(codes.__file__).parent


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3 document of all topics, with their default names."""
    schemas = components(types().values())
    topics = Topics()
    messages: dict[str, Any] = {}
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for name, topic in every().items():
        message = "deadLetter" if topic.event is None else topic.event.__name__
        messages[message] = _message(topic)
        channels[name] = {
            "address": topics.of(topic),
            "description": f"{topic.says}. Key: {topic.key}.",
            "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        }
        if topic.compacted:
            channels[name]["bindings"] = {
                "kafka": {"topicConfiguration": {"cleanup.policy": ["compact"]}, "bindingVersion": "0.5.0"}
            }
        direction = "receive" if topic.comes_in else "send"
        operations[f"{direction}-{name}"] = {
            "action": direction,
            "channel": {"$ref": f"#/channels/{name}"},
            "messages": [{"$ref": f"#/channels/{name}/messages/{message}"}],
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


def _message(topic: Topic) -> dict[str, Any]:
    if topic.event is None:
        return {
            "name": topic.name,
            "title": "A refused message",
            "contentType": "application/octet-stream",
            "headers": {"$ref": "#/components/schemas/DeadLetterHeaders"},
            "payload": {"description": "The bytes of the refused value; nothing is promised about them."},
        }
    name, event = f"{topic.name}.{SCHEMA_VERSION}", topic.event
    examples = sorted((_PACKAGE / "examples" / topic.name / SCHEMA_VERSION).glob("*.json"))
    message: dict[str, Any] = {
        "name": f"streamer.{name}",
        "title": f"streamer.{name}",
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{event.__name__}"},
        "examples": [
            {"name": path.stem, "payload": json.loads(path.read_text("utf-8"))} for path in examples
        ],
    }
    if not topic.comes_in:
        headers = "ActionHeaders" if topic.has_receipts else "CloudEventHeaders"
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
        "<!-- Generated by `python -m docs.generate_events`; do not edit. -->",
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


def topics_table() -> str:
    """Return the rows of the page of events, a topic each."""
    topics = Topics()
    return "\n".join(
        f"| `{topics.of(one)}` | {'in' if one.comes_in else 'out'}{_kept(one)} | {one.says} | {one.key} |"
        for one in every().values()
    )


def _kept(topic: Topic) -> str:
    kept = {
        ", compacted": topic.compacted,
        ", one partition": topic.one_partition,
        ", kept forever": topic.kept_forever,
    }
    return "".join(words for words, so in kept.items() if so)


def access_lists() -> str:
    """Return who reads and writes which topics, for deploy/kafka/acls.sh: a list for each kind of principal."""
    topics = every().values()
    lists = {
        f"{who}_{verb}": [one.name for one in topics if who in whom(one)]
        for verb, whom in (("write", lambda one: (one.written_by,)), ("read", lambda one: one.read_by))
        for who in get_args(Who)
    }
    return "\n".join(f"{name}=({' '.join(names)})" for name, names in lists.items() if names)


def documents() -> dict[Path, str]:
    """Return every derived file with the text that it should have."""
    schemas, pages = _PACKAGE / "schemas", Path(__file__).parent / "events"
    rights, table = _REPOSITORY / "deploy" / "kafka" / "acls.sh", pages / "README.md"
    return {schemas / f"{name}.json": _pretty(json_schema(name)) for name in types()} | {
        schemas / "asyncapi.json": _pretty(asyncapi()),
        pages / "codes.md": codes_page(),
        table: _with_part(table, "|---|---|---|---|\n", topics_table()),
        rights: _with_part(rights, "writes these lists.\n", access_lists()),
    }


def _with_part(path: Path, after: str, text: str) -> str:
    """Return a file's text with the paragraph after a line replaced."""
    head, found, rest = path.read_text("utf-8").partition(after)
    if not found:
        raise ValueError(f"{path} has no line {after!r}")
    return f"{head}{after}{text}\n\n{rest.partition(chr(10) * 2)[2]}"


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 3 when ``--check`` finds a stale file."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate_events", description=__doc__)
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
