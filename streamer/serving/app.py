"""The service's addresses."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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
from streamer.serving.deadline import Deadline, applied, deadline, desk_seconds, wanted_seconds
from streamer.serving.gate_view import gate_view
from streamer.serving.openapi import document, page
from streamer.serving.problems import Problem, refused
from streamer.serving.releases import RETRY_AFTER, Releases, not_at_desk, told, with_disputed, with_text
from streamer.serving.request_log import RequestLog
from streamer.web.guard import HEADERS


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfGates:
    """What is answered at the addresses of gates."""

    request_log: RequestLog
    limits: Limits
    longest: float
    clock: Callable[[], datetime]
    authorize: Authorize
    releases: Releases

    def routes(self) -> list[Route]:
        of = "/v1/gates/{gate}"
        return [
            Route(f"{of}/decisions", self._allowed("decide", self._decide), methods=["POST"]),
            Route(
                f"{of}/decisions/{{batch_id:path}}", self._allowed("read", self._decision), methods=["GET"]
            ),
            Route(f"{of}/desk/{{batch_id:path}}", self._allowed("read", self._at_desk), methods=["GET"]),
            Route(f"{of}/labels", self._allowed("label", self._label), methods=["POST"]),
            Route(of, self._allowed("read", self._show), methods=["GET"]),
        ]

    def deadline(self, request: Request) -> tuple[Deadline, datetime]:
        """That of a request that comes now, and now."""
        now = self.clock()
        wanted = wanted_seconds(request.headers.getlist("prefer"), request.query_params.get("wait_ms"))
        return deadline(wanted, self.longest, now=now), now

    def _allowed(self, may: May, handle: Callable[[Request, str], Awaitable[Response]]) -> Any:
        async def answer(request: Request) -> Response:
            gate = request.path_params["gate"]
            problem = await self.authorize(request, gate, may)
            if problem is not None:
                raise problem
            return await handle(request, gate)

        return answer

    async def _decide(self, request: Request, gate: str) -> Response:
        until, now = self.deadline(request)
        at_most = desk_seconds(request.headers.getlist("prefer"))
        raw = await requests.body(request, self.limits.max_value_bytes, until)
        try:
            batch = bodies.batch(
                raw, gate=gate, idempotency_key=requests.idempotency_key(request), limits=self.limits
            )
        except BadMessage as bad:
            await self.request_log.refuse(raw, bad, until, timestamp_ms=_milliseconds(now))
            raise
        answer = await self.request_log.decide(
            batch, until, headers=requests.trace(request), timestamp_ms=_milliseconds(now)
        )
        headers = {"idempotent-replayed": "true"} if answer.again else {}
        action = answer.action if at_most is None else await self.releases.with_desk(answer.action, at_most)
        action = with_disputed(action, {one.id: one.text for one in batch.event.responses})
        action = with_text(action, batch.event)
        return _json(action, headers | requests.receipt(answer.receipt) | applied(request, until))

    async def _decision(self, request: Request, gate: str) -> Response:
        key = _key(request, gate)
        await self.request_log.policy(gate)
        found = await self.request_log.find(key)
        return _json(found.action, requests.receipt(found.receipt))

    async def _at_desk(self, request: Request, gate: str) -> Response:
        key, prefer = _key(request, gate), request.headers.getlist("prefer")
        wanted = wanted_seconds(prefer, request.query_params.get("wait_ms"))
        await self.request_log.policy(gate)
        state = await self.releases.state(key, wanted or 0.0)
        if state is None:
            await self.request_log.find(key)  # there is none: said so
            raise not_at_desk(key)
        if state.outcome is None:
            return Response(told(key, state), 202, headers=RETRY_AFTER, media_type="application/json")
        return _json(told(key, state), requests.receipt(await self.releases.receipt(state.outcome)))

    async def _label(self, request: Request, gate: str) -> Response:
        until, now = self.deadline(request)
        raw = await requests.body(request, self.limits.max_value_bytes, until)
        try:
            severities = bodies.severities(raw, gate=gate, limits=self.limits, now=now)
        except BadMessage as bad:
            await self.request_log.refuse(raw, bad, until, timestamp_ms=_milliseconds(now), labels=True)
            raise
        taken = await self.request_log.label(gate, severities, until, timestamp_ms=_milliseconds(now))
        told = {name: number for name, number in taken._asdict().items() if number or name == "recorded"}
        return _json(msgspec.json.encode(told))

    async def _show(self, _request: Request, gate: str) -> Response:
        policy = await self.request_log.policy(gate, fresh=True)
        return _json(msgspec.json.encode(gate_view(policy, *await self.request_log.judge(gate))))


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
    gates = _OfGates(
        request_log=request_log,
        limits=limits,
        longest=longest,
        clock=clock,
        authorize=authorize,
        releases=releases,
    )
    # Whoever asks says so by a key, never by a cookie: then every header may be sent and read.
    from_pages = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["*"],
    )
    return Starlette(
        routes=[
            *gates.routes(),
            *chat_routes(
                chat,
                request_log,
                releases,
                authorize,
                deadline=gates.deadline,
                most_bytes=limits.max_value_bytes,
            ),
            Route("/openapi.json", _describe, methods=["GET"]),
            Route("/docs", _show_docs, methods=["GET"]),
        ],
        middleware=[from_pages] if origins else [],
        exception_handlers=dict.fromkeys((Problem, BadMessage, HTTPException, Exception), _refuse),
    )


async def _describe(_request: Request) -> Response:
    return _json(document())


async def _show_docs(_request: Request) -> Response:
    return HTMLResponse(page(), headers=HEADERS)


def _json(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, headers=headers, media_type="application/json")


def _key(request: Request, gate: str) -> BatchKey:
    attempt = read_attempt(request.query_params.get("attempt", "1"))
    if attempt is None:
        raise Problem(400, "bad_request", "attempt must be a number from 1")
    return BatchKey(gate, request.path_params["batch_id"], attempt)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        code = "method_not_allowed" if error.status_code == 405 else "not_found"
        problem = Problem(error.status_code, code, f"{error.detail}; GET /openapi.json lists what there is")
        response = refuse(request, problem)
        response.headers.update(error.headers or {})
        return response
    if isinstance(error, BadMessage):
        return refuse(request, refused(error.code, error.detail))
    if isinstance(error, Problem):
        return refuse(request, error)
    return refuse(request, refused("internal_error", "the service failed; hold, and see its log"))
