"""Who may do what at which gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from starlette.requests import Request

    from streamer.serving.problems import Problem

May = Literal["decide", "label", "read"]


class Authorize(Protocol):
    """Asked once for each request, before its body is read."""

    async def __call__(self, request: Request, gate: str, may: May, /) -> Problem | None:
        """Return why the request is refused, None where it is not."""
        ...


async def anyone(_request: Request, _gate: str, _may: May, /) -> Problem | None:
    """Refuse nobody: for a service that listens on the loopback alone."""
    return None
