"""No text that nobody can see goes out, by whichever way texts go out."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from streamer.errors import UsageError
from streamer.events import topic
from streamer.gates.batch_key import BatchKey
from streamer.serving.openapi import document
from streamer.store.desk.release_desk import Release
from tests.faults.endpoint import GATE, Endpoint, Site, action, batch
from tests.integration.serving.model_server import ENCODER, Model
from tests.services.openai_server import ChatReply

DESK: dict[str, Any] = {"hold_action": "escalate", "desk_deadline_seconds": 600.0}
UNSEEN = {
    "zero width": "\u200b\u2060",
    "Hangul filler": "\u3164",
    "blank of Braille": "\u2800 \u2800",
    "bidirectional mark": "\u202e",
    "tags": "\U000e0041\U000e0042",
    "mark without a letter": "\u0301",
    "private use": "\ue000\U000f0000\U0010fffd",
    "replacement": "\ufffd\ufffd",
}


class World(NamedTuple):
    """Gates with a desk and with a model, and one endpoint."""

    site: Site
    model: Model
    endpoint: Endpoint


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite_file: Path) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("seen")
    shutil.copy(migrated_sqlite_file, folder / "audit.db")
    site = Site(f"sqlite:///{folder / 'audit.db'}", folder)
    with Model() as model, closing(site):
        site.gate(**DESK)
        site.gate("chat", scorer="gram", encoder=ENCODER)
        site.gate("shadow", scorer="gram", encoder=ENCODER, mode="shadow")
        gates = {"chat": {}, "shadow": {"in_shadow": "first"}}
        yield World(site, model, model.serve(site, gates=gates))


def by_the_gate(world: World, name: str, text: str) -> bool:
    body = batch(name)
    body["responses"] = [{"id": "a", "text": text, "score": 0.9}, {"id": "b", "text": text, "score": 0.9}]
    told = action(world.endpoint.ask(body))
    return told["action"] == "ship" or told["selected"] is not None


def by_the_gate_beside_another(world: World, name: str, text: str) -> bool:
    body = batch(name)
    body["responses"] = [{"id": "a", "text": text, "score": 0.99}, {"id": "b", "text": "Here.", "score": 0.9}]
    told: dict[str, Any] = action(world.endpoint.ask(body))
    assert told["action"] == "ship"
    return bool(told["selected"] == "a")


def by_the_desk(world: World, name: str, text: str, edited: str | None = None) -> bool:
    body = batch(name, score=0.1)
    body["responses"][0]["text"] = text
    assert action(world.endpoint.ask(body))["action"] == "escalate"
    key, act = BatchKey(GATE, name, 1), Release(response_id="a", text=edited)
    try:
        world.site.store.desk.decide(key, act, by="ana")
    except UsageError as error:
        assert "see" in str(error)  # noqa: PT017 - whether it raises is what is asked
        return False
    return True


def by_the_desk_edited(world: World, name: str, text: str) -> bool:
    return by_the_desk(world, name, "Here.", edited=text)


def by_a_chat(world: World, name: str, text: str, gate: str = "chat") -> bool:
    world.model.reply = lambda request: ChatReply(text, further=[text] * (request.body.get("n", 1) - 1))
    body = {"model": f"gate/{gate}", "messages": [{"role": "user", "content": "Where?"}]}
    reply = world.endpoint.client.post(
        "/v1/chat/completions", json=body, headers={"idempotency-key": name}
    ).json()
    choice = reply["choices"][0]
    assert (choice["message"]["content"] == text) == (reply["streamer"]["shown"] is not None)
    return bool(choice["message"]["content"] == text)


def by_a_response(world: World, name: str, text: str) -> bool:
    world.model.reply = lambda request: ChatReply(text, further=[text] * (request.body.get("n", 1) - 1))
    body = {"model": "chat", "input": "Where?"}
    reply = world.endpoint.client.post("/v1/responses", json=body, headers={"Idempotency-Key": name}).json()
    return bool(reply["output"][0]["content"][0].get("text") == text)


def by_a_chat_in_shadow(world: World, name: str, text: str) -> bool:
    return by_a_chat(world, name, text, "shadow")


WAYS: dict[str, Callable[[World, str, str], bool]] = {
    "the gate": by_the_gate,
    "the gate, beside another answer": by_the_gate_beside_another,
    "the desk": by_the_desk,
    "the desk, edited": by_the_desk_edited,
    "a chat": by_a_chat,
    "a response": by_a_response,
    "a chat in shadow mode": by_a_chat_in_shadow,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_nobody_can_see_goes_out_by_no_way(world: World, way: str) -> None:
    assert WAYS[way](world, f"{way}: seen", "It left the depot."), "a way that lets nothing out shows nothing"
    out = [name for name, text in UNSEEN.items() if WAYS[way](world, f"{way}: {name}", text)]
    assert out == []


def test_these_are_all_the_ways_out() -> None:
    """An event with a text, or another address of the endpoint, belongs into `WAYS`, or below with a reason."""
    going_out = {name: one.event for name, one in topic.every().items() if not one.comes_in and one.event}
    with_text = {
        name
        for name, event in going_out.items()
        if '"text"' in json.dumps(msgspec.json.schema(event)["$defs"])
    }
    assert with_text == {"desk"}
    addresses = {
        f"{method.upper()} {path}"
        for path, methods in json.loads(document())["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "delete")
    }
    assert addresses == {
        "POST /v1/chat/completions",  # a chat, with what the desk released too
        "POST /v1/responses",  # likewise
        "POST /v1/messages",  # likewise, from the same answer
        "POST /v1/gates/{gate}/decisions",  # names what ships, and has what the desk released
        "GET /v1/gates/{gate}/decisions/{batch_id}",  # the same on record
        "GET /v1/gates/{gate}/desk/{batch_id}",  # what the desk released
        "POST /v1/gates/{gate}/labels",  # no text
        "GET /v1/gates/{gate}",  # no text
        "GET /v1/models",  # no text
        "GET /v1/models/{model}",  # no text
    }
