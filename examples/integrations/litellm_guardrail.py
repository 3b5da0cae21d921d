"""A gate as the generic guardrail of a LiteLLM proxy (litellm_guardrail.yaml); this service stands between the two.

LiteLLM asks twice: before the model with the prompt, after it with the texts of all choices. A gate compares several answers,
so the model must give several (`n`). Where the gate ships one, every choice gets its text; otherwise the request is blocked.
Let callers use chat completions only: LiteLLM holds back no stream of another form, and asks about no answer without text.

    python litellm_guardrail.py 8090
"""

import os
import sys
from collections import OrderedDict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from streamer.client import AsyncClient

GATE = os.environ.get("GATE", "support-bot")
MOST_PROMPTS = 10_000  # of calls that the model has not answered

client = AsyncClient(
    os.environ.get("GATE_URL", "http://127.0.0.1:8080"),
    key=os.environ.get("GATE_KEY"),
    deadline=float(os.environ.get("GATE_SECONDS", "10")),
)
prompts: OrderedDict[str, str] = OrderedDict()


async def check(request: Request) -> JSONResponse:
    """Remember the prompt of a call, then decide about its answers. Where this fails, the proxy blocks."""
    asked = await request.json()
    call = asked["litellm_call_id"]
    if asked["input_type"] == "request":
        prompts[call] = "\n\n".join(asked["texts"])
        if len(prompts) > MOST_PROMPTS:
            prompts.popitem(last=False)
        return JSONResponse({"action": "NONE"})
    answers = asked["texts"]
    decision = await client.decide(GATE, prompts.pop(call), answers)
    if decision.ships:
        return JSONResponse({"action": "GUARDRAIL_INTERVENED", "texts": [decision.answer] * len(answers)})
    return JSONResponse({"action": "BLOCKED", "blocked_reason": f"held: {decision.reason}"})


app = Starlette(routes=[Route("/beta/litellm_basic_guardrail_api", check, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
