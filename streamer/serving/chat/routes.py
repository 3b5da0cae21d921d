"""The addresses at which a gate answers in place of a model."""

from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamer.events import codes
from streamer.events.actions import decode_action
from streamer.events.cloudevents import rfc3339
from streamer.gates.batch_key import BatchKey
from streamer.journal import RecordedBatch
from streamer.serving import requests
from streamer.serving.authorize import SEEING
from streamer.serving.chat.answer import answer
from streamer.serving.chat.counter import ChatCounter
from streamer.serving.chat.protocols import PROTOCOLS, respond
from streamer.serving.chat.request import MODEL_PREFIX, gate_of, no_model, read
from streamer.serving.deadline import applied, desk_seconds
from streamer.serving.problems import Problem
from streamer.serving.requests import Answering
from streamer.store.desk.rows import DeskState


def chat_routes(counter: ChatCounter, answering: Answering) -> list[Route]:
    """Make the routes."""
    authorize = answering.authorize

    async def complete(request: Request) -> Response:
        authorize.enter(request)
        until, now = answering.deadline(request)
        # What cannot be read is refused before anything is spent.
        at_most = desk_seconds(request.headers.getlist("prefer"))
        protocol = PROTOCOLS[request.url.path]
        raw = await answering.body(request, until)
        asked = read(raw, protocol.as_chat, protocol.needed, max_depth=answering.limits.max_depth)
        await authorize(request, asked.gate, "decide")
        done = await counter.complete(
            asked,
            until,
            idempotency_key=answering.idempotency_key(request),
            headers=requests.trace(request),
            timestamp_ms=requests.milliseconds(now),
        )
        state = await _at_desk(done.batch, at_most)
        upstream = counter.samplers[asked.gate].upstream
        found = respond(request, answer(done, upstream, asked, desk=state), asked)
        found.headers.update(applied(request, until))
        return found

    async def _at_desk(batch: RecordedBatch, seconds: float | None) -> DeskState | None:
        """What became of a held batch at the desk, after `seconds` at most; None where nobody was asked about it."""
        action = decode_action(batch.action)
        if action.desk_until is msgspec.UNSET:
            return None
        key = BatchKey(action.gate, action.batch_id, action.attempt)
        return await answering.releases.state(key, seconds or 0.0)

    async def models(request: Request) -> Response:
        authorize.enter(request)
        found = [await _model(request, gate) for gate in sorted(counter.samplers)]
        shown = [one for one in found if one is not None]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        listed = {"object": "list", "data": shown, "has_more": False, "first_id": first, "last_id": last}
        return requests.as_json(msgspec.json.encode(listed))

    async def model(request: Request) -> Response:
        authorize.enter(request)
        gate = gate_of(unquote(request.path_params["model"]))  # some clients escape twice
        found = await _model(request, gate)
        if found is None:
            raise no_model(gate)
        return requests.as_json(msgspec.json.encode(found))

    async def _model(request: Request, gate: str) -> dict[str, Any] | None:
        """A gate that may be asked, as a model; None: it may not."""
        if (
            gate not in counter.samplers
            or counter.is_later(gate)
            or not authorize.may(request, gate, *SEEING)
        ):
            return None
        try:
            policy = await answering.request_log.policy(gate)
        except Problem as problem:
            if problem.code != codes.UNKNOWN_GATE:
                raise
            return None  # configured, and not created yet
        return {
            "id": f"{MODEL_PREFIX}{gate}",
            "object": "model",
            "type": "model",  # these three are Anthropic's
            "display_name": gate,
            "created_at": rfc3339(policy.valid_from),
            "created": int(policy.valid_from.timestamp()),
            "owned_by": counter.samplers[gate].upstream.id,
        }

    return [
        *(Route(path, complete, methods=["POST"]) for path in PROTOCOLS),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{model:path}", model, methods=["GET"]),
    ]
