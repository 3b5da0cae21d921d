"""The ways to ask an endpoint for a decision: a batch of one's own, or each protocol for a text, JSON, a call, or a call unjudged."""

import json
from typing import Any, Final

import httpx

from tests.faults.endpoint import batch

BATCH: Final = "b"
GATES: Final[dict[str, dict[str, Any]]] = {
    "text": {},
    "json": {"schemas": ["any"]},
    "tools": {"tools": "judge"},
    "passing": {"tools": "pass-through"},
}
"""The gates of chat requests, and what is special about their upstreams."""
_FUNCTION = {"name": "look", "parameters": {"type": "object"}}
_SCHEMA: dict[str, Any] = {"type": "json_schema", "schema": {"type": "object"}}
_ASKS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "chat/completions": {
        "json": {"response_format": {"type": "json_object"}},
        "tools": {"tools": [{"type": "function", "function": _FUNCTION}]},
    },
    "responses": {
        "json": {"text": {"format": _SCHEMA | {"name": "said"}}},
        "tools": {"tools": [{"type": "function"} | _FUNCTION]},
    },
    "messages": {
        "json": {"output_config": {"format": _SCHEMA}},
        "tools": {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
    },
}
FORMS: Final = (BATCH, *(f"{path}+{gate}" for path in _ASKS for gate in GATES))
"""Thirteen: whether a batch ships, and whether it calls, follows from its number by threes and twos."""
_SAME = ("gate", "batch_id", "action", "reason", "enforced", "selected")
SHOWN: Final = "parcel"
"""What every answer has in it, shipped or not, and nothing else that a caller gets."""


def body_of(name: str, *, other: bool = False) -> dict[str, Any]:
    """What is asked in the batch of this name, which begins with its form and ends with its number: of three, two would ship.

    `other` : something that contradicts it.
    """
    form, number = name.partition("-")[0], int(name.rpartition("-")[2])
    prompt = f"{'Other question' if other else 'Question'} {number}"
    if form == BATCH:
        return batch(name, score=0.9 if number % 3 else 0.1, prompt=prompt)
    path, _, gate = form.partition("+")
    said = prompt if path == "responses" else [{"role": "user", "content": prompt}]
    asked = {"model": gate, "input" if path == "responses" else "messages": said, "max_tokens": 9}
    if path == "responses":
        del asked["max_tokens"]
    return asked | _ASKS[path].get("tools" if gate == "passing" else gate, {})


def ask(client: httpx.Client, name: str, *, other: bool = False, **headers: str) -> httpx.Response:
    """Ask about the batch of this name."""
    form = name.partition("-")[0]
    path = "gates/bot/decisions" if form == BATCH else form.partition("+")[0]
    headers |= {} if form == BATCH else {"idempotency-key": name}
    return client.post(f"/v1/{path}", json=body_of(name, other=other), headers=headers)


def agrees(told: dict[str, Any], recorded: bytes) -> bool:
    """Whether an answer is the decision on record, and shows an answer only where that ships, or lets a call pass."""
    decided = json.loads(recorded)
    if "streamer" not in told:
        return bool(told == decided)
    said = told["streamer"]
    shown = SHOWN in json.dumps({**told, "streamer": None})
    return shown == (decided["action"] == "ship" or said["passed_through"]) and all(
        said[one] == decided[one] for one in _SAME
    )
