"""The service's addresses."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streamer.errors import BadMessage
from streamer.events.limits import Limits
from streamer.events.responses import read_attempt
from streamer.gates.batch_key import BatchKey
from streamer.security.api_keys import May
from streamer.serving import bodies, requests
from streamer.serving.authorize import Authorize
from streamer.serving.chat.counter import ChatCounter
from streamer.serving.chat.protocols import refuse
from streamer.serving.chat.routes import chat_routes
from streamer.serving.deadlines import Deadline, deadline, desk_seconds, wanted_seconds
from streamer.serving.gate_view import gate_view
from streamer.serving.openapi import document, page
from streamer.serving.problems import Problem, refused
from streamer.serving.releases import RETRY_AFTER, Releases, not_at_desk, told, with_disputed, with_text
from streamer.serving.request_log import RequestLog
from streamer.web.guard import HEADERS


def serving_app(
    request_log: RequestLog,
    *,
    limits: Limits,
    longest: float,
    clock: Callable[[], datetime],
    authorize: Authorize,
    chat: ChatCounter,
    releases: Releases,
    origins: Sequence[str] = (),
) -> Starlette:
    """Make the application. A request may take `longest` seconds, > 0, and takes as long where
    it asks for nothing; `clock` gives the present moment, with zone. `authorize` is asked about
    each request of a gate. `origins` are of pages that may ask from a browser."""

    async def decide(request: Request, gate: str) -> Response:
        until, now = _deadline(request)
        at_most = desk_seconds(request.headers.getlist("prefer"))
        raw = await requests.body(request, limits.max_value_bytes, until)
        try:
            batch = bodies.batch(
                raw, gate=gate, idempotency_key=requests.idempotency_key(request), limits=limits
            )
        except BadMessage as bad:
            await request_log.refuse(raw, bad, until, timestamp_ms=int(now.timestamp() * 1000))
            raise
        answer = await request_log.decide(
            batch, until, headers=requests.trace(request), timestamp_ms=int(now.timestamp() * 1000)
        )
        headers = {"idempotent-replayed": "true"} if answer.again else {}
        action = answer.action if at_most is None else await releases.with_desk(answer.action, at_most)
        action = with_disputed(action, {one.id: one.text for one in batch.event.responses})
        action = with_text(action, batch.event)
        return _json(action, headers | requests.receipt(answer.receipt) | requests.applied(request, until))

    async def decision(request: Request, gate: str) -> Response:
        key = _key(request, gate)
        await request_log.policy(gate)
        found = await request_log.find(key)
        return _json(found.action, requests.receipt(found.receipt))

    async def at_desk(request: Request, gate: str) -> Response:
        key, prefer = _key(request, gate), request.headers.getlist("prefer")
        wanted = wanted_seconds(prefer, request.query_params.get("wait_ms"))
        await request_log.policy(gate)
        state = await releases.state(key, wanted or 0.0)
        if state is None:
            await request_log.find(key)  # there is none: said so
            raise not_at_desk(key)
        if state.outcome is None:
            return Response(told(key, state), 202, headers=RETRY_AFTER, media_type="application/json")
        return _json(told(key, state), requests.receipt(await releases.receipt(state.outcome)))

    def _key(request: Request, gate: str) -> BatchKey:
        attempt = read_attempt(request.query_params.get("attempt", "1"))
        if attempt is None:
            raise Problem(400, "bad_request", "attempt must be a number from 1")
        return BatchKey(gate, request.path_params["batch_id"], attempt)

    async def label(request: Request, gate: str) -> Response:
        until, now = _deadline(request)
        raw = await requests.body(request, limits.max_value_bytes, until)
        try:
            severities = bodies.severities(raw, gate=gate, limits=limits, now=now)
        except BadMessage as bad:
            await request_log.refuse(raw, bad, until, timestamp_ms=int(now.timestamp() * 1000), labels=True)
            raise
        taken = await request_log.label(gate, severities, until, timestamp_ms=int(now.timestamp() * 1000))
        told = {name: number for name, number in taken._asdict().items() if number or name == "recorded"}
        return _json(msgspec.json.encode(told))

    async def show(_request: Request, gate: str) -> Response:
        policy = await request_log.policy(gate, fresh=True)
        return _json(msgspec.json.encode(gate_view(policy, *await request_log.judge(gate))))

    async def describe(_request: Request) -> Response:
        return _json(document())

    async def show_docs(_request: Request) -> Response:
        return HTMLResponse(page(), headers=HEADERS)

    def _deadline(request: Request) -> tuple[Deadline, datetime]:
        now = clock()
        wanted = wanted_seconds(request.headers.getlist("prefer"), request.query_params.get("wait_ms"))
        return deadline(wanted, longest, now=now), now

    def of_gate(may: May, handle: Callable[[Request, str], Awaitable[Response]]) -> Any:
        async def answer(request: Request) -> Response:
            gate = request.path_params["gate"]
            problem = await authorize(request, gate, may)
            if problem is not None:
                raise problem
            return await handle(request, gate)

        return answer

    of = "/v1/gates/{gate}"
    return Starlette(
        routes=[
            Route(f"{of}/decisions", of_gate("decide", decide), methods=["POST"]),
            Route(f"{of}/decisions/{{batch_id:path}}", of_gate("read", decision), methods=["GET"]),
            Route(f"{of}/desk/{{batch_id:path}}", of_gate("read", at_desk), methods=["GET"]),
            Route(f"{of}/labels", of_gate("label", label), methods=["POST"]),
            Route(of, of_gate("read", show), methods=["GET"]),
            *chat_routes(
                chat, request_log, releases, authorize, deadline=_deadline, most_bytes=limits.max_value_bytes
            ),
            Route("/openapi.json", describe, methods=["GET"]),
            Route("/docs", show_docs, methods=["GET"]),
        ],
        # Whoever asks says so by a key, never by a cookie: then every header may be sent and read.
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["*"],
            )
        ]
        if origins
        else [],
        exception_handlers={
            Problem: _problem,
            BadMessage: _refused,
            HTTPException: _not_there,
            Exception: _failed,
        },
    )


def _json(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, headers=headers, media_type="application/json")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return refuse(request, error)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadMessage)
    return refuse(request, refused(error.code, error.detail))


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    problem = Problem(error.status_code, code, f"{error.detail}; GET /openapi.json lists what there is")
    response = refuse(request, problem)
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, _error: Exception) -> Response:
    return refuse(request, refused("internal_error", "the service failed; hold, and see its log"))
