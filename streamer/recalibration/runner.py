"""Runs the gates that are due, one after the other, the longest-waiting first, in a thread of its own.

A run blocks nothing else: the risk in service of all gates is still monitored, and readiness stays true.

When a gate's next run is due: by time, by newly labelled groups, and not too soon after the one before.

Neither asks whether labels look good. A schedule that did would choose among calibrations after their labels were read,
and void what each of them promises. A label that is higher than what was read counts as a new one does: it can only make
a run come sooner that holds more, or one that may not hold less without new groups.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from streamer.calibration.plan import least_groups
from streamer.errors import TryLater, Unavailable, UsageError
from streamer.recalibration.gate_status import GateStatus

FIRST_RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 600.0

REST_SHARE = 10.0
"""After a run of s seconds the gate rests for this many times s: runs take at most about a tenth of the time."""

MOST_REST_SECONDS = 600.0

LABELS_A_LOOK = 10
"""New labels after which the newest groups are compared with older ones, between two runs."""


@dataclass(slots=True)
class _Seen:
    """What this process knows of a gate's newest run.

    `age` is the seconds since the run by the wall clock when the run was first seen; from then on only the
    monotonic clock counts, so that a clock that jumps neither doubles a run nor puts the next one off.
    """

    run: int | None
    age: float
    since: float
    not_before: float = float("-inf")
    retry: float = FIRST_RETRY_SECONDS
    due_since: float | None = None
    labels: int | None = None


class Schedule:
    """Keeps when each gate may run and must run, by `monotonic` seconds that only ever grow, and
    know nothing of the time of day.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, _Seen] = {}

    def due(self, status: GateStatus, *, now: datetime) -> str | None:
        """Say why a run of this gate is due now; None when it is not."""
        why = self._why(status, now)
        seen = self._seen[status.gate.gate]
        if why is None:
            seen.due_since = None
        elif seen.due_since is None:
            seen.due_since = self._monotonic()
        return why

    def _why(self, status: GateStatus, now: datetime) -> str | None:
        settings, last = status.gate.settings, status.last
        seen = self._look(status, now)
        present = self._monotonic()
        if settings.recalibrate == "manual" or present < seen.not_before:
            return None
        if status.held_until is not None and now >= status.held_until:
            return "a looser threshold has waited for one label lag"
        after, every = settings.recalibrate_after_groups, settings.recalibrate_every_seconds
        if after is not None and status.news >= after:
            raised = f" and {status.raised_groups} with a higher label" if status.raised_groups else ""
            return f"{status.new_groups} newly labelled groups{raised}, {after} are enough"
        if every is None:
            return None
        if last is None or not last.usable:
            # With fewer groups every method holds everything, and so does the gate already.
            enough = status.new_groups >= least_groups(settings.alpha, settings.max_attempts)
            return "the first run for these settings" if enough else None
        if seen.age + present - seen.since >= every:
            return f"{every:g} s since the last run"
        return None

    def look_due(self, status: GateStatus) -> str | None:
        """Say why the newest groups are to be compared with older ones now, between two runs; None: they are not."""
        name = status.gate.gate
        seen = self._seen[name]
        if seen.labels is None:
            seen.labels = status.labels
        new = status.labels - seen.labels
        if (
            status.gate.settings.recalibrate == "manual"
            or status.policy.ships_nothing
            or self._monotonic() < seen.not_before
            or new < LABELS_A_LOOK
        ):
            return None
        if seen.due_since is None:
            seen.due_since = self._monotonic()
        return f"{new} new labels: whether the newest groups have become worse"

    def looked(self, status: GateStatus) -> None:
        """The newest groups were compared, or a run has read them."""
        self._seen[status.gate.gate].labels = status.labels

    def due_since(self, gate: str) -> float:
        """Since when a run of this gate, which is due, has been, by the monotonic clock."""
        since = self._seen[gate].due_since
        return self._monotonic() if since is None else since

    def done(self, gate: str, seconds: float) -> None:
        """A run came to an end, after so many seconds."""
        seen = self._seen[gate]
        seen.due_since = None
        seen.retry = FIRST_RETRY_SECONDS
        seen.not_before = self._monotonic() + min(REST_SHARE * seconds, MOST_REST_SECONDS)

    def failed(self, gate: str) -> None:
        """A run failed, or found nothing to read: the next try waits, each time twice as long."""
        seen = self._seen[gate]
        seen.due_since = None
        seen.not_before = self._monotonic() + seen.retry
        seen.retry = min(2 * seen.retry, LAST_RETRY_SECONDS)

    def _look(self, status: GateStatus, now: datetime) -> _Seen:
        name, last = status.gate.gate, status.last
        run = None if last is None else last.run
        seen = self._seen.get(name)
        if seen is None:
            # A clock that is behind the one that dated the run gives 0: then the whole period is waited for.
            age = 0.0 if last is None else max(0.0, (now - last.finished_at).total_seconds())
            seen = self._seen[name] = _Seen(run, age, self._monotonic())
        elif seen.run != run:
            seen.run, seen.age, seen.since = run, 0.0, self._monotonic()
        return seen


log = structlog.get_logger(__name__)


class RunObserver(Protocol):
    """Observes runs; see `streamer.telemetry.recalibrator_metrics`."""

    def count_run(self, gate: str, method: str, outcome: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class GateWork:
    """What is done for one gate, in the runner's thread.

    `recalibrate`: runs the gate now and returns what became of it: `applied`, `proposed` or
    `unchanged`. Raises `TryLater` when there is nothing to read yet, another run is under way or
    the gate has changed since, another `UsageError` when it cannot be recorded here, `Unavailable`
    when the database is unavailable. `look`: compares the newest groups of the gate with older
    ones, and returns what became of a run that holds more; None: there was no need for one. Raises
    as `recalibrate` does.
    """

    recalibrate: Callable[[GateStatus], str]
    look: Callable[[GateStatus], str | None] = lambda _status: None


class Runner:
    """Keeps which gates are due, and runs them, until a stop is requested; `ended` is called after
    each run.
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

        `asked`: seconds, by the monotonic clock, before the gates were looked up: a run that ended
        later is not in them.
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
