"""A gate as the model of an agent of the OpenAI Agents SDK: `streamer serve` samples and decides, by `/v1/responses`.

A turn that is held is a refusal, and ends the run.

    python openai_agents_model.py "Where is my parcel?"
"""

import asyncio
import os
import sys

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

HOLD = "Somebody will come back to you."

set_tracing_disabled(True)  # no copy of the texts to anybody

client = AsyncOpenAI(
    base_url=os.environ.get("GATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("GATE_KEY", "none"),
    timeout=60,  # longer than the service waits (`streamer serve --wait`), so that its own hold arrives
    max_retries=0,  # a retry samples other answers, unless it has the same Idempotency-Key
)
agent = Agent(
    name="Support", model=OpenAIResponsesModel(os.environ.get("GATE", "support-bot"), openai_client=client)
)


async def answer(prompt: str) -> str:
    """The agent's answer, all of whose turns shipped, or the hold."""
    try:
        return (await Runner.run(agent, prompt)).final_output
    except Exception as error:  # a refusal, too
        print(f"held: {error}", file=sys.stderr)
        return HOLD


async def main(prompts: list[str]) -> None:
    """Answer prompts, one after the other."""
    for prompt in prompts:
        print(await answer(prompt))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
