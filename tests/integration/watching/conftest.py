"""Gates with traffic whose draws, scores and labels a test decides on, over both databases."""

import itertools
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, LabelRevision, Lease
from streamer.risk.rounds.report import RiskReport
from streamer.risk.rounds.watch import RiskObserver, RiskWatch
from streamer.store import Store
from streamer_verify.alarms import Alarms
from streamer_verify.runs import Runs
from streamer_verify.verifier import Verifier
from tests.integration.store.conftest import START, World, new_world  # noqa: F401 - fixture

GATE = "support-bot"
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
OPEN = {"state": "open", "calibrated": True}
NEWEST = 1_000_000
"""Seen by a worker that goes on with an older policy because it refuses all newer ones."""


class Shown:
    """Remembers what an observer is told."""

    def __init__(self) -> None:
        self.reports: dict[str, RiskReport] = {}
        self.alerts: dict[tuple[str, str], int] = {}

    def show_risk(self, report: RiskReport) -> None:
        self.reports[report.gate] = report

    def show_alerts(self, counts: Mapping[tuple[str, str], int]) -> None:
        self.alerts = dict(counts)

    def forget_risk(self, gates: Sequence[str] | None = None) -> None:
        for gate in list(self.reports) if gates is None else gates:
            self.reports.pop(gate, None)


class Traffic:
    """One gate, open, whose decisions are committed one after the other and labelled when a test wants it."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        fields = {"audit_probability": 0.5, "monitor_deadline_seconds": 86_400.0}
        self.policy = world.gate(**(fields | settings))
        self.offset = 0
        self.made: list[BatchDecision] = []
        self._leases: dict[int, Lease] = {}

    @property
    def store(self) -> Store:
        return self.world.store

    def open_gate(self, run: int | None = None, **changes: Any) -> None:
        """Put a policy in force that ships everything, as a calibration would."""
        from dataclasses import replace

        writer = self.store.monitoring._writer

        def work(connection: sa.Connection) -> Any:
            present = writer.lock_newest(connection, GATE)
            fields = {"state": "open", "calibrated": True, "calibration_run": run, "guarantee": "none"}
            opened = replace(present, **(fields | changes))  # type: ignore[arg-type]
            return writer.next(connection, opened, by="ana", reason="", now=START)

        self.policy = self.store._database.writing(work)

    def decide(
        self,
        count: int,
        *,
        rng: np.random.Generator,
        start: datetime = START,
        every: timedelta = MINUTE,
        shipped: float = 1.0,
        number: int = 0,
        store: Store | None = None,
        **changes: Any,
    ) -> list[BatchDecision]:
        """Decide `count` batches of two answers, the second the best, drawn as the gate's settings say."""
        p = self.policy.settings.audit_probability
        lease = self._leases.get(number)
        if lease is None:
            lease = self._leases[number] = self.world.lease(number)
        batch = []
        for place in range(count):
            ships = self.policy.state != "closed" and rng.random() < shipped
            fields: dict[str, Any] = {
                "number": number, "actions": ("abstain", "ship" if ships else "abstain"),
                "scores": (0.25, round(float(rng.random()), 6)), "sampled": bool(rng.random() < p),
                "sampling_probability": p, "at": start + place * every, "policy": self.policy,
                "newest_seen": NEWEST,
            }  # fmt: skip
            batch.append(self.world.decision(self.offset + place, **(fields | changes)))
        self.world.commit(self.world.slice(lease, *batch, expected=self.offset), store=store)
        self.offset += count
        self.made += batch
        return batch

    def label(
        self,
        decisions: Sequence[BatchDecision],
        severities: Mapping[str, float] | Callable[[BatchDecision], float],
        *,
        at: datetime = START,
        received: datetime | None = None,
        everyone: bool = False,
        **changes: Any,
    ) -> None:
        """Label the drawn responses of these decisions (of all of them: `everyone`)."""
        revisions = []
        for one in decisions:
            for response in one.responses:
                if not everyone and not response.drawn:
                    continue
                severity = severities(one) if callable(severities) else severities[one.key.batch_id]
                fields = {
                    "key": BatchKey(*one.key), "response_id": response.id, "severity": severity,
                    "raw_severity": None, "kind": "human", "labeller": "ana", "labelled_at": at,
                }  # fmt: skip
                revisions.append(LabelRevision(**(fields | changes)))  # type: ignore[arg-type]
        self.store.labels.add(revisions, now=received or at)

    def watcher(self, observer: RiskObserver | None = None, **options: Any) -> RiskWatch:
        """A watcher to which no round seems long, however slow the machine is."""
        moments = itertools.count()
        quick: dict[str, Any] = {"monotonic": lambda: next(moments) / 1000}
        return RiskWatch(
            self.store.monitoring, alerts=self.store.alerts, observer=observer or Shown(), **(quick | options)
        )

    def settings(self) -> GateSettings:
        return self.store.policies.newest(GATE).settings


def replayed(
    store: Store, *, control: Callable[[Iterator[dict[str, Any]]], Iterator[dict[str, Any]]] = iter
) -> list[str]:
    """What the verifier finds where it replays the alarms of a record; `control` changes the lines of the control log."""
    verifier, alarms = Verifier([]), Alarms()
    runs = Runs(verifier)
    with store.evidence.snapshot() as snapshot:
        lines = control(snapshot.control())
        verifier.control(snapshot.head(), alarms.control(runs.control(lines)))
        deque(alarms.outcomes(runs.outcomes(snapshot.outcomes())), maxlen=0)
    alarms.check(runs)
    return [fault["detail"] for fault in verifier.faults if fault["check"] == "alarm"]


@pytest.fixture
def new_traffic(
    new_world: Callable[..., World],  # noqa: F811
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Traffic]]:
    """Makes the gate with traffic; at the end its alarms are replayed, unless a test has made their evidence up."""

    def make(**settings: Any) -> Traffic:
        made.append(Traffic(new_world(), **settings))
        made[-1].open_gate()
        return made[-1]

    made: list[Traffic] = []
    yield make
    for one in made if "evidence" not in request.fixturenames else ():
        assert replayed(one.store) == []


@pytest.fixture
def light_traffic(
    migrated_sqlite_file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Traffic]]:
    """The same on SQLite alone, for what no database has a say in."""
    made: list[World] = []

    def make(**settings: Any) -> Traffic:
        path = tmp_path / f"{len(made)}.db"
        shutil.copy(migrated_sqlite_file, path)
        made.append(World(f"sqlite:///{path}"))
        traffic = Traffic(made[-1], **settings)
        traffic.open_gate()
        return traffic

    yield make
    for one in made:
        assert "evidence" in request.fixturenames or replayed(one.store) == []
        one.close()


__all__ = ["DAY", "GATE", "MINUTE", "OPEN", "START", "Shown", "Traffic", "replayed"]
