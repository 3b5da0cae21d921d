"""Runs the gates that are due, one after the other, the longest-waiting first, in a thread of its own.

A run blocks nothing else: the risk in service of all gates is still monitored, and readiness stays true.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from streamer.errors import TryLater, Unavailable, UsageError
from streamer.recalibration.gate_status import GateStatus
from streamer.recalibration.schedule import Schedule

log = structlog.get_logger(__name__)


class RunObserver(Protocol):
    """Observes runs; see `streamer.telemetry.recalibrator_metrics`."""

    def count_run(self, gate: str, method: str, outcome: str, seconds: float) -> None: ...


def _no_look(_status: GateStatus) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class GateWork:
    """What is done for one gate, in the runner's thread.

    Attributes
    ----------
    recalibrate : runs the gate now and returns what became of it: `applied`, `proposed` or `unchanged`. Raises `TryLater` when
        there is nothing to read yet, another run is under way or the gate has changed since, another `UsageError` when it
        cannot be recorded here, `Unavailable` when the database is unavailable.
    look : compares the newest groups of the gate with older ones, and returns what became of a run that holds more; None:
        there was no need for one. Raises as `recalibrate` does.
    """

    recalibrate: Callable[[GateStatus], str]
    look: Callable[[GateStatus], str | None] = _no_look


class Runner:
    """Keeps which gates are due, and runs them.

    Parameters
    ----------
    ended : called after each run.
    stopping : whether a stop was requested; no further run begins then.
    monotonic : seconds that only grow.
    """

    def __init__(
        self,
        *,
        work: GateWork,
        observer: RunObserver,
        ended: Callable[[], object],
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._work = work
        self._observer = observer
        self._on_ended = ended
        self._stopping = stopping
        self._monotonic = monotonic
        self._schedule = Schedule(monotonic)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._due: list[tuple[GateStatus, str, bool]] = []
        self._running: str | None = None
        self._ended: dict[str, float] = {}

    def offer(self, statuses: Sequence[GateStatus], *, now: datetime, asked: float) -> None:
        """Say how the gates stand; what is due is run after what is under way, and what was offered before is forgotten.

        Parameters
        ----------
        asked : seconds, by the monotonic clock, before the gates were looked up: a run that ended later is not in them.
        """
        with self._lock:
            due = []
            for one in statuses:
                name = one.gate.gate
                if name == self._running or self._ended.get(name, float("-inf")) > asked:
                    continue
                if (why := self._schedule.due(one, now=now)) is not None:
                    due.append((one, why, False))
                elif (why := self._schedule.look_due(one)) is not None:
                    due.append((one, why, True))
            due.sort(key=lambda one: self._schedule.due_since(one[0].gate.gate))
            self._due = due
        self._wake.set()

    def run_due(self) -> None:
        """Run what is due, until nothing is or a stop is requested."""
        while not self._stopping() and (found := self._take()) is not None:
            self._run(*found)

    def loop(self, stop: threading.Event) -> None:
        """Run whatever is offered, until `stop` is set and `wake` called."""
        while not stop.is_set():
            self._wake.wait()
            self._wake.clear()
            self.run_due()

    def wake(self) -> None:
        """Let `loop` see that it is to stop."""
        self._wake.set()

    def _take(self) -> tuple[GateStatus, str, bool] | None:
        with self._lock:
            if not self._due:
                return None
            found = self._due.pop(0)
            self._running = found[0].gate.gate
            return found

    def _run(self, status: GateStatus, why: str, look: bool) -> None:
        name, method = status.gate.gate, status.gate.settings.method
        log.info("recalibrator.run", gate=name, why=why)
        began = self._monotonic()
        outcome, over = None, False
        try:
            outcome = (self._work.look if look else self._work.recalibrate)(status)
            over = True
        except (TryLater, Unavailable) as error:
            # Nothing to read yet, another run under way, a gate that has changed, a dependency unavailable: retried later.
            log.info("recalibrator.put_off", gate=name, reason=str(error)[:300])
        except UsageError as error:
            # It will not pass by itself: no key to sign with, or a policy that is not trusted.
            log.warning("recalibrator.run_refused", gate=name, reason=str(error))
            self._observer.count_run(name, method, "failed", self._monotonic() - began)
        except Exception:
            log.exception("recalibrator.run_failed", gate=name)
            self._observer.count_run(name, method, "failed", self._monotonic() - began)
        finally:
            seconds = self._monotonic() - began
            with self._lock:
                self._running = None
                self._ended[name] = self._monotonic()
                if over:
                    self._schedule.done(name, seconds)
                    self._schedule.looked(status)
                else:
                    self._schedule.failed(name)
        self._on_ended()
        if outcome is not None:
            self._observer.count_run(name, method, outcome, seconds)
            log.info("recalibrator.ran", gate=name, outcome=outcome, seconds=round(seconds, 3))
