"""Requests, counted, timed and traced by their route's template and by status: nothing that a caller chooses is a label."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from streamer.events.cloudevents import exemplar
from streamer.telemetry.metrics import RequestMetrics
from streamer.tracing import NO_TRACING, Tracing

NO_ROUTE: Final = "none"
"""The route of requests to unknown addresses."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def measured(app: Any, requests: RequestMetrics, tracing: Tracing = NO_TRACING) -> ASGIApp:
    """Return a Starlette application, whose requests are reported to both."""
    for route in (*(_template(one) for one in app.routes), NO_ROUTE):
        requests.expect_requests(route)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None

        async def watched(message: Scope) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with tracing.request(scope) as answered:
            try:
                await app(scope, receive, watched)
            finally:
                route = scope.get("route")
                trace = exemplar(
                    tuple(("traceparent", text) for name, text in scope["headers"] if name == b"traceparent")
                )
                requests.observe_request(_template(route), status, time.perf_counter() - began, trace)
                answered(None if route is None else _template(route), status)

    return run


def _template(route: Any) -> str:
    return str(getattr(route, "path_format", NO_ROUTE))
