"""One calibration run: the audit sample from SQL, the gate's method decides, the others are diagnostics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import History, LabelledGroup, Threshold
from streamer.calibration.claims import claim_loss
from streamer.calibration.groups import labelled_groups
from streamer.calibration.guarantee import besides, budget
from streamer.calibration.history import MOST, NO_HISTORY
from streamer.calibration.specification import Sample
from streamer.errors import TryLater
from streamer.gates.audit_rate import label_lag
from streamer.gates.policy import Bursts, GateRevision, Policy, sealed_burst
from streamer.gates.rule import Cut, Full, Rule
from streamer.gates.settings import GateSettings
from streamer.gates.shapes import noted
from streamer.recalibration import age_cut
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.candidates import Candidate, candidates, decide
from streamer.recalibration.comparison import Reading, claim_losses, direction, losses
from streamer.recalibration.missing_labels import MissingLabels, missing_labels
from streamer.recalibration.sampled import (
    SampledGroup,
    bad_bursts,
    burst_note,
    complete,
    decided_before,
    missing_of,
    one_of_each,
    prompts_of,
    scores_of,
    severities_of,
    unread_text,
    was_before,
)
from streamer.recalibration.suffix_test import Suffix, order, suffix_test

Heads = tuple[tuple[str, str, int, int, str], ...]
"""Where logs end: log, topic, number, size and root (hex) of each partition's, and of the control log, which is ``"control", "", 0``."""

CHOSEN = "It was adopted after a trial beside another policy: this holds if its labels played no part in that choice."
"""The note of a run for an adopted candidate."""

SeverityBasis = Literal["mean", "highest"]
"""Which of a response's labels counts: the mean over labellers of each one's latest, or the highest ever
gave it. The second cannot be brought down by any label, and is never below the first."""


class NothingToCalibrate(TryLater):
    """The audit sample has no batch that a run could read."""


class PolicyChanged(TryLater):
    """Another policy came into force, or the gate was changed, while a run was computed, which is therefore outdated."""


@dataclass(frozen=True, slots=True)
class Since:
    """Where the audit sample begins, after an alarm has closed the gate, or should have and could not.

    `version`: batches decided under this policy or a later one are read: the one that the alarm
    closed the gate with, or the next after the one that it could not close. `moment`: when it came
    into force, or when the alarm was raised that could not close the gate. `closed`: whether the
    alarm closed the gate.
    """

    version: int
    moment: datetime
    closed: bool = True


