"""Requests, counted, timed and traced by their route's template and by status: nothing that a caller chooses is a label."""

from __future__ import annotations

import time
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamer.events.cloudevents import exemplar
from streamer.telemetry.metrics import Metrics
from streamer.tracing import Tracing

NO_ROUTE: Final = "none"
"""The route of requests to unknown addresses."""


def measured(app: Starlette, requests: Metrics, tracing: Tracing) -> ASGIApp:
    """Return the application, whose requests are reported to both."""
    for route in (*(_template(one) for one in app.routes), NO_ROUTE):
        requests.expect_requests(route)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began = time.perf_counter()
        status: int | None = None

        async def watched(message: Message) -> None:
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


def _template(route: object) -> str:
    return route.path_format if isinstance(route, Route) else NO_ROUTE
