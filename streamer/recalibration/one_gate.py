"""One run of one gate, and what becomes of it: by the gate's rule, or on demand.

Whoever calls this holds the gate's lease. Everything is written in one transaction at the end; killed before it, the old
policy is in force and nothing is recorded; killed after it, the new one is, and its message waits in the outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, Protocol

from streamer.events.alerts import AlertsV1, alert
from streamer.failpoints import Failpoint, disarmed
from streamer.gates.policy import RECALIBRATOR, GateRevision, Policy
from streamer.recalibration.comparison import Direction, Reading, direction, lambda_step, ship_rate
from streamer.recalibration.gate_rule import (
    Closing,
    Comparison,
    Held,
    Outcome,
    Proposal,
    Verdict,
    closing,
    hold,
    verdict,
)
from streamer.recalibration.missing_labels import MissingLabels, unlabelled_by
from streamer.recalibration.run import (
    LONGEST_SECONDS,
    AuditSample,
    CalibrationRun,
    Heads,
    NothingToCalibrate,
    Recalibration,
    Since,
    calibrate_gate,
    with_diagnostics,
)
from streamer.recalibration.sampled import SampledGroup
from streamer.recalibration.skill import level_of, separation

LONGEST_UNWATCHED = timedelta(minutes=5)
"""Decisions that no alarm has read for longer stand against a looser threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """What became of a run, and why."""

    outcome: Outcome
    why: str
    run: CalibrationRun


class RunStore(AuditSample, Protocol):
    """Where a run reads and is recorded."""

    def one_moment(self) -> AbstractContextManager[RunStore]:
        """Until the end, what is read by what this gives is of one moment; nothing is written by it."""

    def newest_label(self) -> int:
        """Return the number of the newest label revision there is."""

    def heads(self) -> Heads:
        """Return where every log ends that has a leaf, the control log's among them."""

    def alarm_closure(self, gate: str) -> Since | None:
        """Return where the newest alarm that closed the gate, or should have, restarts its sample; None: nowhere."""

    def labelled_rows(self, run: int) -> set[int]:
        """Return the rows (see `SampledGroup.row`) of the groups of which a stored run has read a label."""

    def standing_alarms(self, gate: str) -> frozenset[str]:
        """Return the kinds of the gate's alarms that stand raised: neither acknowledged nor ended."""

    def known_evidence(self, gate: str) -> float:
        """Return the evidence of the gate's risk alarm from the labels that are known; 0 where it has read nothing."""

    def unwatched_since(self, gate: str) -> datetime | None:
        """Return when the first decision was made that the gate's alarms have not read; None: there is none."""

    def shown(self, gate: str, kind: str, *, before: datetime, deadline: timedelta) -> list[tuple[str, bool]]:
        """Return, in order, to whom the review page showed drawn answers, and whether none had a label by the deadline."""

    def held(self, gate: str) -> Held | None:
        """Return the wait of a looser threshold that the gate's newest run began, if no policy came since."""

    def proposal(self, gate: str) -> Proposal | None:
        """Return what the gate's newest run proposes; None: nothing, or it is in force or rejected."""

    def record_run(
        self,
        run: CalibrationRun,
        *,
        by: str,
        reason: str,
        now: datetime,
        why: str = "",
        expected: int | None = None,
        known_alarms: frozenset[str] | None = None,
        alert: AlertsV1 | None = None,
    ) -> Policy:
        """Store the run with all inputs and candidates, and the policy that follows, in one transaction.

        Raises `PolicyChanged` when the gate was revised since the run began, the policy `expected` is not in force
        any more, an alarm was raised that restarts the sample, or one stands that is not in `known_alarms`; and
        `UsageError` when no policy can be made here.
        """

    def record_only(
        self,
        run: CalibrationRun,
        outcome: Literal["proposed", "unchanged"],
        *,
        by: str,
        now: datetime,
        why: str = "",
        expected: int | None = None,
    ) -> int:
        """Store the run and leave the policy as it is; returns the run's number. Raises as `record_run` does."""


