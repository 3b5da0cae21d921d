"""What each library sends by default, tried at gates: `python libraries.py URL NAME...` prints a line of JSON for each name.

It has the release, and what came of each kind of request at each gate until one took it: of a question whose answers agree, and of one
whose answers differ. It runs where the library is installed, and imports nothing of the product.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

GATES = ("text", "json", "tools")
KEY = "none"
MODULES = Path("node_modules").absolute()
OBJECT = {"type": "object", "properties": {"said": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": OBJECT}}
Asks = dict[str, Callable[[str, str], Any]]
"""By kind of request: how it is made of a gate and a prompt."""


def look(said: str) -> str:
    """Looks it up."""
    return "In the depot."


def said() -> Any:
    """What is asked for where a library takes a class of pydantic."""
    from pydantic import BaseModel

    class Said(BaseModel):
        said: str

    return Said


def of_completions(create: Callable[..., Any]) -> Asks:
    """What is asked by a function that gives OpenAI's completions, or chunks of one."""

    def text(*of: str, **options: Any) -> Any:
        return create(*of, **options).choices[0].message.content

    def stream(*of: str) -> str:
        return "".join(one.choices[0].delta.content or "" for one in create(*of, stream=True))

    def tool(*of: str) -> Any:
        return json.loads(create(*of, tools=[TOOL]).choices[0].message.tool_calls[0].function.arguments)

    def schema(*of: str) -> Any:
        return json.loads(text(*of, response_format=said()) or "null")

    return {"text": text, "stream": stream, "schema": schema, "tool": tool}


def openai_chat(url: str) -> Asks:
    from openai import OpenAI

    made: Any = OpenAI(base_url=url, api_key=KEY, max_retries=0)

    def create(gate: str, prompt: str, **options: Any) -> Any:
        messages = [{"role": "user", "content": prompt}]
        return made.chat.completions.create(model=gate, messages=messages, temperature=0.1, **options)

    def parsed(gate: str, prompt: str) -> Any:
        messages = [{"role": "user", "content": prompt}]
        answer = made.chat.completions.parse(model=gate, messages=messages, response_format=said())
        return answer.choices[0].message.parsed

    return of_completions(create) | {"schema": parsed}


def openai_responses(url: str) -> Asks:
    from openai import OpenAI

    made: Any = OpenAI(base_url=url, api_key=KEY, max_retries=0)
    tool = {"type": "function", "name": "look", "parameters": OBJECT}

    def create(gate: str, prompt: str, **options: Any) -> Any:
        return made.responses.create(model=gate, input=prompt, **options)

    def stream(gate: str, prompt: str) -> str:
        events = create(gate, prompt, stream=True)
        return "".join(one.delta for one in events if one.type == "response.output_text.delta")

    return {
        "text": lambda *of: create(*of).output_text,
        "stream": stream,
        "schema": lambda gate, prompt: (
            made.responses.parse(model=gate, input=prompt, text_format=said()).output_parsed
        ),
        "tool": lambda *of: json.loads(create(*of, tools=[tool]).output[0].arguments),
    }


