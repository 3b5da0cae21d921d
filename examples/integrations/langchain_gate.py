"""A gate as the last step of a LangChain chain: your own model samples, the gate decides.

The chain is a Runnable from a prompt to the answer that ships, or to the hold. The model is any chat model; here it is the
one at OPENAI_BASE_URL.

    python langchain_gate.py "Where is my parcel?"
"""

import os
import sys

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_openai import ChatOpenAI

from streamer_client import Client

HOLD = "Somebody will come back to you."
ANSWERS = int(os.environ.get("ANSWERS", "10"))  # as many as the gate was calibrated on


def gated(model: BaseChatModel, client: Client, gate: str) -> Runnable[str, str]:
    """From a prompt to the answer that the gate ships, or the hold."""

    def sample(prompt: str) -> list[str]:
        return [message.text for message in model.batch([prompt] * ANSWERS)]

    def decide(batch: dict) -> str:
        # Within the deadline it holds whatever goes wrong, and raises nothing.
        decision = client.decide(gate, batch["prompt"], batch["answers"])
        if decision.text is None:
            return hold(f"{decision.reason} {decision.detail}")
        return decision.text

    chain = {"prompt": RunnablePassthrough(), "answers": RunnableLambda(sample)} | RunnableLambda(decide)
    return chain.with_fallbacks([RunnableLambda(lambda _: hold("the model did not answer"))])


def hold(why: str) -> str:
    """Say why on the log, and nothing to the user."""
    print(f"held: {why}", file=sys.stderr)
    return HOLD


if __name__ == "__main__":
    client = Client(
        os.environ.get("GATE_URL", "http://127.0.0.1:8080"),
        key=os.environ.get("GATE_KEY"),
        deadline=float(os.environ.get("GATE_SECONDS", "10")),
    )
    with client:
        chain = gated(
            ChatOpenAI(model=os.environ.get("MODEL", "gpt-4o-mini"), temperature=0.7),
            client,
            os.environ.get("GATE", "support-bot"),
        )
        for prompt in sys.argv[1:]:
            print(chain.invoke(prompt))
