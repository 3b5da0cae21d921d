"""The addresses at which a gate answers in place of a model."""

from collections.abc import Callable
from datetime import datetime
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
from streamer.serving.authorize import Authorize
from streamer.serving.chat.answer import answer
from streamer.serving.chat.counter import ChatCounter
from streamer.serving.chat.protocols import PROTOCOLS, respond
from streamer.serving.chat.request import MODEL_PREFIX, gate_of, no_model, read
from streamer.serving.deadline import Deadline, applied, desk_seconds
from streamer.serving.problems import Problem
from streamer.serving.releases import Releases
from streamer.serving.request_log import RequestLog
from streamer.store.desk.rows import DeskState


def chat_routes(
    counter: ChatCounter,
    request_log: RequestLog,
    releases: Releases,
    authorize: Authorize,
    *,
    deadline: Callable[[Request], tuple[Deadline, datetime]],
    most_bytes: int,
) -> list[Route]:
    """Make the routes. `deadline` gives that of a request that comes now, or raises `Problem`; a
    body has at most `most_bytes`."""

    async def complete(request: Request) -> Response:
        _admitted(authorize.enter(request))
        until, now = deadline(request)
        desk_seconds(
            request.headers.getlist("prefer")
        )  # what cannot be read is refused before anything is spent
        protocol = PROTOCOLS[request.url.path]
        asked = read(await requests.body(request, most_bytes, until), protocol.as_chat, protocol.needed)
        _admitted(await authorize(request, asked.gate, "decide"))
        done = await counter.complete(
            asked,
            until,
            idempotency_key=requests.idempotency_key(request),
            headers=requests.trace(request),
            timestamp_ms=int(now.timestamp() * 1000),
        )
        state = await _at_desk(done.batch, desk_seconds(request.headers.getlist("prefer")))
        found = respond(
            request, answer(done, counter.samplers[asked.gate].upstream, asked, desk=state), asked
        )
        found.headers.update(applied(request, until))
        return found

    async def _at_desk(batch: RecordedBatch, seconds: float | None) -> DeskState | None:
        """What became of a held batch at the desk, after `seconds` at most; None where nobody was asked about it."""
        action = decode_action(batch.action)
        if action.desk_until is msgspec.UNSET:
            return None
        key = BatchKey(action.gate, action.batch_id, action.attempt)
        return await releases.state(key, seconds or 0.0)

    async def models(request: Request) -> Response:
        _admitted(authorize.enter(request))
        found = [await _model(request, gate) for gate in sorted(counter.samplers)]
        shown = [one for one in found if one is not None]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        listed = {"object": "list", "data": shown, "has_more": False, "first_id": first, "last_id": last}
        return Response(msgspec.json.encode(listed), media_type="application/json")

    async def model(request: Request) -> Response:
        _admitted(authorize.enter(request))
        gate = gate_of(unquote(request.path_params["model"]))  # some clients escape twice
        found = await _model(request, gate)
        if found is None:
            raise no_model(gate)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def _model(request: Request, gate: str) -> dict[str, Any] | None:
        """A gate that may be asked, as a model; None: it may not."""
        if gate not in counter.samplers or counter.is_later(gate) or not authorize.sees(request, gate):
            return None
        try:
            policy = await request_log.policy(gate)
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


def _admitted(problem: Problem | None) -> None:
    if problem is not None:
        raise problem
