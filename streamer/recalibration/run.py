"""One calibration run: the audit sample from SQL, the gate's method decides, the others stand beside it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streamer.calibration import LabelledGroup, calibrate_groups
from streamer.errors import UsageError
from streamer.policy import METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from streamer.calibration import Threshold
    from streamer.journal import BatchKey
    from streamer.policy import GateRevision, GateSettings, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledItem:
    """A response that the audit draw asks a severity for (under unit `best` and `batch`: its unit's score).

    `severity` is the present mean over labellers, in [0, 1]; None while nobody has labelled it.
    """

    response_id: str
    score: float
    severity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGroup:
    """One batch of the audit sample with its drawn responses, at least one."""

    key: BatchKey
    probability: float
    items: tuple[SampledItem, ...]

    @property
    def id(self) -> str:
        """Identity of the group within its gate; the random weights derive from it."""
        return f"{self.key.batch_id}#{self.key.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What one calibrator makes of the run's groups."""

    method: str
    threshold: Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRun:
    """A finished computation: what went in and what came out. Nothing is stored yet.

    Attributes
    ----------
    groups : what was read; `labelled_groups` is the same as the calibrators saw it, missing severities as 1.
    candidates : one for each method; the gate's own decides.
    effective_alpha : the budget of one attempt, alpha / R.
    older_than : batches decided before this moment were read.
    """

    gate: GateRevision
    groups: tuple[SampledGroup, ...]
    labelled_groups: tuple[LabelledGroup, ...]
    candidates: tuple[Candidate, ...]
    effective_alpha: float
    seed: int
    older_than: datetime
    started_at: datetime

    @property
    def decided(self) -> Threshold:
        """The threshold by the gate's own method: the only one that may become a policy."""
        return next(c.threshold for c in self.candidates if c.method == self.gate.settings.method)

    @property
    def drawn(self) -> int:
        """Responses that the audit draw asked a severity for."""
        return sum(len(group.items) for group in self.groups)

    @property
    def labelled(self) -> int:
        """Those of them that have one; the others counted as severity 1."""
        return sum(item.severity is not None for group in self.groups for item in group.items)

    @property
    def guarantee(self) -> str:
        """The promise in words, with what was missing and how attempts share the budget."""
        parts = [self.decided.guarantee]
        attempts = self.gate.settings.max_attempts
        if attempts > 1:
            parts.append(
                f"Up to {attempts} attempts share the budget {self.gate.settings.alpha!r}: each is calibrated at "
                f"{self.effective_alpha!r} on first attempts (union bound)."
            )
        missing = self.drawn - self.labelled
        if missing:
            parts.append(
                f"{missing} of {self.drawn} drawn responses had no label and counted as severity 1, "
                "which can only make the threshold stricter."
            )
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """A run with the policy before it and the one that it put in force; `after` is None for a dry run."""

    run: CalibrationRun
    before: Policy
    after: Policy | None


class CalibrationStore(Protocol):
    """The store as a calibration run needs it."""

    def audit_sample(
        self, gate: str, *, settings: GateSettings, older_than: datetime
    ) -> Sequence[SampledGroup]:
        """Read the audit sample that these settings can be calibrated on, in order of decision.

        First attempts that were drawn, scored under the settings' unit, scorer and encoder, and decided before
        `older_than`, with the present severities of the settings' kind.
        """
        ...

    def record_run(
        self, run: CalibrationRun, *, guarantee: str, by: str, reason: str, now: datetime
    ) -> Policy:
        """Store the run with all inputs and candidates, and the policy that follows, in one transaction.

        Raises `UsageError` when the gate was revised since the run began.
        """
        ...


def calibrate_gate(store: CalibrationStore, gate: GateRevision, *, now: datetime) -> CalibrationRun:
    """Compute a run for `gate` as it is at `now`; reads, and writes nothing.

    A drawn response without a label counts as severity 1. Labels outside the draw are never used.

    Raises
    ------
    UsageError : the audit sample has no batch that is old enough.
    """
    settings = gate.settings
    older_than = now - timedelta(seconds=settings.label_deadline_seconds)
    groups = tuple(store.audit_sample(gate.gate, settings=settings, older_than=older_than))
    if not groups:
        raise UsageError(
            f"gate {gate.gate!r} has no audit-sampled batch"
            + (
                f" older than {settings.label_deadline_seconds:g} s"
                if settings.label_deadline_seconds
                else ""
            )
            + f"; publish batches to it (its audit probability is {settings.audit_probability:g}) and label what "
            "`streamer label queue` shows"
        )
    labelled = tuple(
        LabelledGroup(
            id=group.id,
            item_ids=tuple(item.response_id for item in group.items),
            scores=np.array([item.score for item in group.items]),
            severities=np.array([1.0 if item.severity is None else item.severity for item in group.items]),
        )
        for group in groups
    )
    alpha = settings.alpha / settings.max_attempts
    candidates = tuple(
        Candidate(
            method=method,
            threshold=calibrate_groups(
                labelled,
                alpha=alpha,
                method=method,
                eta=settings.eta,
                draws=settings.draws,
                seed=gate.seed,
            ),
        )
        for method in METHODS
    )
    return CalibrationRun(
        gate=gate,
        groups=groups,
        labelled_groups=labelled,
        candidates=candidates,
        effective_alpha=alpha,
        seed=gate.seed,
        older_than=older_than,
        started_at=now,
    )
