"""Stored examples are read for ever, and what is generated from the types is neither stale nor loose."""

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import streamer.events
from docs import generate_events as generate
from streamer.events import codes, thresholds
from streamer.events.dead_letters import dead_letter_message
from streamer.events.topic import every, types
from streamer.journal import Partition, Record

EXAMPLES = Path(streamer.events.__file__).parent / "examples"
READERS = {f"{one.name}/v1": (one.decode, one.encode) for one in every().values() if one.event is not None}
STORED = sorted(path for path in EXAMPLES.rglob("*.json") if "dead-letters" not in path.parts)


def _topic(path: Path) -> str:
    return "/".join(path.relative_to(EXAMPLES).parts[:2])


def _validator(topic: str) -> jsonschema.Draft202012Validator:
    schema = generate.json_schema(topic.replace("/", "."))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )


def _names(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


@pytest.mark.parametrize("path", STORED, ids=_names)
def test_every_stored_example_is_read_and_written_again(path: Path) -> None:
    read, write = READERS[_topic(path)]
    event = read(path.read_bytes())
    written = write(event)
    assert read(written) == event
    stored = json.loads(path.read_bytes())
    for name, member in json.loads(written).items():
        in_canonical_form = name == "responses" and path.stem == "calls"
        if name in stored and name not in {"created_at", "labelled_at"} and not in_canonical_form:
            assert member == stored[name], name


@pytest.mark.parametrize("path", STORED, ids=_names)
def test_every_stored_example_satisfies_its_schema(path: Path) -> None:
    _validator(_topic(path)).validate(json.loads(path.read_bytes()))


def test_every_topic_and_version_has_examples() -> None:
    assert {_topic(path) for path in STORED} == set(READERS)
    assert None not in {read for read, _ in READERS.values()}, "every event can be read"


@pytest.mark.parametrize("path", sorted((EXAMPLES / "thresholds").rglob("*.json")), ids=_names)
def test_stored_policies_are_policies(path: Path) -> None:
    event = thresholds.decode_threshold(path.read_bytes())
    assert thresholds.threshold_event(thresholds.policy_from_event(event)) == event


@pytest.mark.parametrize("path", sorted((EXAMPLES / "dead-letters").rglob("*.json")), ids=_names)
def test_stored_dead_letters_are_still_made_the_same(path: Path) -> None:
    stored = json.loads(path.read_bytes())

    def headers(pairs: list[list[str]]) -> tuple[tuple[str, bytes | None], ...]:
        return tuple((name, base64.b64decode(content)) for name, content in pairs)

    refused = stored["refused"]
    message = dead_letter_message(
        Record(
            Partition("log", refused["topic"], refused["partition"]), refused["offset"],
            base64.b64decode(refused["key"]), base64.b64decode(refused["value"]),
            headers(refused["headers"]), 0,
        ),
        codes.NOT_JSON,
        "Input data was truncated",
        topic="streamer.dead-letters",
    )  # fmt: skip
    expected = stored["dead_letter"]
    assert message.key == base64.b64decode(expected["key"])
    assert message.value == base64.b64decode(expected["value"])
    assert message.headers == headers(expected["headers"])


BREAKS: list[tuple[str, dict[str, Any]]] = [
    ("responses/v1", {"schema": "streamer.responses.v2"}),
    ("responses/v1", {"gate": "Support Bot"}),
    ("responses/v1", {"gate": "g" * 65}),
    ("responses/v1", {"batch_id": ""}),
    ("responses/v1", {"batch_id": "x" * 201}),
    ("responses/v1", {"batch_id": "a\nb"}),
    ("responses/v1", {"prompt": "\x00"}),
    ("responses/v1", {"responses": []}),
    ("responses/v1", {"responses": [{"id": "a", "text": "t"}, {"id": "b"}]}),
    ("responses/v1", {"responses": [{"id": str(i), "text": "t"} for i in range(257)]}),
    ("responses/v1", {"responses": [{"id": "a", "text": "t"}, {"id": "b" * 201, "text": "t"}]}),
    ("responses/v1", {"responses": [{"id": "a", "text": "t"}, {"id": "b", "text": "t" * 65537}]}),
    ("responses/v1", {"responses": [{"id": "a", "text": "t"}, {"id": "b", "text": "t", "score": 1.1}]}),
    ("responses/v1", {"responses": [{"id": "a", "text": "t"}, {"id": "b", "text": "t", "embedding": [1]}]}),
    (
        "responses/v1",
        {"responses": [{"id": "a", "text": "t"}, {"id": "b", "text": "", "embedding": [1] * 4097}]},
    ),
    ("responses/v1", {"attempt": 0}),
    ("responses/v1", {"attempt": 2**31}),
    ("responses/v1", {"references": [1]}),
    ("responses/v1", {"metadata": None}),
    ("labels/v1", {"severity": 1.5}),
    ("labels/v1", {"severity": -1}),
    ("labels/v1", {"kind": "A kind"}),
    ("labels/v1", {"labeller": ""}),
    ("labels/v1", {"labelled_at": None}),
    ("thresholds/v1", {"alpha": 0}),
    ("thresholds/v1", {"version": 0}),
    ("thresholds/v1", {"state": "ajar"}),
    ("actions/v1", {"reason": "because"}),
    ("actions/v1", {"action": "maybe"}),
]


@pytest.mark.parametrize(
    ("topic", "changes"), BREAKS, ids=[f"{t} {list(c)}{i}" for i, (t, c) in enumerate(BREAKS)]
)
def test_the_schemas_state_the_limits(topic: str, changes: dict[str, Any]) -> None:
    good = json.loads(max((EXAMPLES / topic).glob("*.json")).read_bytes())
    assert not _validator(topic).is_valid({**good, **changes})


@pytest.mark.parametrize("topic", READERS)
def test_the_schemas_require_what_the_readers_require(topic: str) -> None:
    event = types()[topic.replace("/", ".")]
    required = {field.encode_name for field in msgspec.structs.fields(event) if field.required}
    schema = generate.json_schema(topic.replace("/", "."))
    assert set(schema["$defs"][event.__name__]["required"]) == required
    assert "schema" in required


def test_nothing_generated_is_stale(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, "run `python -m docs.generate_events`"
    assert capsys.readouterr().out == ""


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for member in node.values() for ref in _references(member)]
    if isinstance(node, list):
        return [ref for member in node for ref in _references(member)]
    return []


def test_the_asyncapi_document_holds_together() -> None:
    document = generate.asyncapi()
    for reference in _references(document):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    assert {channel["address"] for channel in document["channels"].values()} >= {
        "streamer.responses", "streamer.labels", "streamer.actions", "streamer.desk",
        "streamer.thresholds", "streamer.alerts", "streamer.checkpoints", "streamer.dead-letters",
    }  # fmt: skip
    assert len(document["operations"]) == len(document["channels"]) == len(document["components"]["messages"])


def test_every_code_has_one_sentence() -> None:
    constants = {
        name: getattr(codes, name)
        for name in dir(codes)
        if name.isupper() and isinstance(getattr(codes, name), str)
    }
    assert set(constants.values()) == set(codes.MEANINGS)
    for name, code in constants.items():
        assert code == name.lower()
        assert codes.MEANINGS[code].endswith((".", ";"))
