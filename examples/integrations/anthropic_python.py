"""A gate in place of a model by Anthropic's package: another `base_url`, and nothing else.

python anthropic_python.py "Where is my parcel?"
"""

import os
import sys

import anthropic

HOLD = "Somebody will come back to you."

client = anthropic.Anthropic(
    base_url=os.environ.get("GATE_URL", "http://127.0.0.1:8080"),
    api_key=os.environ.get("GATE_KEY", "none"),
    timeout=60,  # longer than the service waits (`streamer serve --wait`), so that its own hold arrives
    max_retries=0,  # a retry samples other answers, unless it has the same Idempotency-Key
)


def answer(prompt: str) -> str:
    """The answer that ships, or the hold."""
    try:
        message = client.messages.create(
            model=os.environ.get("GATE", "support-bot"),
            max_tokens=1000,  # the upstream's own limit is in force
            messages=[{"role": "user", "content": prompt}],
        )
        decision = message.streamer
        if decision["action"] == "ship" and decision["enforced"]:
            return message.content[0].text
        print(f"held: {decision['reason']}", file=sys.stderr)
    except anthropic.AnthropicError as error:
        print(f"held: {error}", file=sys.stderr)
    return HOLD


if __name__ == "__main__":
    for prompt in sys.argv[1:]:
        print(answer(prompt))
