"""A gate as the upstream of a LiteLLM call: `streamer serve` samples and decides.

python litellm_sdk.py "Where is my parcel?"
"""

import os
import sys

import litellm

HOLD = "Somebody will come back to you."
GATE = os.environ.get("GATE", "support-bot")

litellm.suppress_debug_info = True  # it goes to standard output


def answer(prompt: str) -> str:
    """The answer that the gate ships, or the hold."""
    try:
        completion = litellm.completion(
            model=f"openai/gate/{GATE}",
            api_base=os.environ.get("GATE_URL", "http://127.0.0.1:8080") + "/v1",
            api_key=os.environ.get("GATE_KEY", "none"),
            messages=[{"role": "user", "content": prompt}],
            timeout=60,  # longer than the service waits (`streamer serve --wait`), so that its own hold arrives
            max_retries=0,  # a retry samples other answers, unless it has the same Idempotency-Key
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
