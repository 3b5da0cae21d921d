"""The service's addresses."""

from collections.abc import Awaitable, Callable, Sequence
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
from streamer.events.responses import read_attempt
from streamer.gates.batch_key import BatchKey
from streamer.security.api_keys import May
from streamer.serving import bodies, requests
from streamer.serving.authorize import SEEING
from streamer.serving.chat.counter import ChatCounter
from streamer.serving.chat.protocols import refuse
from streamer.serving.chat.routes import chat_routes
from streamer.serving.deadline import applied, desk_seconds
from streamer.serving.gate_view import gate_view
from streamer.serving.openapi import document, page
from streamer.serving.problems import Problem, refused
from streamer.serving.releases import RETRY_AFTER, not_at_desk, told, with_disputed, with_text
from streamer.serving.requests import Answering
from streamer.web.guard import HEADERS


class OfGates(Answering):
    """What is answered at the addresses of gates."""

    def routes(self) -> list[Route]:
        """Make the routes."""
        of = "/v1/gates/{gate}"
        return [
            Route(f"{of}/decisions", self._allowed(self._decide, "decide"), methods=["POST"]),
            Route(
                f"{of}/decisions/{{batch_id:path}}", self._allowed(self._decision, *SEEING), methods=["GET"]
            ),
            Route(f"{of}/desk/{{batch_id:path}}", self._allowed(self._at_desk, *SEEING), methods=["GET"]),
            Route(f"{of}/labels", self._allowed(self._label, "label"), methods=["POST"]),
            Route(of, self._allowed(self._show, "read"), methods=["GET"]),
        ]

    def _allowed(self, handle: Callable[[Request, str], Awaitable[Response]], *may: May) -> Any:
        async def answer(request: Request) -> Response:
            gate = request.path_params["gate"]
            await self.authorize(request, gate, *may)
            return await handle(request, gate)

        return answer

    async def _decide(self, request: Request, gate: str) -> Response:
        until, now = self.deadline(request)
        at_most = desk_seconds(request.headers.getlist("prefer"))
        raw = await self.body(request, until)
        try:
            batch = bodies.batch(
                raw, gate=gate, idempotency_key=self.idempotency_key(request), limits=self.limits
            )
        except BadMessage as bad:
            await self.request_log.refuse(raw, bad, until, timestamp_ms=requests.milliseconds(now))
            raise
        answer = await self.request_log.decide(
            batch, until, headers=requests.trace(request), timestamp_ms=requests.milliseconds(now)
        )
        headers = {"idempotent-replayed": "true"} if answer.again else {}
        action = answer.action if at_most is None else await self.releases.with_desk(answer.action, at_most)
        action = with_disputed(action, {one.id: one.text for one in batch.event.responses})
        action = with_text(action, batch.event)
        return requests.as_json(action, headers | requests.receipt(answer.receipt) | applied(request, until))

    async def _decision(self, request: Request, gate: str) -> Response:
        key = _key(request, gate)
        await self.request_log.policy(gate)
        found = await self.request_log.find(key)
        return requests.as_json(found.action, requests.receipt(found.receipt))

    async def _at_desk(self, request: Request, gate: str) -> Response:
        key, wanted = _key(request, gate), requests.wanted(request)
        await self.request_log.policy(gate)
        state = await self.releases.state(key, wanted or 0.0)
        if state is None:
            await self.request_log.find(key)  # there is none: said so
            raise not_at_desk(key)
        if state.outcome is None:
            return Response(told(key, state), 202, headers=RETRY_AFTER, media_type="application/json")
        # A key that may decide need not know who.
        said = told(key, state, by=self.authorize.may(request, gate, "read"))
        return requests.as_json(said, requests.receipt(await self.releases.receipt(state.outcome)))

    async def _label(self, request: Request, gate: str) -> Response:
        until, now = self.deadline(request)
        raw = await self.body(request, until)
        kind = (await self.request_log.policy(gate)).settings.severity_kind
        try:
            severities = bodies.severities(raw, gate=gate, kind=kind, limits=self.limits, now=now)
        except BadMessage as bad:
            await self.request_log.refuse(
                raw, bad, until, timestamp_ms=requests.milliseconds(now), labels=True
            )
            raise
        taken = await self.request_log.label(
            severities, until, kind=kind, timestamp_ms=requests.milliseconds(now)
        )
        told = {name: number for name, number in taken._asdict().items() if number or name == "recorded"}
        return requests.as_json(msgspec.json.encode(told))

    async def _show(self, _request: Request, gate: str) -> Response:
        policy = await self.request_log.policy(gate, fresh=True)
        return requests.as_json(msgspec.json.encode(gate_view(policy, *await self.request_log.judge(gate))))


def serving_app(gates: OfGates, chat: ChatCounter, *, origins: Sequence[str] = ()) -> Starlette:
    """Make the application. `origins` are of pages that may ask from a browser."""
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
            *chat_routes(chat, gates),
            Route("/openapi.json", _describe, methods=["GET"]),
            Route("/docs", _show_docs, methods=["GET"]),
        ],
        middleware=[from_pages] if origins else [],
        exception_handlers=dict.fromkeys((Problem, BadMessage, HTTPException, Exception), _refuse),
    )


async def _describe(_request: Request) -> Response:
    return requests.as_json(document())


async def _show_docs(_request: Request) -> Response:
    return HTMLResponse(page(), headers=HEADERS)


def _key(request: Request, gate: str) -> BatchKey:
    attempt = read_attempt(request.query_params.get("attempt", "1"))
    if attempt is None:
        raise Problem(400, "bad_request", "attempt must be a number from 1")
    return BatchKey(gate, request.path_params["batch_id"], attempt)


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
