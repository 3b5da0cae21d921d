"""The review page from settings: the store, the gates whose queues people work on, addresses for those who do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from streamer.errors import UsageError
from streamer.labels.registry import by_programs
from streamer.review.access import Access, labeller_name
from streamer.review.items import Recalibrating, Rubric
from streamer.settings.settings import Settings
from streamer.wiring.parts import now, open_store

if TYPE_CHECKING:
    from streamer.store import Store
    from streamer.web.guard import Guard, Served

_COUNT_SECONDS = 1.0


class Address(NamedTuple):
    """Where somebody opens the page; `name` is whom it is for, None for people who give a name there."""

    name: str | None
    url: str


class Opened(NamedTuple):
    """A page that is about to be served, and whose queues it shows at the moment.

    `own_browser` : an address for one use, for the browser of the person who started it. `refusals`
    : sentences: gates that would not read labels of the people who were named, and are not shown to
    them.
    """

    addresses: tuple[Address, ...]
    own_browser: str
    gates: tuple[str, ...]
    refusals: tuple[str, ...] = ()


def run_review(
    settings: Settings,
    *,
    gate: str | None,
    names: Sequence[str],
    host: str,
    port: int,
    announce: Callable[[Opened], None],
) -> None:
    """Serve the review page until SIGINT or SIGTERM.

    Raises `UsageError` where there is no such gate, programs label it, a name cannot be, or the
    address cannot be listened on.
    """
    from streamer.review.server import listen, serve
    from streamer.web.guard import Served
    from streamer.web.server import base_url

    people: list[str | None] = [labeller_name(name) for name in names]
    with open_store(settings) as store:
        if gate is not None:
            _check_for_people(store, gate)
        listening = listen(host, port, insecure=settings.insecure)
        with listening:
            base = base_url(host, listening)
            access = Access()
            # In the fragment, which a browser never sends, not even as a Referer.
            addresses = tuple(Address(name, f"{base}#{access.invite(name)}") for name in (people or [None]))
            own = access.invite(people[0] if people else None, once=True)

            def gates() -> tuple[str, ...]:
                return (gate,) if gate is not None else for_people(store)

            shown = gates()
            refusals = tuple(
                text
                for person in people
                if person is not None
                for text in store.labels.refusals(person, shown).values()
            )
            announce(Opened(addresses, f"{base}#{own}", shown, refusals))
            served = Served(host, listening.getsockname()[1])
            serve(page(settings, store, access, gates, served), listening)


def page(
    settings: Settings, store: Store, access: Access, gates: Callable[[], Sequence[str]], served: Served
) -> Guard:
    """Make the page of these gates, by itself or as a part of the console."""
    from streamer.review.app import review_app

    return review_app(
        store.reviews,
        access,
        served,
        gates=gates,
        recalibrating=Due(store),
        clock=now,
        rubrics={gate: Rubric(**one.model_dump()) for gate, one in settings.rubrics.items()},
    )


class Due:
    """What the next recalibrations wait for. Counted again every few seconds: each page asks with each answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[str, Recalibrating] = {}
        self._until = -math.inf

    def __call__(self) -> Mapping[str, Recalibrating]:
        if monotonic() >= self._until:
            self._counted = self._count()
            self._until = monotonic() + _COUNT_SECONDS
        return self._counted

    def _count(self) -> dict[str, Recalibrating]:
        counted = {}
        for status in self._store.recalibration_status.statuses(now=now()):
            settings = status.gate.settings
            wanted = settings.recalibrate_after_groups
            if settings.recalibrate != "manual" and wanted is not None:
                counted[status.gate.gate] = Recalibrating(labelled=status.news, wanted=wanted)
        return counted


def for_people(store: Store) -> tuple[str, ...]:
    """Return the gates whose severities people give."""
    return tuple(one.gate for one in store.gates.list() if one.settings.severity_kind not in by_programs())


def _check_for_people(store: Store, gate: str) -> None:
    kind = store.gates.get(gate).settings.severity_kind
    if kind in by_programs():
        raise UsageError(
            f"gate {gate} is controlled by severities of the kind {kind!r}, which a program gives (streamer label "
            f"{kind}): a person's would be another measure. Another kind is another gate: streamer gate create NAME "
            "--severity-kind human"
        )