class PolicyHistory(Protocol):
    """Where the policies of a gate are."""

    def newest(self, gate: str) -> Policy:
        """Return the policy in force."""

    def list(self, gate: str) -> Sequence[Policy]:
        """Return every version, the oldest first."""


def recalibrate_by_hand(
    store: RunStore,
    policies: PolicyHistory,
    gate: GateRevision,
    *,
    clock: Callable[[], datetime],
    by: str,
    reason: str,
    dry_run: bool = False,
    propose: bool = False,
    note: str = "",
) -> Recalibration:
    """Run a gate now, and put its threshold in force, or leave it as a proposal, or record nothing.

    The gate's rule and its limits do not apply: who asks for a run decides. But what somebody, or an alarm, has closed
    while it was computed stays closed, and nothing is loosened without a single label. Raises
    `NothingToCalibrate` when there is nothing to read, or nothing of it has a label and the run
    would hold less than before; `UsageError` or `PolicyChanged` when the gate or its policy has
    changed since.
    """
    before = policies.newest(gate.gate)
    with store.one_moment() as read:
        run = replace(_calibrate(read, gate, before, clock=clock), note=note)
    if not run.labelled and _direction(Reading.of_policy(before), run) == "looser":
        # Within the budget even if all of it is wrong, but nobody has looked at any of it.
        newer = None if run.age_cut is None else run.age_cut.newer_labels()
        raise NothingToCalibrate(
            f"none of the {run.drawn} drawn {run.items} of gate {gate.gate!r} that a run reads has a label; "
            f"{newer or 'label some first'}: `streamer label queue --gate {gate.gate}` lists them"
        )
    after = proposed = None
    if propose and not dry_run:
        proposed = store.record_only(run, "proposed", by=by, now=clock(), expected=before.version)
    elif not dry_run:
        after = store.record_run(run, by=by, reason=reason, now=clock(), expected=before.version)
    return Recalibration(run=run, before=before, after=after, proposed=proposed)


def recalibrate_by_rule(
    store: RunStore,
    policies: PolicyHistory,
    gate: GateRevision,
    *,
    clock: Callable[[], datetime],
    failpoint: Failpoint = disarmed,
    raise_alert: Callable[[AlertsV1], object] = lambda _alert: None,
) -> FinishedRun:
    """Run a gate now, and do with the threshold what the gate's rule says.

    `raise_alert` gets the alerts where labels are not missing at random, by score or by labeller.
    Raises `NothingToCalibrate` when there is nothing to read and `UsageError` or `PolicyChanged`
    when the gate or its policy has changed since.
    """
    failpoint("before_run")
    before = policies.newest(gate.gate)
    with store.one_moment() as read:
        run = _calibrate(read, gate, before, clock=clock)
        if run.missing_labels is not None and run.missing_labels.not_at_random:
            raise_alert(_not_at_random(run, run.missing_labels))
        if (slow := _unlabelled(store, gate, run.started_at)) is not None:
            raise_alert(slow)
        compared = _compare(store, before, run)
        closed = alarms = None
        if before.ships_nothing:
            closed = closing(policies.list(gate.gate))
        recorded = run
        if compared.direction == "looser" and gate.settings.recalibrate == "auto":
            alarms = store.standing_alarms(gate.gate)
            decided, recorded = _judge_loosening(store, read, before, run, compared, closed, alarms)
            recorded = replace(recorded, held_until=decided.held_until)
        else:
            decided = verdict(
                gate.settings, compared, closed=closed, worse=run.worse, unskilled=_unskilled(run, closed)
            )
    failpoint("before_record")
    _record(store, recorded, decided, before, compared, alarms, now=clock())
    failpoint("after_record")
    return FinishedRun(outcome=decided.outcome, why=decided.why, run=recorded)


