"""What `streamer dev` shows: a look at both services and at the record, as often as somebody asks."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from streamer.errors import StreamerError
from streamer.telemetry.live_numbers import LiveNumbers, Samples, live_numbers

_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something that happened: when, to which gate, and what, in words."""

    at: datetime
    gate: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is to be seen at a moment.

    Attributes
    ----------
    addresses : name and value.
    policies, alarms : the newest first.
    request : a shell command that asks the endpoint for a decision.
    console : where the console is opened.
    troubles : what is wrong, in words.
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
    """Looks at services and record; remembers the look before, for rates.

    Parameters
    ----------
    worker, recalibrator : root of each service's HTTP addresses; None where there is none.
    policies, alarms : what the record says of them, the newest first; raise a `StreamerError` when it cannot be read.
    request : a shell command that asks the endpoint, of a gate on record; raises likewise.
    addresses, console : shown as they are.
    clock : the present moment, with zone.
    """

    def __init__(
        self,
        *,
        worker: str,
        recalibrator: str | None,
        policies: Callable[[], Sequence[Line]],
        alarms: Callable[[], Sequence[Line]],
        request: Callable[[], str],
        addresses: Sequence[tuple[str, str]],
        clock: Callable[[], datetime],
        console: str = "",
    ) -> None:
        self._worker = worker
        self._recalibrator = recalibrator
        self._policies = policies
        self._alarms = alarms
        self._request = request
        self._addresses = tuple(addresses)
        self._clock = clock
        self._console = console
        self._before: tuple[float, Samples] | None = None

    def look(self) -> Look:
        """Look now; what does not answer is said in the look, and is no error."""
        troubles: list[str] = []
        worker = self._samples("worker", self._worker, troubles)
        recalibrator = (
            Samples()
            if self._recalibrator is None
            else self._samples("recalibrator", self._recalibrator, troubles)
        )
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
            request = self._request()
        except StreamerError as error:
            troubles.append(f"The record cannot be read: {error}")
        return Look(
            numbers=numbers,
            addresses=self._addresses,
            policies=policies,
            alarms=alarms,
            request=request,
            console=self._console,
            troubles=troubles,
            now=self._clock(),
        )

    @staticmethod
    def _samples(service: str, root: str, troubles: list[str]) -> Samples:
        try:
            with urllib.request.urlopen(f"{root}/metrics", timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310
                return Samples(answer.read().decode())
        except (OSError, http.client.HTTPException, ValueError):
            troubles.append(f"The {service} does not answer.")
            return Samples()
