"""A gate as a LangChain chat model: `streamer serve` samples and decides.

`ChatOpenAI` keeps none of the decision but its headers, so that is where the chain looks.

    python langchain_model.py "Where is my parcel?"
"""

import os
import sys

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

HOLD = "Somebody will come back to you."

model = ChatOpenAI(
    model="gate/" + os.environ.get("GATE", "support-bot"),
    base_url=os.environ.get("GATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("GATE_KEY", "none"),
    include_response_headers=True,
    timeout=60,  # longer than the service waits (`streamer serve --wait`), so that its own hold arrives
    max_retries=0,  # a retry samples other answers, unless it has the same Idempotency-Key
)


def shipped(message: AIMessage) -> str:
    """The text of a message that ships, or the hold."""
    headers = message.response_metadata["headers"]
    if headers["x-streamer-action"] == "ship" and headers["x-streamer-enforced"] == "true":
        return message.text
    return hold(message.response_metadata["finish_reason"])


def hold(why: str) -> str:
    """Say why on the log, and nothing to the user."""
    print(f"held: {why}", file=sys.stderr)
    return HOLD


no_answer = RunnableLambda(lambda _: hold("the service did not answer"))
chain = (model | RunnableLambda(shipped)).with_fallbacks([no_answer])

if __name__ == "__main__":
    for prompt in sys.argv[1:]:
        print(chain.invoke(prompt))
