"""A review page on a real socket, over a small world of gates and decisions."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from streamer.journal import BatchDecision
from streamer.review.access import Access
from streamer.review.app import HOLD, review_app
from streamer.review.items import Recalibrating, Rubric
from streamer.review.server import listen
from streamer.web.guard import Served
from streamer.web.server import base_url, server
from tests.integration.store.conftest import START, World

SCORE = 0.421379
"""Of every answer: whoever finds these digits in what the page was sent knows the score."""


class Serving:
    """An application in a thread, at an address of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._listening = listen(host, port)
        self.base = base_url(host, self._listening)
        self.port = self._listening.getsockname()[1]

    def serve(self, app: ASGIApp) -> None:
        self._server = server(app)
        sockets = {"sockets": [self._listening]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=240)
        assert not self._thread.is_alive()
        self._listening.close()


class Site(Serving):
    """One server of the page. Several may stand over one world."""

    def __init__(
        self,
        world: World,
        *,
        gates: Sequence[str] = ("support-bot",),
        hold: timedelta = HOLD,
        port: int = 0,
        host: str = "127.0.0.1",
        rubrics: Mapping[str, Rubric] = MappingProxyType({}),
    ) -> None:
        self.world = world
        self.access = Access()
        self.recalibrating: dict[str, Recalibrating] = {}
        super().__init__(host, port)
        self.serve(
            review_app(
                world.open().reviews,
                self.access,
                Served(host, self.port),
                gates=lambda: gates,
                recalibrating=lambda: self.recalibrating,
                clock=lambda: datetime.now(UTC),
                hold=hold,
                rubrics=rubrics,
            )
        )

    def address(self, name: str | None = None) -> str:
        return f"{self.base}#{self.access.invite(name)}"


def answers(
    world: World, number: int, texts: Sequence[str], *, prompt: str = "", lease: Any = None, **changes: Any
) -> BatchDecision:
    """A decision about these answers, of which the first is drawn."""
    made = world.decision(
        number,
        content=f"c{number}",
        scores=(SCORE,) * len(texts),
        actions=changes.pop("actions", ("abstain",) * len(texts)),
        drawn=(0,),
        at=START + timedelta(seconds=number),
        prompt=prompt or f"Question {number}?",
        **changes,
    )
    return replace(
        made,
        responses=tuple(replace(one, text=text) for one, text in zip(made.responses, texts, strict=True)),
    )


def fill(world: World, decisions: Sequence[BatchDecision]) -> None:
    world.keep(*decisions)


def severities(world: World) -> dict[str, list[tuple[str, float]]]:
    """Every severity that was stored, by batch, the oldest first: who gave it, and what."""
    found: dict[str, list[tuple[str, float]]] = {}
    for row in world.rows(
        "SELECT batch_id, labeller, severity, source, kind FROM label_revisions ORDER BY effective_at, id"
    ):
        assert (row.source, row.kind) == ("review", "human")
        found.setdefault(row.batch_id, []).append((row.labeller, row.severity))
    return found


def unsealed(world: World) -> list[Any]:
    with world.store.evidence.snapshot() as snapshot:
        return list(snapshot.unchained())


@pytest.fixture
def world(migrated_sqlite_url: str) -> Iterator[World]:
    """Over SQLite: what differs between databases is tried in the store's own tests."""
    made = World(migrated_sqlite_url)
    made.gate()
    yield made
    made.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def start(world: World, **options: Any) -> Site:
        sites.append(Site(world, **options))
        return sites[-1]

    yield start
    for site in sites:
        site.stop()
