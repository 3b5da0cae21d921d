"""`POST /v1/messages` as the package `anthropic` sees it, in an environment of its own, and as it is on the wire."""

import json
import subprocess
from typing import Any

import pytest

from tests.faults.endpoint import PATIENCE
from tests.integration.serving.model_server import AGREED, Plain, agreeing, differing
from tests.integration.serving.test_chat import HELD
from tests.integration.serving.test_forms import ARGUMENTS, CALLS, CANONICAL, cycling
from tests.services.integrations import python_environment

PROMPT: list[Any] = [{"role": "user", "content": "Where is my parcel?"}]
TOOL = {"name": "look", "description": "Looks it up.", "input_schema": {"type": "object"}}

CLIENT = """
import json, sys
import anthropic
given = json.load(sys.stdin)
with anthropic.Anthropic(base_url=given["url"], api_key="none", max_retries=0) as client:
    try:
        if given["stream"]:
            with client.messages.stream(**given["options"]) as stream:
                said = "".join(stream.text_stream)
                message = stream.get_final_message()
            assert said == "".join(one.text for one in message.content if one.type == "text")
        else:
            message = client.messages.create(**given["options"])
        print(json.dumps(message.model_dump(mode="json")))
    except anthropic.APIStatusError as error:
        print(json.dumps({"kind": type(error).__name__, "error": error.body}))
"""


def ask(plain: Plain, *, stream: bool = False, **options: Any) -> Any:
    """What the package makes of the answer."""
    whole = {"model": "bot", "max_tokens": 100, "messages": PROMPT} | options
    done = subprocess.run(
        [str(python_environment() / "python"), "-c", CLIENT],
        input=json.dumps({"url": plain.endpoint.base, "stream": stream, "options": whole}),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


pytestmark = [pytest.mark.slow, pytest.mark.registry]


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


def test_errors_are_in_its_own_form(plain: Plain) -> None:
    found = ask(plain, model="nobody")
    assert (found["kind"], found["error"]["error"]["type"]) == ("NotFoundError", "not_found_error")
    assert "GET /v1/models" in found["error"]["error"]["message"]
    found = ask(plain, model="status", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert (found["kind"], found["error"]["error"]["type"]) == ("BadRequestError", "invalid_request_error")
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/"}}
    found = ask(plain, messages=[{"role": "user", "content": [image]}])
    assert "a block of type image" in found["error"]["error"]["message"]
    counted = plain.endpoint.client.post("/v1/messages/count_tokens", json={})
    assert (counted.status_code, counted.json()["error"]["type"]) == (404, "not_found_error")
    plain.model.reply = differing
    held = ask(plain, model="status")
    assert (held["kind"], held["error"]["error"]["message"]) == ("ServiceUnavailableError", "Ask a person.")
