"""A gate as an output guardrail of the OpenAI Agents SDK.

A gate compares several answers, so the guardrail lets the agent answer the same prompt a few times more. It trips unless
the gate ships the very answer that the agent gave. Use `Runner.run`: with `Runner.run_streamed` the text is out before any
output guardrail runs.

    python openai_agents_guardrail.py "Where is my parcel?"
"""

import asyncio
import os
import sys

from agents import (
    Agent,
    GuardrailFunctionOutput,
    OutputGuardrailTripwireTriggered,
    RunContextWrapper,
    Runner,
    output_guardrail,
    set_default_openai_api,
    set_tracing_disabled,
)

from streamer.client import AsyncClient

HOLD = "Somebody will come back to you."
GATE = os.environ.get("GATE", "support-bot")
ANSWERS = int(os.environ.get("ANSWERS", "10"))  # as many as the gate was calibrated on

set_tracing_disabled(True)  # no copy of the texts to anybody
set_default_openai_api("chat_completions")


@output_guardrail
async def gate(context: RunContextWrapper[str], agent: Agent, output: str) -> GuardrailFunctionOutput:
    """Trip unless the gate ships `output`. An error ends the run, too."""
    prompt = context.context
    bare = agent.clone(output_guardrails=[])
    others = await asyncio.gather(*(Runner.run(bare, prompt) for _ in range(ANSWERS - 1)))
    async with AsyncClient(
        os.environ.get("GATE_URL", "http://127.0.0.1:8080"),
        key=os.environ.get("GATE_KEY"),
        deadline=float(os.environ.get("GATE_SECONDS", "10")),
    ) as client:
        decision = await client.decide(GATE, prompt, [output, *(other.final_output for other in others)])
    ships = decision.ships
    return GuardrailFunctionOutput(decision, tripwire_triggered=not (ships and decision.answer == output))


agent = Agent(
    name="Support",
    model=os.environ.get("MODEL", "gpt-4o-mini"),
    output_guardrails=[gate],
)


async def answer(prompt: str) -> str:
    """The agent's answer where the gate ships it, or the hold."""
    try:
        return (await Runner.run(agent, prompt, context=prompt)).final_output
    except OutputGuardrailTripwireTriggered as tripped:
        decision = tripped.guardrail_result.output.output_info
        if decision.ships:  # another of the answers, which may be shown
            return decision.answer
        print(f"held: {decision.reason} {decision.detail}", file=sys.stderr)
    except Exception as error:
        print(f"held: {error}", file=sys.stderr)
    return HOLD


async def main(prompts: list[str]) -> None:
    """Answer prompts, one after the other."""
    for prompt in prompts:
        print(await answer(prompt))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
