"""The recalibrator: round after round it looks after every gate, if it leads. One gate's trouble is no other's.

A round takes little however long runs take and whatever a broker does: runs are made beside it, see `runner`, and so is what
waits in the outbox published.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from streamer.errors import LeaseLost, Unavailable
from streamer.events.alerts import AlertsV1, alert
from streamer.gates.policy import GateRevision
from streamer.recalibration.gate_status import GateStatus, GateStatuses
from streamer.recalibration.runner import GateWork, Runner, RunObserver

log = structlog.get_logger(__name__)

POLL_SECONDS = 2.0
PENDING_EVERY_SECONDS = 30.0
_LAST_DELAY = 30.0
_LAST_DELAY_AWAY = 5.0
_LOG_EVERY = 60.0
_PARTS = {"keys": "looking for keys to sign with", "watch": "watching the risk"}


class Watch(Protocol):
    """What watches the risk in service, beside the runs."""

    def round(self, gates: Sequence[GateRevision], *, now: datetime) -> None:
        """Look after the gates once, when this process leads. Raises `Unavailable` while the database is unavailable."""

    def stand_by(self) -> None:
        """This process does not lead (any more): show nothing of a gate."""


class Leadership(Protocol):
    """At most one process holds it."""

    def held(self) -> bool:
        """Take it if it is free; whether it is ours now. Raises `Unavailable`."""

    def lapsed(self) -> bool:
        """Tell whether it was ours and could not be renewed in time. Does not block."""


class Observer(RunObserver, Protocol):
    """Observes the rounds; see `streamer.telemetry.recalibrator_metrics`."""

    def set_part(self, part: str, reachable: bool) -> None: ...
    def set_round(self, moment: datetime) -> None: ...
    def set_leader(self, leads: bool) -> None: ...
    def forget_gates(self) -> None: ...
    def show(self, status: GateStatus) -> None: ...
    def set_labels_pending(self, gate: str, responses: int) -> None: ...
    def set_labels_unread(self, gate: str, labels: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """What time it is (with zone), seconds that only grow, and how long rounds lie apart."""

    clock: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    poll_seconds: float = POLL_SECONDS


class Recalibrator:
    """Looks after the gates until a stop is requested; nothing further begins then.

    `raise_alert` records an alert, once, and raises `Unavailable` when the database is unavailable;
    `publish` publishes what waits in the outbox and no worker owns, and raises `Unavailable` when
    the broker is.
    """

    def __init__(
        self,
        *,
        statuses: GateStatuses,
        leadership: Leadership,
        work: GateWork,
        raise_alert: Callable[[AlertsV1], object],
        publish: Callable[[], None],
        watch: Watch,
        observer: Observer,
        timing: Timing,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._statuses = statuses
        self._leadership = leadership
        self._raise_alert = raise_alert
        self._publish = publish
        self._watch = watch
        self._observer = observer
        self._clock = timing.clock
        self._stopping = stopping
        self._monotonic = timing.monotonic
        self._poll = timing.poll_seconds
        self._wake = threading.Event()
        self._lost = False
        self._runner = Runner(
            work=work,
            observer=observer,
            ended=self._wake.set,
            stopping=stopping,
            monotonic=timing.monotonic,
        )
        self._leads: bool | None = None
        self._shown: dict[str, GateStatus] = {}
        self._keyless: set[str] = set()
        self._pending_at = float("-inf")
        self._logged: dict[str, float] = {}
        self._unready = {
            "round": "the first round is not over",
            "broker": "the broker was not asked yet",
        }

    def unready(self) -> list[str]:
        """What stands against being ready; who stands by is ready."""
        if self._leads and self._leadership.lapsed():
            return [
                "the database does not answer in time: this leader could not renew its lease, another may lead"
            ]
        leads = self._leads is not False
        return [why for part, why in self._unready.items() if leads or part in ("round", "database")]

    @property
    def leads(self) -> bool:
        """Whether it leads at this moment, whatever a round waits for."""
        return bool(self._leads) and not self._leadership.lapsed()

    def run(self, stop: threading.Event) -> None:
        """Repeat `round` until `stop` is set, with runs and messages beside it; an unavailable dependency is tried again.

        Returns when the run under way is over. Raises `RuntimeError` when what is done beside the
        rounds has ended by itself.
        """
        beside = [
            threading.Thread(target=self._part, args=(loop, stop), name=f"recalibrator-{name}")
            for name, loop in (("runs", self._runner.loop), ("messages", self._messages))
        ]
        for thread in beside:
            thread.start()
        try:
            self._rounds(stop)
        finally:
            stop.set()
            self._runner.wake()
            self._wake.set()
            for thread in beside:
                thread.join()
        if self._lost:
            raise RuntimeError("a part of the recalibrator has ended, see the log; start it again")

    def _part(self, loop: Callable[[threading.Event], None], stop: threading.Event) -> None:
        """Do something beside the rounds; without it they would look well and nothing would come of them."""
        try:
            loop(stop)
        except BaseException:
            self._lost = True
            log.exception("recalibrator.part_ended")
        finally:
            stop.set()

    def _messages(self, stop: threading.Event) -> None:
        """Publish what waits, after each round and each run."""
        while not stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if self.leads and not stop.is_set():
                self.announce()

    def _rounds(self, stop: threading.Event) -> None:
        delay = self._poll
        while not stop.is_set():
            try:
                self.round()
            except Exception as error:
                last = _LAST_DELAY
                if isinstance(error, Unavailable):
                    self._away("database", error)
                    last = _LAST_DELAY_AWAY
                else:
                    self._unready["round"] = "the last round failed, see the log"
                    log.exception("recalibrator.round_failed")
                wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
                delay = min(2 * delay, last)
            else:
                wait = delay = self._poll
            stop.wait(wait)

    def round(self) -> None:
        """Look after every gate once, and have run what is due. Raises `Unavailable` when the database is unavailable."""
        now = self._clock()
        try:
            leads = self._leadership.held()
        except Unavailable:
            self._set_leading(False, now)  # the server may have given it to another one already
            raise
        self._set_leading(leads, now)
        if leads:
            try:
                self._lead(now)
            except LeaseLost:  # it was stopped or cut off, and has written nothing since
                self._set_leading(False, now)
        self._answers("database")
        self._observer.set_round(now)
        self._unready.pop("round", None)

    def _set_leading(self, leads: bool, now: datetime) -> None:
        if leads == self._leads:
            return
        self._leads = leads
        self._observer.set_leader(leads)
        if not leads:
            self._shown = {}
            self._keyless = set()
            self._runner.offer([], now=now, asked=self._monotonic())
            self._watch.stand_by()
        log.info("recalibrator.leads" if leads else "recalibrator.stands_by")

    def _lead(self, now: datetime) -> None:
        asked = self._monotonic()
        statuses = self._statuses.statuses(now=now, recount=False)
        self._answers("database")  # even if the rest of the round fails
        try:
            self._show(statuses)
            self._guarded("keys", lambda: self._look_for_keys(statuses, now))
            # Before runs are begun: an alarm closes a gate, and restarts its sample.
            self._guarded("watch", lambda: self._watch.round([one.gate for one in statuses], now=now))
        finally:
            self._wake.set()  # whatever became of the round: what it recorded is for others to hear
        if not self._stopping():
            self._runner.offer(statuses, now=now, asked=asked)

    def _show(self, statuses: Sequence[GateStatus]) -> None:
        shown = {one.gate.gate: one for one in statuses}
        if shown.keys() != self._shown.keys():
            self._pending_at = float("-inf")
        for name, one in shown.items():
            if one != self._shown.get(name):
                self._observer.show(one)
        self._shown = shown
        began = self._monotonic()
        if began >= self._pending_at:
            for gate, responses in self._statuses.labels_pending().items():
                self._observer.set_labels_pending(gate, responses)
            for gate, labels in self._statuses.labels_unread().items():
                self._observer.set_labels_unread(gate, labels)
            # It reads every drawn response there is: on a large record seldom, so that rounds stay short.
            took = self._monotonic() - began
            self._pending_at = began + max(PENDING_EVERY_SECONDS, 50 * took)

    def _look_for_keys(self, statuses: Sequence[GateStatus], now: datetime) -> None:
        """Tell of gates that this process may have to close or tighten, and could not for want of a key."""
        keyless = set()
        for one in statuses:
            name, settings, missing = one.gate.gate, one.gate.settings, one.missing_key
            if missing is None or (
                settings.recalibrate != "auto"
                and settings.early == "none"
                and "close" not in (settings.on_alarm, settings.on_selective_alarm, settings.on_missing)
            ):
                continue
            keyless.add(name)
            if name not in self._keyless:
                self._raise_alert(_no_key(one, missing, now))
                log.warning("recalibrator.no_signing_key", gate=name, reason=missing)
        self._keyless = keyless

    def _guarded(self, part: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Unavailable:
            raise
        except Exception:
            # What fails for every gate at once, in every round: a right or a table that is not there.
            self._unready[part] = f"{_PARTS[part]} failed in the last round, see the log"
            if self._may_log(part):
                log.exception("recalibrator.part_failed", part=part)
        else:
            self._unready.pop(part, None)

    def announce(self) -> None:
        """Publish what waits in the outbox, and see whether the broker is there."""
        try:
            self._publish()
        except LeaseLost:
            pass  # the present leader publishes it
        except Unavailable as error:
            self._away("broker", error)
        except Exception:
            # No topic, no right to write to it: it waits for an operator.
            self._unready["broker"] = "what waits cannot be published, see the log"
            if self._may_log("publish"):
                log.exception("recalibrator.publish_failed")
        else:
            self._answers("broker")

    def _answers(self, part: str) -> None:
        self._observer.set_part(part, True)
        self._unready.pop(part, None)

    def _away(self, part: str, error: Unavailable) -> None:
        self._observer.set_part(part, False)
        self._unready[part] = f"the {part} does not answer"
        if self._may_log(part):
            log.warning("recalibrator.part_away", part=part, error=str(error)[:300])

    def _may_log(self, what: str) -> bool:
        """Tell whether the log has not heard of this for a minute."""
        if self._monotonic() - self._logged.get(what, float("-inf")) <= _LOG_EVERY:
            return False
        self._logged[what] = self._monotonic()
        return True


def _no_key(status: GateStatus, missing: str, now: datetime) -> AlertsV1:
    name, version = status.gate.gate, status.policy.version
    return alert(
        name,
        "no_signing_key",
        f"version {version}",
        message=f"The recalibrator can neither close gate {name} when an alarm is raised nor put a threshold in force: "
        f"{missing}.",
        raised_at=now,
        policy_version=version,
    )