def tighten_by_rule(
    store: RunStore, policies: PolicyHistory, gate: GateRevision, *, clock: Callable[[], datetime]
) -> FinishedRun | None:
    """Between two runs, check whether the newest groups have become worse; a run is recorded if it holds more.

    Returns None, and records nothing, where it does not. Raises as `recalibrate_by_rule` does.
    """
    before = policies.newest(gate.gate)
    if before.ships_nothing:
        return None
    with store.one_moment() as read:
        run = _calibrate(read, gate, before, clock=clock, diagnostics=False)
    if run.worse is None:
        return None
    compared = _compare(store, before, run)
    if compared.direction != "tighter":
        return None
    if gate.settings.recalibrate != "auto" and (waiting := store.proposal(gate.gate)) is not None:
        proposed = Reading(waiting.cut, waiting.rule)
        if _direction(proposed, run) != "tighter":
            return None  # a person already has this much to look at
    run = with_diagnostics(run)
    decided = verdict(gate.settings, compared, worse=run.worse)
    _record(store, run, decided, before, compared, None, now=clock())
    return FinishedRun(outcome=decided.outcome, why=decided.why, run=run)


def _unwatched(since: datetime | None, now: datetime) -> str | None:
    """Say that no alarm reads what is decided; rounds follow one another in seconds."""
    if since is None or now - since <= LONGEST_UNWATCHED:
        return None
    return f"watching stands still: no alarm has read what was decided since {since:%Y-%m-%d %H:%M:%SZ}"


def _unskilled(run: CalibrationRun, closed: Closing | None) -> str | None:
    """Say of a closed gate that what the run would ship is not shown to be better; None where it is, or all ships."""
    if closed is None:
        return None
    level = level_of(closed.alarms, run.age_cut)
    found = separation(run.reading, run.gate.settings, run.sample, level=level)
    return None if found is None or found.shown else found.said


def _not_at_random(run: CalibrationRun, found: MissingLabels) -> AlertsV1:
    gate, settings = run.gate.gate, run.gate.settings
    since = 0 if run.since is None else run.since.version
    return alert(
        gate,
        "labels_not_at_random",
        f"{settings.severity_kind} labels since version {since}",
        message=f"Of gate {gate} {found.said}. Calibration treats them as `--pending` says, and the risk in service is known less "
        "well. Look at who labels what, and at the queue: `streamer label queue --gate " + gate + "`.",
        raised_at=run.started_at,
        details={"draws": found.draws, "missing": found.missing, "pairs": found.pairs, "lower": found.lower},
    )


def _unlabelled(store: RunStore, gate: GateRevision, now: datetime) -> AlertsV1 | None:
    kind = gate.settings.severity_kind
    deadline = timedelta(seconds=min(gate.settings.monitor_deadline_seconds, LONGEST_SECONDS))
    found = unlabelled_by(store.shown(gate.gate, kind, before=now - deadline, deadline=deadline))
    if found is None:
        return None
    labeller, missing = found
    return alert(
        gate.gate,
        "labels_not_at_random",
        f"{kind} labels, labeller {labeller}",
        message=f"Of gate {gate.gate} answers that were shown to {labeller} stay without a label more often than others: in "
        f"{missing.lower} of {missing.pairs} pairs of a labelled answer and one that nobody labelled in time, the latter was "
        f"{labeller}'s (e-value {missing.evidence:.3g}). Ask what is hard about them, or who is away.",
        raised_at=now,
        details={"labeller": labeller, "shown": missing.draws, "missing": missing.missing},
    )


def _calibrate(
    store: RunStore,
    gate: GateRevision,
    before: Policy,
    *,
    clock: Callable[[], datetime],
    diagnostics: bool = True,
) -> CalibrationRun:
    """Calibrate; `store` reads at one moment, so that its heads say what was there."""
    return calibrate_gate(
        store,
        gate,
        heads=store.heads(),
        now=clock(),
        since=store.alarm_closure(gate.gate),
        labels_through=store.newest_label(),
        diagnostics=diagnostics,
        in_force=before,
    )


