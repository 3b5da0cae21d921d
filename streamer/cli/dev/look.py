"""What `streamer dev` shows: a look at both services and at the record, as often as somebody asks."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from streamer.cli.dev.embedded import EmbeddedStep
from streamer.errors import StreamerError
from streamer.gates.policy import GateRevision
from streamer.gates.settings import NO_ENCODER
from streamer.store import Store
from streamer.telemetry.live_numbers import LiveNumbers, Samples, live_numbers
from streamer.wiring.parts import now

_PATIENCE_SECONDS = 2.0
_SHOWN = 5
"""Policies and alarms that a look has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something that happened: when, to which gate, and what, in words."""

    at: datetime
    gate: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is to be seen at a moment; policies and alarms, the newest first, and in `troubles` what is wrong, in words.

    `request` : a shell command that asks the endpoint for a decision. `console` : where the console is opened.
    """

    numbers: LiveNumbers
    addresses: Sequence[tuple[str, str]]
    policies: Sequence[Line]
    alarms: Sequence[Line]
    request: str = ""
    console: str = ""
    troubles: Sequence[str] = ()
    now: datetime


class Looking:
    """Looks at services and record; remembers the look before, for rates."""

    def __init__(self, step: EmbeddedStep, store: Store) -> None:
        self._step, self._store = step, store
        self._before: tuple[float, Samples] | None = None

    def look(self) -> Look:
        """Look now; what does not answer is said in the look, and is no error."""
        step, troubles = self._step, list[str]()
        worker = _samples("worker", step.metrics_url, troubles)
        beside = step.recalibrator_url
        recalibrator = Samples() if beside is None else _samples("recalibrator", beside, troubles)
        at = time.monotonic()
        before, self._before = self._before, (at, worker)
        numbers = live_numbers(
            worker,
            recalibrator,
            before=None if before is None else before[1],
            seconds=1.0 if before is None else at - before[0],
        )
        policies: Sequence[Line] = ()
        alarms: Sequence[Line] = ()
        request = ""
        try:
            policies, alarms = self._policies(), self._alarms()
            request = request_of(step, self._store)
        except StreamerError as error:
            troubles.append(f"The record cannot be read: {error}")
        return Look(
            numbers=numbers,
            addresses=[
                ("broker", step.broker.bootstrap),
                ("endpoint", step.endpoint["endpoint"]),
                ("metrics", f"{step.metrics_url}/metrics"),
            ],
            policies=policies,
            alarms=alarms,
            request=request,
            console=step.console or "",
            troubles=troubles,
            now=now(),
        )

    def _policies(self) -> list[Line]:
        return [
            Line(at=one.at, gate=one.gate, text=f"policy {one.version} {one.event} by {one.by}: {one.reason}")
            for one in self._store.policies.recent_events(_SHOWN)
        ]

    def _alarms(self) -> list[Line]:
        raised = [one.alert for one in self._store.alerts.list(limit=_SHOWN)]
        return [Line(at=one.raised_at, gate=one.gate, text=f"{one.kind}: {one.message}") for one in raised]


def _samples(service: str, root: str, troubles: list[str]) -> Samples:
    try:
        with urllib.request.urlopen(f"{root}/metrics", timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310
            return Samples(answer.read().decode())
    except (OSError, http.client.HTTPException, ValueError):
        troubles.append(f"The {service} does not answer.")
        return Samples()


def request_of(step: EmbeddedStep, store: Store) -> str:
    """Write what asks the endpoint of a step, of a gate on record."""
    served = step.endpoint
    return first_request(served["endpoint"], store.gates.list(), encoder=served["encoder"])


def first_request(endpoint: str, gates: Sequence[GateRevision], *, encoder: str) -> str:
    """Write what asks for a decision when it is pasted into a shell, in short lines; also a second time.

    Of `gates` the first that decides by text, with the service's `encoder`, or by scores in the event is asked; a new one where
    there is none.
    """
    fitting = (
        (one.gate, one.settings.scorer == "external")
        for one in gates
        if one.settings.scorer == "external" or one.settings.encoder == encoder
    )
    first = next(fitting, None)
    gate, scored = first or ("try", encoder == NO_ENCODER)
    create = f"streamer gate create {gate}{' --scorer external' if scored else ''}\n"
    one, two = (f', "score": {score}' if scored else "" for score in (0.9, 0.8))
    return (
        ("" if first else create)
        + f"curl {endpoint}/v1/gates/{gate}/decisions --json '\n"
        + f'  {{"prompt": "Who?", "responses": [{{"id": "a", "text": "Ada."{one}}},\n'
        + f'    {{"id": "b", "text": "Ada Lovelace."{two}}}]}}\''
    )
