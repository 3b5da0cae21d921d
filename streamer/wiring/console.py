"""The console from settings: the store, the review page as a part of it, and who gets in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from streamer.errors import StreamerError, UsageError
from streamer.review.access import Access, labeller_name
from streamer.settings.settings import Settings
from streamer.wiring.parts import now, open_store, publish_pending, when_available

if TYPE_CHECKING:
    from streamer.console.doors import Doors
    from streamer.console.oidc import Issuer
    from streamer.store import Store
    from streamer.telemetry.metrics import RequestMetrics
    from streamer.web.guard import Guard, Served


class OpenedConsole(NamedTuple):
    """A console that is about to be served.

    `url` : where people open it, the proxy's address where there is one. `link` : lets whoever has
    it in, with every right; None: people sign in. `metrics` : where Prometheus finds its metrics.
    `issuer` : where they sign in by OpenID Connect; None: nowhere. `issuer_fault` : why nobody can
    sign in there at the moment; None: they can.
    """

    url: str
    link: str | None
    metrics: str
    issuer: str | None = None
    issuer_fault: str | None = None


def run_console(
    settings: Settings,
    *,
    name: str,
    host: str,
    port: int,
    public: str | None,
    proxies: int | None = None,
    announce: Callable[[OpenedConsole], None],
) -> None:
    """Serve the console until SIGINT or SIGTERM; `name` : under which whoever comes by the link acts.

    `public` and `proxies` as `streamer.web.guard.Served` has them. Raises `UsageError` where the name or an address cannot be, or
    the issuer's settings.
    """
    from streamer.console.doors import Doors
    from streamer.review.server import listen, serve
    from streamer.telemetry.http import TelemetryServer
    from streamer.telemetry.metrics import RequestMetrics
    from streamer.web.guard import Served
    from streamer.web.server import base_url

    person = labeller_name(name)
    origin = None if public is None else _checked(public)
    # Without a broker nothing would ever take what is put into the outbox, texts among it.
    publish = settings.kafka.bootstrap_servers is not None
    with ExitStack() as stack:
        store = stack.enter_context(when_available(partial(open_store, settings, publish=publish)))
        listening = stack.enter_context(listen(host, port, insecure=settings.insecure, command="console"))
        url = base_url(host, listening) if origin is None else f"{origin}/"
        issuer = _issuer(settings, url)
        doors, metrics = Doors(store.accounts, monotonic=monotonic), RequestMetrics()
        served = Served(host, listening.getsockname()[1], origin, proxies)
        app = _application(settings, store, doors, issuer, served, metrics)
        # A console beside a worker, as on a laptop, takes any free port for its metrics.
        telemetry = stack.enter_context(
            TelemetryServer(
                metrics.exposition,
                alive=dict,
                ready=dict,
                open_metrics=metrics.open_metrics,
                **settings.http.model_dump() | {"any_port": True},
            )
        )
        # A link that does everything is no way in where people have identities.
        by_link = issuer is None and not store.accounts.any()
        link = f"{url}enter#{doors.invite(person)}" if by_link else None
        announce(OpenedConsole(url, link, f"{telemetry.url}/metrics", *_standing(issuer)))
        serve(app, listening)


def _application(
    settings: Settings,
    store: Store,
    doors: Doors,
    issuer: Issuer | None,
    served: Served,
    metrics: RequestMetrics,
) -> Guard:
    from streamer.console.app import console_app
    from streamer.console.forms import Forms
    from streamer.wiring.console_changes import Changes
    from streamer.wiring.keys import policy_keys
    from streamer.wiring.review import for_people, page
    from streamer.wiring.trying import try_upload

    forms = Forms(
        store=store,
        doors=doors,
        access=Access(),
        changes=Changes(settings, store),
        announce=lambda: _announce_policies(settings),
        clock=now,
        issuer=issuer,
    )
    review = page(settings, store, forms.access, lambda: for_people(store), served)
    tried = partial(try_upload, settings)
    return console_app(
        forms, served, review=review, keys=policy_keys(settings), tried=tried, requests=metrics
    )


def _checked(public: str) -> str:
    from streamer.web.guard import origin_of

    try:
        return origin_of(public.strip())
    except ValueError:
        raise UsageError(
            f"the public address is like https://streamer.example, without a path, not {public!r}"
        ) from None


def _issuer(settings: Settings, url: str) -> Issuer | None:
    said = settings.oidc
    if said.issuer is None:
        return None
    from streamer.console.oidc import Issuer, Registration

    return Issuer(
        Registration(**said.model_dump(), insecure=settings.insecure),
        redirect=f"{url}oidc/callback",
        clock=now,
        monotonic=monotonic,
    )


def _standing(issuer: Issuer | None) -> tuple[str | None, str | None]:
    """The issuer, and what is wrong with it now."""
    if issuer is None:
        return None, None
    try:
        issuer.metadata()
    except StreamerError as error:
        return issuer.registration.issuer, str(error)
    return issuer.registration.issuer, None


def _announce_policies(settings: Settings) -> None:
    """Publish what a change left in the outbox, in the background; a worker does it where this cannot."""
    if settings.kafka.bootstrap_servers is None:
        return

    def publish() -> None:
        with suppress(StreamerError):
            publish_pending(settings)

    threading.Thread(target=publish, name="console-announces", daemon=True).start()
