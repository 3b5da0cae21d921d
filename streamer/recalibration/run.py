"""One calibration run: the audit sample from SQL, the gate's method decides, the others stand beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np

from streamer.calibration.groups import labelled_groups
from streamer.calibration.guarantee import besides
from streamer.errors import TryLater
from streamer.recalibration.candidates import Candidate, RunSample, candidates, decide

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from streamer.calibration import LabelledGroup, Threshold
    from streamer.gates.batch_key import BatchKey
    from streamer.gates.policy import GateRevision, Policy
    from streamer.gates.rule import Rule
    from streamer.gates.settings import GateSettings


SeverityBasis = Literal["mean", "highest"]
SEVERITY_BASES: tuple[SeverityBasis, ...] = get_args(SeverityBasis)
"""Which of a response's labels counts: the mean over labellers of each one's latest, or the highest that anybody ever
gave it. The second cannot be brought down by any label, and is never below the first."""


class NothingToCalibrate(TryLater):
    """The audit sample has no batch that a run could read."""


class PolicyChanged(TryLater):
    """Another policy came into force, or the gate was changed, while a run was computed: what it was made for is gone."""


@dataclass(frozen=True, slots=True)
class Since:
    """Where the audit sample begins, after an alarm has closed the gate, or should have and could not.

    Attributes
    ----------
    version : batches decided under this policy or a later one are read: the one that the alarm closed the gate with, or
        the next after the one that it could not close.
    moment : when it came into force, or when the alarm was raised that could not close the gate.
    closed : whether the alarm closed the gate.
    """

    version: int
    moment: datetime
    closed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledItem:
    """A response that the audit draw asks a severity for.

    `score` is what the gate cuts: the response's own, the mean of its batch under unit `batch`, its rank in the batch
    under shape `rank`. `severity` is the present mean over labellers, in [0, 1]; None while nobody has labelled it.
    """

    response_id: str
    score: float
    severity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGroup:
    """One batch of the audit sample with its drawn responses, at least one.

    Attributes
    ----------
    probability : with which the batch was drawn.
    draws : responses that were drawn from it at most.
    segment : that it belongs to; None for a gate without segments.
    row : what the store calls it; None where no store has read it.
    """

    key: BatchKey
    probability: float
    items: tuple[SampledItem, ...]
    draws: int = 1
    segment: str | None = None
    row: int | None = field(default=None, compare=False, repr=False)

    @property
    def labelled(self) -> bool:
        """Whether a response of it has a severity."""
        return any(item.severity is not None for item in self.items)

    @property
    def id(self) -> str:
        """Identity of the group within its gate; the random weights derive from it."""
        return f"{self.key.batch_id}#{self.key.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRun:
    """A finished computation: what went in and what came out. Nothing is stored yet.

    Attributes
    ----------
    groups : what was read; `labelled_groups` is the same as the calibrators saw it, missing severities as 1.
    candidates : the gate's own, which decides, and every other as a diagnostic.
    effective_alpha : the budget of one attempt, alpha / R.
    older_than : batches decided before this moment were read.
    since : only batches from here on were read; None: all.
    severities : which of a response's labels counted.
    labels_through : number of the newest label revision when the run began to read; None: unknown.
    """

    gate: GateRevision
    groups: tuple[SampledGroup, ...]
    labelled_groups: tuple[LabelledGroup, ...]
    candidates: tuple[Candidate, ...]
    effective_alpha: float
    seed: int
    older_than: datetime
    started_at: datetime
    since: Since | None = None
    severities: SeverityBasis = "mean"
    labels_through: int | None = None

    @property
    def decided(self) -> Threshold:
        """The threshold by the gate's own method: the only one that may become a policy."""
        return self._own.threshold

    @property
    def rule(self) -> Rule:
        """How the decided threshold is to be read."""
        return self._own.rule

    @property
    def _own(self) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.decides)

    @property
    def drawn(self) -> int:
        """Responses that the audit draw took."""
        return sum(len(group.items) for group in self.groups)

    @property
    def labelled(self) -> int:
        """Those of them that have a severity."""
        return sum(item.severity is not None for group in self.groups for item in group.items)

    @property
    def missing(self) -> int:
        """Those of them that should have one and have none, and count as severity 1; below a label floor none should."""
        floor = self.gate.settings.label_floor
        return sum(
            item.severity is None and (floor is None or item.score > floor)
            for group in self.groups
            for item in group.items
        )

    @property
    def _why_safe(self) -> str:
        """Why a severity that counts as more than it is does no harm."""
        if self.gate.settings.calibrator.only_stricter:
            return "which can only make the threshold stricter"
        return "which is never less than its severity, so that what is promised holds"

    @property
    def guarantee(self) -> str:
        """The promise in words, with what was missing and how attempts share the budget."""
        notes = []
        attempts = self.gate.settings.max_attempts
        if attempts > 1:
            notes.append(
                f"Up to {attempts} attempts share the budget {self.gate.settings.alpha!r}: each is calibrated at "
                f"{self.effective_alpha!r} on first attempts (union bound)."
            )
        if len({group.draws for group in self.groups}) > 1:
            notes.append(
                "The number of responses drawn from a batch changed within the calibration groups; the change is "
                "assumed to have nothing to do with the prompts."
            )
        if self.since is not None:
            notes.append(
                f"Only batches decided since an alarm {'closed' if self.since.closed else 'should have closed'} the gate "
                f"(policy {self.since.version}, {self.since.moment:%Y-%m-%d %H:%M:%SZ}) were read: older ones are no longer "
                "exchangeable with what comes."
            )
        if self.severities == "highest":
            notes.append(f"Of several labels of a response the highest ever given counted, {self._why_safe}.")
        if self.missing:
            notes.append(
                f"{self.missing} of {self.drawn} drawn responses had no label and counted as severity 1, "
                f"{self._why_safe}."
            )
        return besides(self.decided.guarantee, *notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """A run with the policy before it, and what became of it.

    Attributes
    ----------
    after : the policy that it put in force; None for a proposal and for a dry run.
    proposed : number of the run that waits to be put in force; None otherwise.
    """

    run: CalibrationRun
    before: Policy
    after: Policy | None
    proposed: int | None = None


class AuditSample(Protocol):
    """Where a calibration run reads."""

    def audit_sample(
        self,
        gate: str,
        *,
        settings: GateSettings,
        older_than: datetime,
        since_version: int | None = None,
        severities: SeverityBasis = "mean",
    ) -> Sequence[SampledGroup]:
        """Read the audit sample that these settings can be calibrated on, in order of decision.

        First attempts that were drawn, scored under the settings' unit, scorer and encoder, decided before
        `older_than` and under the policy `since_version` or a later one, with the severities of the settings' kind.
        """
        ...


def calibrate_gate(
    store: AuditSample,
    gate: GateRevision,
    *,
    now: datetime,
    since: Since | None = None,
    severities: SeverityBasis = "mean",
    labels_through: int | None = None,
    diagnostics: bool = True,
) -> CalibrationRun:
    """Compute a run for `gate` as it is at `now`; reads, and writes nothing.

    A drawn response without a label counts as severity 1. Labels outside the draw are never used.

    Parameters
    ----------
    since : where the audit sample begins; None: at the first batch.
    severities : which of a response's labels counts.
    labels_through : kept with the run.
    diagnostics : run the other calibrators too; without them the run is for a comparison, and not to be recorded.

    Raises
    ------
    NothingToCalibrate : the audit sample has no batch that is old enough.
    """
    settings = gate.settings
    older_than = now - timedelta(seconds=settings.label_deadline_seconds)
    groups = tuple(
        store.audit_sample(
            gate.gate,
            settings=settings,
            older_than=older_than,
            since_version=None if since is None else since.version,
            severities=severities,
        )
    )
    if not groups:
        raise NothingToCalibrate(
            f"gate {gate.gate!r} has no audit-sampled batch"
            + (
                f" older than {settings.label_deadline_seconds:g} s"
                if settings.label_deadline_seconds
                else ""
            )
            + (
                ""
                if since is None
                else f" that was decided since an alarm closed it ({since.moment:%Y-%m-%d %H:%M:%SZ})"
                if since.closed
                else f" of policy {since.version} or a later one (an alarm should have closed it on "
                f"{since.moment:%Y-%m-%d %H:%M:%SZ} and could not: `streamer threshold close {gate.gate}` where there is a "
                "key to sign with)"
            )
            + f"; publish batches to it (its audit probability is {settings.audit_probability:g}) and label what "
            "`streamer label queue` shows"
        )
    labelled = labelled_groups(
        [group.id for group in groups],
        [tuple([item.response_id for item in group.items]) for group in groups],
        np.array([item.score for group in groups for item in group.items]),
        np.array(
            [1.0 if item.severity is None else item.severity for group in groups for item in group.items]
        ),
    )
    # .3 / 3 is .1 to people, and .09999999999999999 to the processor
    alpha = round(settings.alpha / settings.max_attempts, 15)
    sample = _sample(gate, groups, labelled, alpha)
    return CalibrationRun(
        gate=gate,
        groups=groups,
        labelled_groups=labelled,
        candidates=candidates(settings, sample) if diagnostics else (decide(settings, sample),),
        effective_alpha=alpha,
        seed=gate.seed,
        older_than=older_than,
        started_at=now,
        since=since,
        severities=severities,
        labels_through=labels_through,
    )


def with_diagnostics(run: CalibrationRun) -> CalibrationRun:
    """Return a run that was made without diagnostics, with them."""
    sample = _sample(run.gate, run.groups, run.labelled_groups, run.effective_alpha)
    return replace(run, candidates=candidates(run.gate.settings, sample))


def _sample(
    gate: GateRevision,
    groups: Sequence[SampledGroup],
    labelled: Sequence[LabelledGroup],
    alpha: float,
) -> RunSample:
    segmented = gate.settings.segment_by is not None
    return RunSample(
        groups=labelled,
        segments={group.id: group.segment or "" for group in groups} if segmented else {},
        alpha=alpha,
        seed=gate.seed,
        fewest_draws=min(group.draws for group in groups),
    )
