"""How long a body is waited for, on a clock that goes on once nothing is left to do."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request

from streamer.events.limits import Limits
from streamer.serving.deadline import deadline
from streamer.serving.problems import Problem
from streamer.serving.requests import Answering


class Ahead(asyncio.SelectorEventLoop):
    """Its time stands while there is work, and else is that of the next timer."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@pytest.mark.parametrize(("wanted", "waited"), [(0.01, 0.5), (0.5, 0.5), (7.0, 7.0), (100.0, 30.0)])
def test_a_body_is_waited_for_until_the_requests_own_deadline(wanted: float, waited: float) -> None:
    other: Any = None
    answering = Answering(
        request_log=other, limits=Limits(), longest=240.0, clock=other, authorize=other, releases=other
    )

    async def never() -> Any:
        await asyncio.sleep(10_000)

    async def read() -> None:
        json = [(b"content-type", b"application/json")]
        request = Request({"type": "http", "headers": json}, never)
        with pytest.raises(Problem, match=f"did not come within {waited:g} s"):
            await answering.body(request, deadline(wanted, 240.0, now=datetime.now(UTC)))
        assert asyncio.get_running_loop().time() == waited

    with asyncio.Runner(loop_factory=Ahead) as runner:
        runner.run(read())
