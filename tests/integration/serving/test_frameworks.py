"""What frameworks send by default, with the real packages: schemas, tools, temperatures, streams; see the table of docs/clients.md."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.endpoint import PATIENCE
from tests.integration.serving.model_server import AGREED, Plain, agreeing, differing
from tests.integration.serving.test_forms import CALLS, CANONICAL, cycling
from tests.services.integrations import python_environment
from tests.services.openai_server import ChatReply, ChatRequest

pytestmark = [pytest.mark.slow, pytest.mark.registry]

HELD = {"", "ContentFilterFinishReasonError", "OpenAIRefusalError", "IndexError", "ModelRefusalError"}
"""What comes in place of what is held: no text, no call, or an error."""
LANGCHAIN = """
import json, sys
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
class Parcel(BaseModel):
    place: str
    days: int
def look(parcel: float, how: str) -> str:
    "Looks it up."
def model(gate, **options):
    return ChatOpenAI(model=gate, base_url=sys.argv[1], api_key="none", max_retries=0, temperature=0.1, **options)
def tried(ask):
    try:
        return ask()
    except Exception as error:
        return type(error).__name__
for by in (False, True):
    of = {"use_responses_api": by}
    told = {
        "text": tried(lambda: model("bot", **of).invoke("Where?").text),
        "stream": tried(lambda: "".join(one.text for one in model("bot", **of).stream("Where?"))),
        "schema": tried(lambda: model("json", **of).with_structured_output(Parcel).invoke("Where?").model_dump()),
        "tool": tried(lambda: model("tools", **of).bind_tools([look]).invoke("Where?").tool_calls[0]["args"]),
    }
    print(json.dumps(told))
"""
AGENTS = """
import asyncio, json, sys
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel
set_tracing_disabled(True)
class Parcel(BaseModel):
    place: str
    days: int
seen = []
@function_tool(strict_mode=False)
def look(parcel: float, how: str) -> str:
    "Looks it up."
    seen.append({"parcel": parcel, "how": how})
    return "In the depot."
async def tried(ask):
    try:
        return await ask
    except Exception as error:
        return type(error).__name__
async def main():
    client = AsyncOpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        def agent(gate, **options):
            settings = ModelSettings(temperature=0.1)
            return Agent(name="a", model=kind(gate, openai_client=client), model_settings=settings, **options)
        async def text(): return (await Runner.run(agent("bot"), "Where?")).final_output
        async def stream():
            run = Runner.run_streamed(agent("bot"), "Where?")
            async for event in run.stream_events(): pass
            return run.final_output
        async def schema(): return (await Runner.run(agent("json", output_type=Parcel), "Where?")).final_output.model_dump()
        async def tool():
            seen.clear()
            try:
                await Runner.run(agent("tools", tools=[look]), "Where?", max_turns=1)
            except Exception as error:
                if type(error).__name__ != "MaxTurnsExceeded": raise
            return seen[0]
        asked = {"text": text(), "stream": stream(), "schema": schema(), "tool": tool()}
        print(json.dumps({name: await tried(one) for name, one in asked.items()}))
asyncio.run(main())
"""


def answering(request: ChatRequest) -> ChatReply:
    """A call where there are tools, JSON where a schema is, else texts that agree."""
    if "tools" in request.body:
        return cycling(*CALLS)(request)
    return cycling(CANONICAL)(request) if "response_format" in request.body else agreeing(request)


def run(plain: Plain, script: str, reply: Callable[[ChatRequest], ChatReply]) -> list[Any]:
    plain.model.reply = reply
    done = subprocess.run(
        [str(python_environment() / "python"), "-c", script, f"{plain.endpoint.base}/v1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("script", [LANGCHAIN, AGENTS], ids=["LangChain", "Agents SDK"])
def test_a_framework_gets_what_it_asks_for(plain: Plain, script: str) -> None:
    parcel, call = {"place": "depot", "days": 1}, {"parcel": 4711, "how": "fast"}
    wanted = {"text": AGREED, "stream": AGREED, "schema": parcel, "tool": call}
    assert run(plain, script, answering) == [wanted, wanted]
    for told in run(plain, script, differing):
        assert set(told.values()) <= HELD