def _judge_loosening(
    store: RunStore,
    read: RunStore,
    before: Policy,
    run: CalibrationRun,
    compared: Comparison,
    closed: Closing | None,
    alarms: frozenset[str],
) -> tuple[Verdict, CalibrationRun]:
    """Judge a run that holds less, beside the same run on worst labels; returns the one of the two that is to be recorded."""

    def on_worst_labels(*, diagnostics: bool) -> CalibrationRun:
        return calibrate_gate(
            read,
            run.gate,
            now=run.started_at,
            since=run.since,
            severities="highest",
            labels_through=run.labels_through,
            heads=run.heads,
            diagnostics=diagnostics,
            in_force=before,
            cut=run.age_cut,
        )

    worst_label = on_worst_labels(diagnostics=False)
    if worst_label.groups == run.groups:
        worst_label, beside = run, compared  # nobody ever gave a response two labels
    else:
        beside = _compare(store, before, worst_label)
    decided = verdict(
        run.gate.settings,
        compared,
        closed=closed,
        worst_label=beside,
        safely_reopened=closed is not None
        and closed.served is not None
        and _direction(closed.served, worst_label) != "looser",
        alarms=alarms,
        evidence=store.known_evidence(run.gate.gate),
        unwatched=_unwatched(store.unwatched_since(run.gate.gate), run.started_at),
        worse=run.worse or worst_label.worse,
        unskilled=_unskilled(worst_label, closed),
    )
    if not decided.worst_label:
        return decided, run
    decided = hold(decided, now=run.started_at, since=store.held(run.gate.gate), lag=worst_label.label_lag)
    return decided, worst_label if worst_label is run else with_diagnostics(worst_label)


def _compare(store: RunStore, before: Policy, run: CalibrationRun) -> Comparison:
    old, new = Reading.of_policy(before), run.reading
    unit = run.gate.settings.unit
    labelled = [group for group in run.groups if group.labelled]
    return Comparison(
        direction=_direction(old, run),
        lambda_step=lambda_step(old, new),
        ship_rates=(ship_rate(old, unit, run.groups), ship_rate(new, unit, run.groups)),
        labelled_groups=len(labelled),
        new_groups=_new_groups(store, before, labelled),
    )


def _direction(before: Reading, run: CalibrationRun) -> Direction:
    return direction(before, run.reading, run.gate.settings.unit, run.groups)


def _new_groups(store: RunStore, before: Policy, labelled: Sequence[SampledGroup]) -> int:
    if before.calibration_run is None:
        return len(labelled)
    known = store.labelled_rows(before.calibration_run)
    return sum(group.row not in known for group in labelled)


def _record(
    store: RunStore,
    run: CalibrationRun,
    decided: Verdict,
    before: Policy,
    compared: Comparison,
    alarms: frozenset[str] | None,
    *,
    now: datetime,
) -> None:
    if decided.outcome == "applied":
        store.record_run(
            run,
            by=RECALIBRATOR,
            reason=decided.why,
            now=now,
            why=decided.why,
            expected=before.version,
            known_alarms=alarms,  # a run takes its time, and others may be raised meanwhile
            alert=_large_step(before, decided, compared, now) if decided.large else None,
        )
        return
    store.record_only(
        run, decided.outcome, by=RECALIBRATOR, now=now, why=decided.why, expected=before.version
    )


def _large_step(before: Policy, decided: Verdict, compared: Comparison, now: datetime) -> AlertsV1:
    version = before.version + 1
    was, is_now = compared.ship_rates
    return alert(
        before.gate,
        "large_step",
        f"version {version}",
        message=f"Gate {before.gate} holds much more than before: {decided.why}. Look at what changed: "
        f"`streamer threshold show {before.gate}`.",
        raised_at=now,
        details={"share_shipped_before": was, "share_shipped_now": is_now},
        policy_version=version,
    )
