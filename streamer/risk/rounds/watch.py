"""Watching the risk of every gate: round after round, a bounded piece of the record into the states, and alerts out of them.

A round asks once, for all gates, where something came, and gives each of those a turn: a page of the record, and more
pages as long as there is time and all others have had one. So one gate's backlog delays another one's alarm by at most
a page, and what is quiet costs next to nothing.

A turn reads the record at one moment, computes, and writes everything in one transaction: places, states,
alerts, and the policy that closes the gate where an alarm does (`page`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Protocol

import structlog

from streamer.errors import Unavailable
from streamer.gates.policy import GateRevision
from streamer.risk.rounds.horizon import Watermark, marked, pruned, settled_number
from streamer.risk.rounds.page import PageKeeper, PageResult, closing_alarms, holding_alarms
from streamer.risk.rounds.report import RiskReport, report_of
from streamer.risk.rounds.store import Standing, WatchStore
from streamer.risk.rounds.verdict import with_verdict

log = structlog.get_logger(__name__)

PAGE = 5_000
"""Decisions that one transaction reads at most; fewer, down to a tenth, where more than ten gates wait for a turn."""

PAGES = 10
"""Transactions of one gate in one round at most: others wait."""

ROUND_SECONDS = 5.0
"""No gate gets a second page once a round has taken so long."""

_LONGEST_QUIET = 300.0
"""Seconds after which a gate gets a turn although nothing came: what is on record of it says how far it was read."""

_QUIET_SHARE = 100
"""Of this many quiet gates one gets such a turn in a round."""


class RiskObserver(Protocol):
    """Observes the risk; see `streamer.telemetry.recalibrator_metrics`."""

    def show_risk(self, report: RiskReport) -> None: ...
    def show_alerts(self, counts: Mapping[tuple[str, str], int]) -> None: ...
    def forget_risk(self, gates: Sequence[str] | None = None) -> None: ...


class AlertCounts(Protocol):
    """The alerts on record."""

    def counts(self) -> dict[tuple[str, str], int]:
        """How many were ever raised, by gate and kind."""


@dataclass(frozen=True, slots=True)
class _Quiet:
    """A gate that has nothing to read before something comes."""

    report: RiskReport
    policy: int
    alerts: frozenset[str]
    overdue_at: datetime | None


class RiskWatch:
    """Watches the risk of gates. Implements the recalibrator's `Watch`.

    `store`: decisions, labels, and where watching stands. `alerts`: the alerts on record.
    `observer`: observes the risk. `stopping`: whether a stop was requested; no further transaction
    begins then. `page`, `pages`: decisions in a transaction, transactions of a gate in a round.
    """

    def __init__(
        self,
        store: WatchStore,
        *,
        alerts: AlertCounts,
        observer: RiskObserver,
        stopping: Callable[[], bool] = lambda: False,
        page: int = PAGE,
        pages: int = PAGES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._alerts = alerts
        self._observer = observer
        self._stopping = stopping
        self._size = page
        self._pages = pages
        self._monotonic = monotonic
        self._shown: frozenset[str] = frozenset()
        self._quiet: dict[str, _Quiet] = {}
        self._turns: dict[str, float] = {}
        self._marks: tuple[Watermark, ...] = ()
        self._through: Watermark | None = None
        self._looked: datetime | None = None
        self._paging = PageKeeper(store)

    def round(self, gates: Sequence[GateRevision], *, now: datetime) -> None:
        """Watch every gate once. Raises `Unavailable` while the database is unavailable; one gate's trouble is no other's."""
        began = self._monotonic()
        names = frozenset(gate.gate for gate in gates)
        self._observer.forget_risk(sorted(self._shown - names))
        self._shown = names
        self._wake(names, now)
        turns = sorted(names - self._quiet.keys(), key=lambda name: (self._turns.get(name, 0.0), name))
        turns += self._for_long_quiet()
        for page in range(self._pages):
            following = []
            size = max(ceil(self._size / 10), 10 * self._size // max(10, len(turns)))
            for name in turns:
                # Many gates, or a long backlog, take longer than a service may take to end.
                if self._stopping():
                    return
                if page and self._monotonic() - began > ROUND_SECONDS:
                    break
                try:
                    if self._turn(name, now, size):
                        following.append(name)
                except Unavailable:
                    raise
                except Exception:
                    log.exception("watching.gate_failed", gate=name)
            turns = following
        for one in self._quiet.values():
            self._observer.show_risk(self._as_of_now(one, now))
        self._observer.show_alerts(self._alerts.counts())

    def stand_by(self) -> None:
        """This process does not lead (any more): show nothing of a gate, and know nothing of what the others read."""
        self._shown = frozenset()
        self._quiet = {}
        self._turns = {}
        self._marks, self._through, self._looked = (), None, None
        self._observer.forget_risk()

    def _wake(self, names: frozenset[str], now: datetime) -> None:
        """Ask what came since the last round: a gate that something came for is quiet no more."""
        probe = self._store.probe()
        self._marks = pruned(marked(self._marks, probe, now), 0)
        until, after = settled_number(self._marks, probe), self._through
        set_back = self._looked is not None and now < self._looked
        self._looked = now
        if until is None or after is None or set_back:
            self._quiet = {}  # moments at which something is overdue are of the clock as it was
            self._through = until
            return
        alerts = {alert for one in self._quiet.values() for alert in one.alerts}
        news = self._store.news(after=after, until=until, alert_ids=sorted(alerts))
        self._quiet = {
            name: one
            for name, one in self._quiet.items()
            if name in names
            and name not in news.decided
            and name not in news.labelled
            and one.policy == news.policies.get(name)
            and one.alerts.isdisjoint(news.acknowledged)
            and (one.overdue_at is None or now < one.overdue_at)
        }
        self._through = until

    def _for_long_quiet(self) -> list[str]:
        """Quiet gates whose record gets a new date: a few in each round."""
        since = self._monotonic() - _LONGEST_QUIET
        old = sorted((self._turns[name], name) for name in self._quiet if self._turns[name] < since)
        return [name for _, name in old[: ceil(len(self._quiet) / _QUIET_SHARE)]]

    def _turn(self, name: str, now: datetime, size: int) -> bool:
        """Read a page of so many decisions of one gate and show what is known; True where there is more to read."""
        self._quiet.pop(name, None)
        self._turns[name] = self._monotonic()
        standing = self._store.standing(name)
        if standing is None:
            return False
        page = self._paging.page(standing, self._marks, now, size)
        report = self._show(page, standing, now)
        # An alarm that could not close its gate tries again in each round.
        if self._is_all(page) and not (
            closing_alarms(page.watch, standing.policy) or holding_alarms(page.watch, standing.policy)
        ):
            alerts = frozenset(
                one.alert_id for one in page.watch.alarms if one.stands and one.alert_id is not None
            )
            self._quiet[name] = _Quiet(report, standing.policy.version, alerts, page.overdue_at)
        return page.more

    def _is_all(self, page: PageResult) -> bool:
        """Whether nothing is left to read of what the round knows to be there."""
        until, through = page.until, self._through
        if page.more or until is None or through is None:
            return False
        return until.decisions >= through.decisions and until.labels >= through.labels

    def _as_of_now(self, one: _Quiet, now: datetime) -> RiskReport:
        """Nothing came: all that there is was read, unless something waits for its label."""
        through = self._through
        report = replace(one.report, drawing=one.report.drawing and one.report.drawing.at(now))
        if one.overdue_at is None and through is not None and report.read_through is not None:
            report = replace(report, read_through=max(report.read_through, min(now, through.at)))
        return report

    def watch(self, gate: str, *, now: datetime) -> RiskReport | None:
        """Read what is due of one gate and return what is known of its risk; None when its policy cannot be read."""
        standing = self._store.standing(gate)
        if standing is None:
            return None
        page = self._paging.page(standing, self._marks, now, self._size)
        for _ in range(1, self._pages):
            if not page.more or self._stopping() or (standing := self._store.standing(gate)) is None:
                break
            page = self._paging.page(standing, self._marks, now, self._size)
        if standing is None:
            return None
        return self._show(page, standing, now)

    def _show(self, page: PageResult, standing: Standing, now: datetime) -> RiskReport:
        policy = standing.policy
        report = report_of(page.watch, policy.settings, page.drawing, standing.alerts)
        report = with_verdict(report, page.watch, policy, now=now)
        self._observer.show_risk(report)
        return report