@dataclass(frozen=True, kw_only=True)
class CalibrationRun:
    """A finished computation: what went in and what came out. Nothing is stored yet.

    Attributes
    ----------
    groups : what was read; the calibrators saw `labelled_groups`, those decided before `older_than`, missing severities
        as 1. The others have labels, and only the suffix test has read them.
    candidates : the gate's own, which decides, and every other as a diagnostic.
    effective_alpha : the budget of one attempt, alpha / R.
    older_than : batches decided before this moment were calibrated on.
    since : only batches from here on were read; None: all.
    severities : which of a response's labels counted.
    labels_through : number of the newest label revision that it could read; 0: there was none.
    heads : the logs at the moment of which everything was read. None: unknown.
    age_cut : from which age on draws counted.
    suffix : the newest groups beside older ones; None: too few, or not compared.
    held_until : a looser threshold waits until then.
    history : the cuts that undrawn prompts fix.
    missing_labels : whether labels are missing at random; not kept with the run.
    note : on how its settings were chosen, for the guarantee.
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
    labels_through: int = 0
    heads: Heads | None = None
    age_cut: AgeCut | None = None
    suffix: Suffix | None = None
    held_until: datetime | None = None
    history: History = NO_HISTORY
    missing_labels: MissingLabels | None = field(default=None, compare=False)
    note: str = ""

    @property
    def sample(self) -> list[SampledGroup]:
        """The groups that were calibrated on."""
        return [one for one in decided_before(self.groups, self.older_than) if not one.spare]

    @property
    def label_lag(self) -> timedelta:
        """How late labels come: the 95 % quantile of the delays of what was calibrated on, the deadline if none is known."""
        settings = self.gate.settings
        lag = label_lag(delays(self.sample, settings), deadline=settings.monitor_deadline_seconds)
        seconds = settings.monitor_deadline_seconds if lag is None else lag
        return timedelta(seconds=min(seconds, LONGEST_SECONDS))

    @property
    def decided(self) -> Threshold:
        """The threshold by the gate's own method: the only one that may become a policy."""
        return self._own.threshold

    @property
    def rule(self) -> Rule:
        """How the decided threshold is to be read."""
        return self._own.rule

    @property
    def reading(self) -> Reading:
        """What was decided, as a gate reads it."""
        return Reading(Cut.at(self.decided.value), self.rule, self.bursts)

    @property
    def worse(self) -> str | None:
        """How much worse the newest groups are, in words; None where the threshold does not rest on them."""
        return self.suffix.said if self.suffix is not None and self.suffix.cuts else None

    @property
    def bursts(self) -> Bursts | None:
        """The bursts of which nothing ships, hashed without a secret; None where the gate ships whatever their burst."""
        settings = self.gate.settings
        if settings.group_by is None or not settings.calibrator.of_signals:
            return None
        bad = bad_bursts(self.groups, self.gate.audit_salt)
        return Bursts(settings.group_by, b"", {sealed_burst(name, b""): ids for name, ids in bad.items()})

    @property
    def _own(self) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.decides)

    @property
    def drawn(self) -> int:
        """Responses that the audit draw took."""
        return sum([len(group.items) for group in self.groups])

    @property
    def labelled(self) -> int:
        """Those of them that have a severity."""
        return sum([item.severity is not None for group in self.groups for item in group.items])

    @cached_property
    def missing(self) -> int:
        """Those of them that should have one and have none, and count as severity 1."""
        return sum(missing_of(self.groups, self.gate.settings))

    @property
    def _why_safe(self) -> str:
        """Why counting a severity as too high does no harm."""
        if self.gate.settings.calibrator.only_stricter:
            return "which can only make the threshold stricter"
        return "which is never less than its severity, so that what is promised holds"

    @property
    def items(self) -> str:
        """What is drawn and labelled, in a word."""
        return "claims" if self.gate.settings.unit == "claim" else "responses"

    @cached_property
    def guarantee(self) -> str:
        """The promise in words, with what was missing and how attempts share the budget."""
        notes = []
        attempts = self.gate.settings.max_attempts
        if attempts > 1:
            notes.append(
                f"Up to {attempts} attempts share the budget {budget(self.gate.settings.alpha)}: each is calibrated at "
                f"{budget(self.effective_alpha)} on first attempts (union bound)."
            )
        if len({group.draws for group in self.groups}) > 1:
            notes.append(
                f"The number of {self.items} drawn from a batch changed within the calibration groups; the change "
                "is assumed to have nothing to do with the prompts."
            )
        if self.since is not None:
            notes.append(
                f"Only batches decided since an alarm {'closed' if self.since.closed else 'should have closed'} the gate "
                f"(policy {self.since.version}, {self.since.moment:%Y-%m-%d %H:%M:%SZ}) were read: older ones are no longer "
                "exchangeable with what comes."
            )
        cut = self.age_cut
        if cut is not None and cut.window is not None:
            notes.append(f"Only the newest {cut.window} prompts were read.")
        if cut is not None and cut.pending == "labelled-only":
            notes.append(
                "Prompts without a label were left out: this holds if bad answers get their labels as soon as good ones do, "
                "and breaks the budget if they get them later."
            )
        if cut is not None and cut.unused:
            notes.append(
                f"Prompts younger than {age_cut.span(cut.seconds)} were not used, with a label or without: prompts are "
                "assumed exchangeable, and are in or out by their age alone."
            )
            if (remedy := cut.remedy(self.gate.gate)) is not None:
                notes.append(f"{remedy[:1].upper()}{remedy[1:]}.")
        if self.severities == "highest":
            notes.append(
                f"Where {self.items} have several labels, the highest ever given counted, {self._why_safe}."
            )
        if self.missing:
            notes.append(
                f"{self.missing} of {self.drawn} drawn {self.items} had no label and counted as severity 1, "
                f"{self._why_safe}."
            )
        if (key := self.gate.settings.group_by) is not None:
            notes.append(burst_note(key))
        if self.note:
            notes.append(self.note)
        return besides(self.decided.guarantee, *notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """A run with the policy before it, and what became of it.

    `after`: the policy that it put in force; None for a proposal and for a dry run. `proposed`:
    number of the run that waits to be put in force; None otherwise.
    """

    run: CalibrationRun
    before: Policy
    after: Policy | None
    proposed: int | None = None


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """Which first attempts of a gate can be read to calibrate its settings.

    `settings`: scored under their unit, scorer and encoder; severities are of their kind. `before`:
    decided before this moment. `since_version`: decided under this policy or a later one; None:
    under any. `severities`: which of a response's labels counts.
    """

    gate: str
    settings: GateSettings
    before: datetime
    since_version: int | None = None
    severities: SeverityBasis = "mean"


class AuditSample(Protocol):
    """Where a calibration run reads."""

    def audit_sample(self, query: SampleQuery) -> Sequence[SampledGroup]:
        """Read the groups that the gate's own audit drew, in order of decision."""
        ...

    def label_delays(
        self, gate: str, *, settings: GateSettings, before: datetime, most: int
    ) -> Sequence[float | None]:
        """Read how late, in seconds, the labels of the newest `most` draws decided before a moment came; None: never."""
        ...

    def not_read(self, gate: str) -> tuple[int, int]:
        """How many of the newest decisions are looked at, and how many of them are held, as the encoder did not read an answer."""
        ...

    def undrawn_history(self, query: SampleQuery, *, most: int) -> History:
        """Fix cuts by the scores of the newest `most` first attempts that the gate's own audit did not draw.

        For unit `best` a batch's highest score, for `batch` their mean, for `response` each.
        """
        ...


def calibrate_gate(
    store: AuditSample,
    gate: GateRevision,
    *,
    now: datetime,
    since: Since | None = None,
    severities: SeverityBasis = "mean",
    labels_through: int = 0,
    heads: Heads | None = None,
    diagnostics: bool = True,
    in_force: Policy | None = None,
    cut: AgeCut | None = None,
) -> CalibrationRun:
    """Compute a run for `gate` as it is at `now`; reads, and writes nothing.

    Draws younger than an age cut are not used (`cut`, None: it is chosen now); an older one without
    a label counts as severity 1 (`age_cut`). Labels outside the draw are never used. The audit
    sample begins at `since`. Without `diagnostics` the run is for a comparison, and not to be
    recorded. With the policy that serves, `in_force`, the newest groups are compared with older
    ones, and where they are worse the threshold is the stricter of theirs and of all
    (`suffix_test`). `labels_through` and `heads` are kept with the run. Raises `NothingToCalibrate`
    where the audit sample has no batch that is old enough.
    """
    settings = gate.settings
    query = SampleQuery(gate.gate, settings, now, None if since is None else since.version, severities)
    drawn = tuple(store.audit_sample(query))
    if drawn and cut is None:
        cut = choose_cut(store, gate, drawn, now)
    older_than = now if cut is None else age_moment(now, cut)
    if settings.group_by is not None:
        drawn = tuple(one_of_each(drawn, gate.audit_salt, older_than))
    sample = decided_before(drawn, older_than)
    young = complete([one for one in drawn if not was_before(one, older_than)], settings)
    if settings.window is not None:
        sample = sample[-settings.window :]
    if settings.pending == "labelled-only":
        sample = complete(sample, settings)
    if not sample:
        raise NothingToCalibrate(_nothing(gate, since, *store.not_read(gate.gate)))
    history = NO_HISTORY
    if (diagnostics or settings.calibrator.reads_history) and not settings.shape.of_ranks:
        history = store.undrawn_history(query, most=MOST)
    run = derive(
        gate,
        sample,
        young,
        now=now,
        older_than=older_than,
        diagnostics=diagnostics,
        history=history,
        in_force=None if in_force is None else (in_force.version, Reading.of_policy(in_force)),
    )
    return replace(
        run,
        since=since,
        severities=severities,
        labels_through=labels_through,
        heads=heads,
        age_cut=cut,
        missing_labels=overdue_labels(settings, drawn, now),
    )


def derive(
    gate: GateRevision,
    sample: Sequence[SampledGroup],
    young: Sequence[SampledGroup],
    *,
    now: datetime,
    older_than: datetime,
    diagnostics: bool = True,
    history: History = NO_HISTORY,
    in_force: tuple[int, Reading] | None = None,
) -> CalibrationRun:
    """Compute a run from what it has read: groups that it calibrates on, younger ones with labels, and a history's cuts.

    Its result depends on nothing else, so that a stored run can be derived again. `in_force` is the version that
    serves and what it cuts by.
    """
    settings = gate.settings
    counted = [group for group in sample if not group.spare]
    labelled = _as_calibrated(counted)
    # .3 / 3 is .1 to people, and .09999999999999999 to the processor
    alpha = round(settings.alpha / settings.max_attempts, 15)
    read = _sample(gate, counted, labelled, alpha, history)
    found = candidates(settings, read) if diagnostics else (decide(settings, read),)
    suffix = None
    if in_force is not None:
        newest = [group for group in young if not group.spare]
        suffix, stricter = _tightened(gate, found[0], [*counted, *newest], alpha, history, in_force)
        found = (stricter, *found[1:])
    return CalibrationRun(
        gate=gate,
        # Younger groups are kept where the threshold rests on them.
        groups=(*sample, *young) if suffix is not None and suffix.cuts else tuple(sample),
        labelled_groups=labelled,
        candidates=found,
        effective_alpha=alpha,
        seed=gate.seed,
        older_than=older_than,
        started_at=now,
        suffix=suffix,
        history=history,
    )


def _losses(
    settings: GateSettings,
    level: Reading,
    groups: Sequence[SampledGroup],
) -> NDArray[np.float64]:
    """What each group loses where this is served, in [0, 1]."""
    if settings.unit != "claim" or not groups:
        return losses(level, settings.unit, groups)
    return claim_losses(level, claim_loss(settings.loss), groups, least_kept=settings.least_kept)[0]


def _tightened(
    gate: GateRevision,
    own: Candidate,
    groups: Sequence[SampledGroup],
    alpha: float,
    history: History,
    in_force: tuple[int, Reading],
) -> tuple[Suffix | None, Candidate]:
    """Compare the newest labelled groups with older ones; returns the result, and the stricter of the two thresholds."""
    settings = gate.settings
    groups = complete(groups, settings)
    version, served = in_force
    of_all = Reading(Cut.at(own.threshold.value), own.rule)
    # What is worse now shows where more ships: before a threshold is loosened that is the new one.
    level = of_all if direction(served, of_all, settings.unit, groups) == "looser" else served
    suffix = suffix_test(
        _losses(settings, level, groups),
        order(gate.seed, [group.id for group in groups]),
        version=version,
    )
    if suffix is None or not suffix.cuts:
        return suffix, own
    # As many as could open the gate at all.
    count = min(len(groups), max(suffix.groups, settings.calibrator.groups_needed(alpha)))
    suffix = replace(suffix, calibrated_on=count)
    newest = groups[-count:]
    alone = decide(settings, _sample(gate, newest, _as_calibrated(newest), alpha, history))
    rule = alone.rule
    if isinstance(own.rule, Full):
        if not isinstance(rule, Full):
            return suffix, own  # too few of them to compare with
        rule = own.rule.and_by(rule)
    elif direction(of_all, Reading(Cut.at(alone.threshold.value), rule)) != "tighter":
        return suffix, own
    threshold = replace(alone.threshold, groups=own.threshold.groups, guarantee=own.threshold.guarantee)
    note = f"The newest groups are worse: {suffix.said}. " + (
        f"What ships must also pass the newest {count} alone."
        if isinstance(rule, Full)
        else f"The threshold is that of the newest {count} alone, which is stricter than that of all."
    )
    if settings.calibrator.risk == "selective":
        note += (
            " A stricter cut need not have a lower error rate among what ships: each of the two keeps its promise, and which "
            "of them is in force was chosen by labels."
        )
    return suffix, replace(own, threshold=noted(threshold, note), rule=rule)


def _as_calibrated(groups: Sequence[SampledGroup]) -> tuple[LabelledGroup, ...]:
    return labelled_groups(
        [group.id for group in groups],
        [tuple(map(_RESPONSE_ID, group.items)) for group in groups],
        scores_of(groups),
        severities_of(groups),
    )


_RESPONSE_ID = attrgetter("response_id")


def _nothing(gate: GateRevision, since: Since | None, looked: int, unread: int) -> str:
    """Say what is missing for a run that has nothing to read; `unread` of the `looked` at newest batches were held as not read."""
    settings = gate.settings
    not_read = unread_text(settings, looked, unread)
    return (
        f"gate {gate.gate!r} has no audit-sampled batch"
        + (" with a label" if settings.pending == "labelled-only" else "")
        + (f" older than {settings.label_deadline_seconds:g} s" if settings.label_deadline_seconds else "")
        + (
            ""
            if since is None
            else f" that was decided since an alarm closed it ({since.moment:%Y-%m-%d %H:%M:%SZ})"
            if since.closed
            else f" of policy {since.version} or a later one (an alarm should have closed it on "
            f"{since.moment:%Y-%m-%d %H:%M:%SZ} and could not: `streamer threshold close {gate.gate}` where there is a "
            "key to sign with)"
        )
        + not_read
        + (
            f"; publish batches to it (its audit probability is {settings.audit_probability:g}) and label what "
            "`streamer label queue` shows"
            if not not_read or unread < looked
            else ""
        )
    )


def with_diagnostics(run: CalibrationRun) -> CalibrationRun:
    """Return a run that was made without diagnostics, with them."""
    sample = _sample(run.gate, run.sample, run.labelled_groups, run.effective_alpha, run.history)
    return replace(run, candidates=(run.candidates[0], *candidates(run.gate.settings, sample)[1:]))


def _sample(
    gate: GateRevision,
    groups: Sequence[SampledGroup],
    labelled: Sequence[LabelledGroup],
    alpha: float,
    history: History,
) -> Sample:
    segmented = gate.settings.segment_by is not None
    return Sample(
        prompts=prompts_of(groups, salt=gate.audit_salt, segmented=segmented)
        if gate.settings.calibrator.of_signals
        else None,
        groups=labelled,
        segments={group.id: group.segment or "" for group in groups} if segmented else {},
        alpha=alpha,
        seed=gate.seed,
        drawn=min([group.draws for group in groups]),
        history=history,
    )


LONGEST_SECONDS: Final = 1e9
"""About 32 years: further back a date may not exist, and `now` less it would raise."""

_TICK = timedelta(microseconds=1)


def overdue_labels(settings: GateSettings, drawn: Sequence[SampledGroup], now: datetime) -> MissingLabels:
    """Test the draws that are so old that a missing label is overdue."""
    deadline = settings.monitor_deadline_seconds
    floor = settings.label_floor
    old = now - timedelta(seconds=min(deadline, LONGEST_SECONDS))
    overdue = [
        group
        for group in drawn
        if group.decided_at is not None
        and group.decided_at < old
        # Below a label floor no label is requested.
        and (floor is None or any(item.score > floor for item in group.items))
    ]
    return missing_labels(
        (math.fsum(item.score for item in group.items) / len(group.items), late is None or late > deadline)
        for group, late in zip(overdue, delays(overdue, settings), strict=True)
    )


def age_moment(now: datetime, cut: AgeCut) -> datetime:
    """Return before which moment the draws were decided that are old enough."""
    return now if cut.seconds == 0 else now - timedelta(seconds=cut.seconds) + _TICK


def choose_cut(
    store: AuditSample, gate: GateRevision, drawn: Sequence[SampledGroup], now: datetime
) -> AgeCut:
    """Choose the age cut of a run, by ages and by delays of draws that are not in it."""
    settings = gate.settings
    # With a window: twice as many draws, the middle one of which is as old as any cut may be.
    newest = drawn if settings.window is None else drawn[-2 * settings.window :]
    waits = [missing > 0 for missing in missing_of(newest, settings)]
    earlier: list[float | None] = []
    if settings.pending == "age" and any(waits) and settings.label_deadline_seconds == 0:
        earlier = delays(drawn[: len(drawn) - len(newest)], settings)
        first = drawn[0].decided_at
        missing = age_cut.MOST_DELAYS - len(earlier)
        if first is not None and missing > 0:
            before = store.label_delays(gate.gate, settings=settings, before=first, most=missing)
            earlier = [*before, *earlier]
    return age_cut.choose(
        [math.inf if one.decided_at is None else (now - one.decided_at).total_seconds() for one in newest],
        waits,
        pending=settings.pending,
        earlier=earlier,
        label_deadline=settings.label_deadline_seconds,
        deadline=settings.monitor_deadline_seconds,
        window=settings.window,
    )


def delays(groups: Sequence[SampledGroup], settings: GateSettings) -> list[float | None]:
    """Return how late, in seconds, the labels of each group came; None while they have not."""
    return [
        None
        if missing or group.labelled_at is None or group.decided_at is None
        else (group.labelled_at - group.decided_at).total_seconds()
        for group, missing in zip(groups, missing_of(groups, settings), strict=True)
    ]