def anthropic(url: str) -> Asks:
    from anthropic import Anthropic

    made: Any = Anthropic(base_url=url.removesuffix("/v1"), api_key=KEY, max_retries=0)
    tool = {"name": "look", "input_schema": OBJECT}

    def asked(gate: str, prompt: str, **options: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": prompt}]
        return {"model": gate, "max_tokens": 99, "messages": messages} | options

    def text(message: Any) -> str:
        return "".join(one.text for one in message.content if one.type == "text")

    def stream(gate: str, prompt: str) -> str:
        with made.messages.stream(**asked(gate, prompt)) as events:
            return "".join(events.text_stream)

    def call(gate: str, prompt: str) -> Any:
        with made.messages.stream(**asked(gate, prompt, tools=[tool])) as events:
            return events.get_final_message().content[0].input

    return {
        "text": lambda *of: text(made.messages.create(**asked(*of))),
        "stream": stream,
        "schema": lambda *of: made.messages.parse(**asked(*of, output_format=said())).parsed_output,
        "tool": call,
    }


def langchain(url: str, *, responses: bool = False) -> Asks:
    from langchain_openai import ChatOpenAI

    def model(gate: str) -> Any:
        return ChatOpenAI(
            model=gate, base_url=url, api_key=KEY, max_retries=0, temperature=0.1, use_responses_api=responses
        )

    return {
        "text": lambda gate, prompt: model(gate).invoke(prompt).text,
        "stream": lambda gate, prompt: "".join(one.text for one in model(gate).stream(prompt)),
        "schema": lambda gate, prompt: model(gate).with_structured_output(said()).invoke(prompt),
        "tool": lambda gate, prompt: model(gate).bind_tools([look]).invoke(prompt).tool_calls[0]["args"],
    }


def agents(url: str, *, responses: bool = False) -> Asks:
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    kind: Any = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel

    def agent(gate: str, **options: Any) -> Any:
        client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
        return Agent(name="a", model=kind(gate, openai_client=client), **options)

    async def final(gate: str, prompt: str, **options: Any) -> Any:
        return (await Runner.run(agent(gate, **options), prompt)).final_output

    async def stream(gate: str, prompt: str) -> Any:
        run = Runner.run_streamed(agent(gate), prompt)
        async for _ in run.stream_events():
            pass
        return run.final_output

    return {
        "text": lambda *of: asyncio.run(final(*of)),
        "stream": lambda *of: asyncio.run(stream(*of)),
        "schema": lambda *of: asyncio.run(final(*of, output_type=said())),
        "tool": called(lambda tool, *of: asyncio.run(final(*of, tools=[function_tool(tool)]))),
    }


def called(run: Callable[..., Any]) -> Callable[[str, str], Any]:
    """What a tool is called with while `run` lets a library call it."""

    def ask(gate: str, prompt: str) -> Any:
        seen = []

        def look(said: str) -> str:
            """Looks it up."""
            seen.append({"said": said})
            return "In the depot."

        run(look, gate, prompt)
        return seen[0]

    return ask


def litellm(url: str) -> Asks:
    from litellm import completion

    def create(gate: str, prompt: str, **options: Any) -> Any:
        messages = [{"role": "user", "content": prompt}]
        return completion(
            model=f"openai/{gate}", messages=messages, base_url=url, api_key=KEY, max_retries=0, **options
        )

    return of_completions(create)


def haystack(url: str) -> Asks:
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    def reply(gate: str, prompt: str, **options: Any) -> Any:
        made = OpenAIChatGenerator(
            api_key=Secret.from_token(KEY), model=gate, api_base_url=url, max_retries=0, **options
        )
        return made.run([ChatMessage.from_user(prompt)])["replies"][0]

    def stream(gate: str, prompt: str) -> str:
        parts: list[str] = []
        reply(gate, prompt, streaming_callback=lambda one: parts.append(one.content))
        return "".join(parts)

    return {
        "text": lambda *of: reply(*of).text,
        "stream": stream,
        "schema": lambda *of: json.loads(reply(*of, generation_kwargs={"response_format": said()}).text),
        "tool": lambda *of: reply(*of, tools=[create_tool_from_function(look)]).tool_calls[0].arguments,
    }


def semantic_kernel(url: str) -> Asks:
    from openai import AsyncOpenAI
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function

    def asked(gate: str, prompt: str) -> tuple[Any, ChatHistory]:
        history = ChatHistory()
        history.add_user_message(prompt)
        client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
        return OpenAIChatCompletion(ai_model_id=gate, async_client=client), history

    async def text(gate: str, prompt: str, kernel: Any = None, **options: Any) -> str:
        service, history = asked(gate, prompt)
        settings = OpenAIChatPromptExecutionSettings(**options)
        return str((await service.get_chat_message_contents(history, settings, kernel=kernel))[0].content)

    async def stream(gate: str, prompt: str) -> str:
        service, history = asked(gate, prompt)
        parts = service.get_streaming_chat_message_contents(history, OpenAIChatPromptExecutionSettings())
        return "".join([str(part) async for several in parts for part in several])

    async def tool(tool: Any, gate: str, prompt: str) -> str:
        kernel = Kernel()
        kernel.add_function("p", kernel_function(tool, name="look"))
        return await text(gate, prompt, kernel, function_choice_behavior=FunctionChoiceBehavior.Auto())

    return {
        "text": lambda *of: asyncio.run(text(*of)),
        "stream": lambda *of: asyncio.run(stream(*of)),
        "schema": lambda *of: json.loads(asyncio.run(text(*of, response_format=said()))),
        "tool": called(lambda *of: asyncio.run(tool(*of))),
    }


def dspy(url: str) -> Asks:
    import dspy

    def predict(gate: str, prompt: str, adapter: Any = None) -> str:
        lm = dspy.LM(f"openai/{gate}", api_base=url, api_key=KEY, cache=False, num_retries=0)
        with dspy.context(lm=lm, adapter=adapter):
            return str(dspy.Predict("question -> said")(question=prompt).said)

    return {"text": predict, "schema": lambda *of: {"said": predict(*of, dspy.JSONAdapter())}}


def pydantic_ai(url: str, *, responses: bool = False) -> Asks:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent(gate: str, **options: Any) -> Any:
        client = AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0)
        kind: Any = OpenAIResponsesModel if responses else OpenAIChatModel
        return Agent(kind(gate, provider=OpenAIProvider(openai_client=client)), **options)

    async def stream(gate: str, prompt: str) -> str:
        async with agent(gate).run_stream(prompt) as run:
            return str(await run.get_output())

    return {
        "text": lambda gate, prompt: agent(gate).run_sync(prompt).output,
        "stream": lambda *of: asyncio.run(stream(*of)),
        "schema": lambda gate, prompt: agent(gate, output_type=said()).run_sync(prompt).output,
        "tool": called(lambda tool, gate, prompt: agent(gate, tools=[tool]).run_sync(prompt)),
    }


