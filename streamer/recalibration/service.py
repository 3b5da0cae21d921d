"""The recalibrator: round after round it looks after every gate, if it leads. One gate's trouble is no other's."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Protocol

import structlog

from streamer.errors import Unavailable, UsageError
from streamer.recalibration.schedule import Schedule

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from streamer.policy import GateRevision
    from streamer.recalibration.standing import GateStanding, Standings

log = structlog.get_logger(__name__)

POLL_SECONDS = 2.0
PENDING_EVERY_SECONDS = 30.0
_LAST_DELAY = 30.0
_LOG_EVERY = 60.0


class Watch(Protocol):
    """What watches the risk in service, beside the runs."""

    def round(self, gates: Sequence[GateRevision], *, now: datetime) -> None:
        """Look after the gates once, when this process leads. Raises `Unavailable` while the database is away."""
        ...

    def stand_by(self) -> None:
        """This process does not lead (any more): show nothing of a gate."""
        ...


class Leadership(Protocol):
    """At most one process holds it."""

    def held(self) -> bool:
        """Take it if nobody has it, and tell whether it is ours now. Raises `Unavailable`."""
        ...


class Observer(Protocol):
    """What is told of the rounds; see `streamer.telemetry.recalibrator_metrics`."""

    def set_part(self, part: str, reachable: bool) -> None: ...
    def set_round(self, moment: datetime) -> None: ...
    def set_leader(self, leads: bool) -> None: ...
    def forget_gates(self) -> None: ...
    def show(self, standing: GateStanding) -> None: ...
    def set_labels_pending(self, gate: str, responses: int) -> None: ...
    def count_run(self, gate: str, method: str, outcome: str, seconds: float) -> None: ...


class Recalibrator:
    """Looks after the gates until it is told to stop.

    Parameters
    ----------
    standings : how the gates stand.
    leadership : who leads.
    recalibrate : runs one gate now and returns what became of it: `applied`, `proposed` or `unchanged`. Raises
        `UsageError` when it cannot be run now, `Unavailable` when the database is away.
    publish : publishes what waits in the outbox and no worker owns. Raises `Unavailable` when the broker is away.
    watch : watches the risk in service.
    observer : is told what happens.
    stopping : whether we were told to stop; nothing is begun then any more.
    clock : the present moment, with zone.
    monotonic : seconds that only grow.
    """

    def __init__(
        self,
        *,
        standings: Standings,
        leadership: Leadership,
        recalibrate: Callable[[GateStanding], str],
        publish: Callable[[], None],
        watch: Watch,
        observer: Observer,
        clock: Callable[[], datetime],
        stopping: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._standings = standings
        self._leadership = leadership
        self._recalibrate = recalibrate
        self._publish = publish
        self._watch = watch
        self._observer = observer
        self._clock = clock
        self._stopping = stopping
        self._monotonic = monotonic
        self._poll = poll_seconds
        self._schedule = Schedule(monotonic)
        self._leads: bool | None = None
        self._shown: frozenset[str] = frozenset()
        self._pending_at = float("-inf")
        self._logged = float("-inf")
        self._unready: dict[str, str] = {"round": "the first round is not over"}

    def unready(self) -> list[str]:
        """What stands against being ready; who stands by is ready."""
        return list(self._unready.values())

    def run(self, stop: threading.Event) -> None:
        """Repeat `round` until `stop` is set; a part that is away is tried again, later each time."""
        delay = self._poll
        while not stop.is_set():
            try:
                more = self.round()
            except Exception as error:
                if isinstance(error, Unavailable):
                    self._away("database", error)
                else:
                    self._unready["round"] = "the last round failed, see the log"
                    log.exception("recalibrator.round_failed")
                wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
                delay = min(2 * delay, _LAST_DELAY)
            else:
                wait, delay = (0.0 if more else self._poll), self._poll
            stop.wait(wait)

    def round(self) -> bool:
        """Look after every gate once, and run at most one of those that are due; True if another one is due.

        Raises `Unavailable` when the database is away.
        """
        now = self._clock()
        try:
            leads = self._leadership.held()
        except Unavailable:
            self._tell_leading(False)  # the server may have given it to another one already
            raise
        self._tell_leading(leads)
        more = self._lead(now) if leads else False
        self._observer.set_part("database", True)
        self._observer.set_round(now)
        self._unready.pop("database", None)
        self._unready.pop("round", None)
        return more

    def _tell_leading(self, leads: bool) -> None:
        if leads == self._leads:
            return
        self._leads = leads
        self._observer.set_leader(leads)
        if not leads:
            self._shown = frozenset()
            self._watch.stand_by()
        log.info("recalibrator.leads" if leads else "recalibrator.stands_by")

    def _lead(self, now: datetime) -> bool:
        standings = self._standings.standings(now=now)
        self._show(standings)
        # First: an alarm closes a gate, and must not wait for a long run.
        self._guarded("watch", lambda: self._watch.round([one.gate for one in standings], now=now))
        if self._stopping():
            return False
        due = [(one, why) for one in standings if (why := self._schedule.due(one, now=now)) is not None]
        due.sort(key=lambda pair: self._schedule.last_tried(pair[0].gate.gate))
        if due:
            self._run_gate(*due[0])
        self._publish_pending()
        return len(due) > 1

    def _show(self, standings: Sequence[GateStanding]) -> None:
        names = frozenset(one.gate.gate for one in standings)
        if names != self._shown:
            self._shown = names
            self._pending_at = float("-inf")
        for one in standings:
            self._observer.show(one)
        began = self._monotonic()
        if began >= self._pending_at:
            for gate, responses in self._standings.labels_pending().items():
                self._observer.set_labels_pending(gate, responses)
            # It reads every drawn response there is: on a large record seldom, so that rounds stay short.
            took = self._monotonic() - began
            self._pending_at = began + max(PENDING_EVERY_SECONDS, 50 * took)

    def _run_gate(self, standing: GateStanding, why: str) -> None:
        name, method = standing.gate.gate, standing.gate.settings.method
        log.info("recalibrator.run", gate=name, why=why)
        self._schedule.began(name)
        began = self._monotonic()
        try:
            outcome = self._recalibrate(standing)
        except Unavailable:
            self._schedule.failed(name)
            raise
        except UsageError as error:
            # Nothing to read yet, another run under way, a gate changed meanwhile: told, and tried again later.
            self._schedule.failed(name)
            log.info("recalibrator.put_off", gate=name, reason=str(error))
        except Exception:
            self._schedule.failed(name)
            self._observer.count_run(name, method, "failed", self._monotonic() - began)
            log.exception("recalibrator.run_failed", gate=name)
        else:
            seconds = self._monotonic() - began
            self._schedule.done(name, seconds)
            self._observer.count_run(name, method, outcome, seconds)
            log.info("recalibrator.ran", gate=name, outcome=outcome, seconds=round(seconds, 3))

    def _guarded(self, part: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Unavailable:
            raise
        except Exception:
            log.exception("recalibrator.part_failed", part=part)

    def _publish_pending(self) -> None:
        try:
            self._publish()
        except Unavailable as error:
            self._away("broker", error)
        else:
            self._observer.set_part("broker", True)
            self._unready.pop("broker", None)

    def _away(self, part: str, error: Unavailable) -> None:
        self._observer.set_part(part, False)
        self._unready[part] = f"the {part} does not answer"
        if self._monotonic() - self._logged > _LOG_EVERY:
            self._logged = self._monotonic()
            log.warning("recalibrator.part_away", part=part, error=str(error)[:300])
