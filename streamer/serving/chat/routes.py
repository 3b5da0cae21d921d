"""The addresses of OpenAI's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from streamer.errors import BadMessage
from streamer.events import codes
from streamer.events.actions import decode_action
from streamer.gates.batch_key import BatchKey
from streamer.serving import requests
from streamer.serving.chat.answer import answer, error
from streamer.serving.chat.request import MODEL_PREFIX, read
from streamer.serving.deadlines import desk_seconds
from streamer.serving.problems import Problem, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from starlette.requests import Request

    from streamer.journal import RecordedBatch
    from streamer.serving.authorize import Authorize
    from streamer.serving.chat.counter import ChatCounter
    from streamer.serving.deadlines import Deadline
    from streamer.serving.releases import Releases, State
    from streamer.serving.request_log import RequestLog


def chat_routes(
    counter: ChatCounter,
    request_log: RequestLog,
    releases: Releases,
    authorize: Authorize,
    *,
    deadline: Callable[[Request], tuple[Deadline, datetime]],
    most_bytes: int,
) -> list[Route]:
    """Make the routes.

    Parameters
    ----------
    deadline : of a request that comes now; raises `Problem`.
    most_bytes : of a body.
    """

    async def complete(request: Request) -> Response:
        _admitted(authorize.enter(request))
        until, now = deadline(request)
        desk_seconds(
            request.headers.getlist("prefer")
        )  # what cannot be read is refused before anything is spent
        asked = read(await requests.body(request, most_bytes, until))
        _admitted(await authorize(request, asked.gate, "decide"))
        done = await counter.complete(
            asked,
            until,
            idempotency_key=requests.idempotency_key(request),
            headers=requests.trace(request),
            timestamp_ms=int(now.timestamp() * 1000),
        )
        state = await _at_desk(done.batch, desk_seconds(request.headers.getlist("prefer")))
        found = answer(done, counter.samplers[asked.gate].upstream, asked, desk=state)
        found.headers.update(requests.applied(request, until))
        return found

    async def _at_desk(batch: RecordedBatch, seconds: float | None) -> State | None:
        """What became of a held batch at the desk, after `seconds` at most; None where nobody was asked about it."""
        action = decode_action(batch.action)
        if action.desk_until is msgspec.UNSET:
            return None
        key = BatchKey(action.gate, action.batch_id, action.attempt)
        return await releases.state(key, seconds or 0.0)

    async def models(request: Request) -> Response:
        _admitted(authorize.enter(request))
        found = []
        for gate in sorted(counter.samplers):
            if counter.is_later(gate) or not authorize.sees(request, gate):
                continue
            try:
                policy = await request_log.policy(gate)
            except Problem as problem:
                if problem.code != codes.UNKNOWN_GATE:
                    raise
                continue  # configured, and not created yet
            found.append(
                {
                    "id": f"{MODEL_PREFIX}{gate}",
                    "object": "model",
                    "created": int(policy.valid_from.timestamp()),
                    "owned_by": counter.samplers[gate].upstream.id,
                }
            )
        return Response(msgspec.json.encode({"object": "list", "data": found}), media_type="application/json")

    return [
        Route("/v1/chat/completions", _in_openais_form(complete), methods=["POST"]),
        Route("/v1/models", _in_openais_form(models), methods=["GET"]),
    ]


def _admitted(problem: Problem | None) -> None:
    if problem is not None:
        raise problem


def _in_openais_form(
    handle: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        try:
            return await handle(request)
        except Problem as problem:
            return error(problem)
        except BadMessage as bad:
            return error(refused(bad.code, bad.detail))

    return answered