def llama_index(url: str) -> Asks:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    def model(gate: str) -> Any:
        return OpenAILike(
            model=gate, api_base=url, api_key=KEY, max_retries=0, is_chat_model=True,
            is_function_calling_model=True,
        )  # fmt: skip

    def tool(gate: str, prompt: str) -> Any:
        answer = model(gate).chat_with_tools([FunctionTool.from_defaults(look)], user_msg=prompt)
        return model(gate).get_tool_calls_from_response(answer)[0].tool_kwargs

    return {
        "text": lambda gate, prompt: model(gate).complete(prompt).text,
        "stream": lambda gate, prompt: "".join(
            one.delta or "" for one in model(gate).stream_complete(prompt)
        ),
        "schema": lambda gate, prompt: (
            model(gate).as_structured_llm(said()).chat([ChatMessage(content=prompt)]).raw
        ),
        "tool": tool,
    }


def instructor(url: str) -> Asks:
    from instructor import from_openai
    from openai import OpenAI

    def schema(gate: str, prompt: str) -> Any:
        made: Any = from_openai(OpenAI(base_url=url, api_key=KEY, max_retries=0))
        messages = [{"role": "user", "content": prompt}]
        return made.chat.completions.create(
            model=gate, messages=messages, response_model=said(), max_retries=0
        )

    return {"schema": schema}


