"""One run of one gate, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamer.failpoints import disarmed
from streamer.policy import RECALIBRATOR
from streamer.recalibration.run import AuditSample, calibrate_gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from streamer.failpoints import Failpoint
    from streamer.policy import GateRevision, Policy
    from streamer.recalibration.run import CalibrationRun, Since
    from streamer.recalibration.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of a run, and why."""

    outcome: Outcome
    why: str


class RunStore(AuditSample, Protocol):
    """Where a run reads and is recorded."""

    def newest_label(self) -> int: ...
    def alarm_closure(self, gate: str) -> Since | None: ...
    def propose(
        self,
        run: CalibrationRun,
        *,
        guarantee: str,
        by: str,
        now: datetime,
        why: str = "",
        expected: int | None = None,
    ) -> int: ...


class PolicyHistory(Protocol):
    """Where the policies of a gate are."""

    def newest(self, gate: str) -> Policy: ...


def recalibrate_by_rule(
    store: RunStore,
    policies: PolicyHistory,
    gate: GateRevision,
    *,
    clock: Callable[[], datetime],
    failpoint: Failpoint = disarmed,
) -> Done:
    """Run a gate and do with the threshold what its rule says."""
    failpoint("before_run")
    before = policies.newest(gate.gate)
    run = calibrate_gate(
        store,
        gate,
        now=clock(),
        labels_through=store.newest_label(),
        since=store.alarm_closure(gate.gate),
    )
    failpoint("before_record")
    why = "the gate's rule is propose"
    store.propose(
        run, guarantee=run.guarantee, by=RECALIBRATOR, now=clock(), why=why, expected=before.version
    )
    failpoint("after_record")
    return Done(outcome="proposed", why=why)
