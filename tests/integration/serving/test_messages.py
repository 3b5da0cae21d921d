"""`POST /v1/messages` as it is on the wire; what the package `anthropic` makes of it: `tests.integration.serving.test_compatibility`."""

import json
from typing import Any

import pytest

from tests.integration.serving.model_server import AGREED, Plain, agreeing, differing
from tests.integration.serving.test_chat import HELD
from tests.integration.serving.test_forms import ARGUMENTS, CALLS, CANONICAL, cycling

PROMPT: list[Any] = [{"role": "user", "content": "Where is my parcel?"}]
TOOL = {"name": "look", "description": "Looks it up.", "input_schema": {"type": "object"}}
VERSION = {"anthropic-version": "2023-06-01"}


def ask(plain: Plain, **options: Any) -> Any:
    """The message, or the error's status and type, and the whole of it."""
    whole = {"model": "bot", "max_tokens": 100, "messages": PROMPT} | options
    answer = plain.endpoint.client.post("/v1/messages", json=whole, headers=VERSION)
    if not options.get("stream"):
        return answer.json()
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    wanted = [line for line in answer.text.splitlines() if line.startswith("event: ")]
    assert [f"event: {one['type']}" for one in events] == wanted
    message = events[0]["message"]
    for event in events:
        match event["type"]:
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta":
                said = "".join(event["delta"].get(one, "") for one in ("text", "partial_json"))
                block = message["content"][event["index"]]
                block |= {"text": said} if block["type"] == "text" else {"input": json.loads(said)}
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"]}
    return message


@pytest.mark.parametrize("stream", [False, True])
def test_the_package_gets_what_ships_what_is_held_and_calls(plain: Plain, stream: bool) -> None:
    model = plain.model
    message = ask(plain, stream=stream, system=[{"type": "text", "text": "Be brief."}], stop_sequences=["x"])
    assert (message["content"][0]["text"], message["stop_reason"]) == (AGREED, "end_turn")
    assert message["usage"]["output_tokens"] == 50
    assert message["streamer"]["ignored"] == ["max_tokens", "stop_sequences"]
    assert model.asked[-1].texts == ["Be brief.", "Where is my parcel?"]
    model.reply = differing
    message = ask(plain, stream=stream)
    assert (message["content"], message["stop_reason"]) == ([], "refusal")
    assert message["stop_details"]["explanation"] == HELD
    model.reply = cycling(CANONICAL)
    schema = {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}}
    output = {"format": {"type": "json_schema", "schema": schema}}
    message = ask(plain, stream=stream, model="json", output_config=output)
    assert message["content"][0]["text"] == CANONICAL
    assert model.asked[-1].body["response_format"]["json_schema"]["schema"] == schema
    model.reply = cycling(*CALLS)
    message = ask(plain, stream=stream, model="tools", tools=[TOOL], tool_choice={"type": "any"})
    (block,) = message["content"]
    assert (block["name"], block["input"]) == ("look", json.loads(ARGUMENTS))
    assert message["stop_reason"] == "tool_use"
    assert model.asked[-1].body["tool_choice"] == "required"
    model.reply = agreeing
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "In the depot."}
    answered = [*PROMPT, {"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
    message = ask(plain, stream=stream, model="tools", tools=[TOOL], messages=answered)
    assert message["content"][0]["text"] == AGREED
    _, asked, told = model.asked[-1].body["messages"]
    assert told == {"role": "tool", "content": "In the depot.", "tool_call_id": asked["tool_calls"][0]["id"]}


def test_errors_and_models_are_in_its_own_form(plain: Plain) -> None:
    found = ask(plain, model="nobody")
    assert (found["type"], found["error"]["type"]) == ("error", "not_found_error")
    assert "GET /v1/models" in found["error"]["message"]
    found = ask(plain, model="status", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert found["error"]["type"] == "invalid_request_error"
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/"}}
    found = ask(plain, messages=[{"role": "user", "content": [image]}])
    assert "a block of type image" in found["error"]["message"]
    found = ask(plain, system="Be brief.", messages=[*PROMPT, {"role": "nobody", "content": ""}])
    assert found["error"]["param"] == "messages[1].role"
    assert ask(plain, model="prompted", system="Be rude.")["error"]["param"] == "system"
    schema = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    error = ask(plain, output_config=schema)["error"]
    assert (error["param"], error["message"][:22]) == ("output_config.format", "output_config.format: ")
    assert ask(plain, model="strict", temperature=1)["error"]["param"] == "temperature"
    client = plain.endpoint.client
    for place, says in (("count_tokens", "are not counted"), ("batches", "batches"), ("x", "a gate answers")):
        answer = client.post(f"/v1/messages/{place}", json={})
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
        assert says in answer.json()["error"]["message"]
    plain.model.reply = differing
    held = ask(plain, model="status")["error"]
    assert (held["message"], held["type"]) == ("Ask a person.", "api_error")
    plain.model.reply = agreeing
    assert ask(plain, model="strict")["streamer"]["ignored"] == ["max_tokens"], "its protocol demands it"
    shown = client.get("/v1/models/bot", headers=VERSION).json()
    assert (shown["type"], shown["id"], shown["display_name"]) == ("model", "gate/bot", "bot")
    listed = client.get("/v1/models", headers=VERSION).json()
    assert (shown in listed["data"], listed["has_more"]) == (True, False)
    assert (listed["first_id"], listed["last_id"]) == (listed["data"][0]["id"], listed["data"][-1]["id"])
    assert client.get("/v1/models/nobody", headers=VERSION).json()["type"] == "error"