def agent(*command: str, **environment: str) -> list[Any]:
    """What a program of npm prints: it is nobody's here, and all that it asks goes to the gate."""
    home = tempfile.mkdtemp(dir=MODULES.parent)
    done = subprocess.run(
        ["node", *command], cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": home, "CODEX_HOME": home} | environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class APIError(Exception):
    """What an agent says in place of an answer."""


def claude_code(url: str) -> Asks:
    def ask(gate: str, prompt: str) -> list[Any]:
        names = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL")
        told = agent(
            *(f"{MODULES}/@anthropic-ai/claude-code/cli-wrapper.cjs", "-p", prompt),
            *("--output-format", "stream-json", "--verbose"),
            ANTHROPIC_BASE_URL=url.removesuffix("/v1"),
            ANTHROPIC_API_KEY=KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            CLAUDE_CODE_MAX_RETRIES="0",
            **dict.fromkeys(names, gate),
        )
        if told[-1]["is_error"]:
            raise APIError(told[-1]["result"])
        return told

    def tool(*of: str) -> Any:
        parts = [part for one in ask(*of) if one["type"] == "assistant" for part in one["message"]["content"]]
        return next(part["input"] for part in parts if part["type"] == "tool_use")

    return {"stream": lambda *of: ask(*of)[-1]["result"], "tool": tool}


def codex(url: str) -> Asks:
    gates = f'{{name="gates", base_url="{url}", request_max_retries=0, stream_max_retries=0}}'
    own = (
        "--disable",
        "multi_agent",
        "-c",
        'web_search="disabled"',
    )  # no functions, so that no gate judges them
    provider = ("-c", 'model_provider="gates"', "-c", f"model_providers.gates={gates}")

    def ask(gate: str, prompt: str) -> Any:
        how = ("--skip-git-repo-check", "--json", "-m", gate, *own, *provider)
        told = agent(f"{MODULES}/@openai/codex/bin/codex.js", "exec", *how, prompt)
        if told[-1]["type"] == "turn.failed":
            raise APIError(told[-1]["error"]["message"])
        items = [one["item"] for one in told if one["type"] == "item.completed"]
        return "".join(one["text"] for one in items if one["type"] == "agent_message")

    return {"stream": ask}


LIBRARIES: dict[str, tuple[str, Callable[[str], Asks]]] = {
    "openai": ("openai", openai_chat),
    "openai, Responses": ("openai", openai_responses),
    "anthropic": ("anthropic", anthropic),
    "LangChain": ("langchain-openai", langchain),
    "LangChain, Responses": ("langchain-openai", lambda url: langchain(url, responses=True)),
    "Agents SDK": ("openai-agents", lambda url: agents(url, responses=True)),
    "Agents SDK, chat": ("openai-agents", agents),
    "LiteLLM": ("litellm", litellm),
    "Haystack": ("haystack-ai", haystack),
    "Semantic Kernel": ("semantic-kernel", semantic_kernel),
    "DSPy": ("dspy", dspy),
    "pydantic-ai": ("pydantic-ai-slim", lambda url: pydantic_ai(url, responses=True)),
    "pydantic-ai, chat": ("pydantic-ai-slim", pydantic_ai),
    "LlamaIndex": ("llama-index-llms-openai-like", llama_index),
    "instructor": ("instructor", instructor),
    "Claude Code": ("@anthropic-ai/claude-code", claude_code),
    "Codex": ("@openai/codex", codex),
}
"""By name: the package, and what makes the requests. Those of npm are in `MODULES`."""


def release(package: str) -> str:
    """The release that is installed."""
    if not package.startswith("@"):
        return version(package)
    return str(json.loads((MODULES / package / "package.json").read_text())["version"])


def tried(ask: Callable[[str, str], Any], gate: str, prompt: str) -> Any:
    """What came, or the error's name and its text."""
    try:
        found = ask(gate, prompt)
    except Exception as error:
        return {"error": type(error).__name__, "says": str(error)}
    return {"came": found.model_dump() if hasattr(found, "model_dump") else found}


if __name__ == "__main__":
    url, *names = sys.argv[1:]
    for name in names:
        package, make = LIBRARIES[name]
        kinds: dict[str, Any] = {}
        for kind, ask in make(url).items():
            # A question's number says what the model answers: one that agrees ships, one that differs is held.
            for gate in GATES:
                kinds.setdefault(kind, {})[gate] = came = [
                    tried(ask, gate, f"Question {one}") for one in (1, 3)
                ]
                if "came" in came[0]:
                    break
        print(json.dumps({"name": name, "version": release(package), "kinds": kinds}), flush=True)
