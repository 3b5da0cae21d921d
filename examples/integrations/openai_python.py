"""The package `openai`, unchanged, with a gate in place of the model.

`streamer serve` samples the answers, and returns the one that ships. Anything else is held, also when it cannot be reached.

    python openai_python.py "Where is my parcel?"
"""

import os
import sys

from openai import OpenAI

HOLD = "Somebody will come back to you."
GATE = os.environ.get("GATE", "support-bot")

client = OpenAI(
    base_url=os.environ.get("GATE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("GATE_KEY", "none"),
    timeout=60,  # longer than the service waits (`streamer serve --wait`), so that its own hold arrives
    max_retries=0,  # a retry samples other answers, unless it has the same Idempotency-Key
)


def answer(prompt: str) -> str:
    """The answer that the gate ships, or the hold."""
    try:
        completion = client.chat.completions.create(
            model=f"gate/{GATE}", messages=[{"role": "user", "content": prompt}]
        )
        decision = completion.streamer  # the decision on record, beside OpenAI's own members
        if decision["action"] == "ship" and decision["enforced"]:
            return completion.choices[0].message.content
        print(f"held: {decision['reason']}", file=sys.stderr)
    except Exception as error:
        print(f"held: {error}", file=sys.stderr)
    return HOLD


if __name__ == "__main__":
    for prompt in sys.argv[1:]:
        print(answer(prompt))
