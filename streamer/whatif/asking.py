"""One question about the past: which threshold would have served, over which prompts, and with what result."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.errors import TryLater, UsageError
from streamer.gates.policy import NOT_TRIED, CandidatePolicy, GateRevision, MadeBeside, Policy
from streamer.gates.rule import Chance, Indicator, Rank, Rule
from streamer.gates.settings import SETTINGS as DECLARED
from streamer.gates.settings import GateSettings
from streamer.recalibration import age_cut
from streamer.recalibration.age_cut import AgeCut
from streamer.recalibration.comparison import Reading
from streamer.recalibration.gate_rule import Proposal
from streamer.recalibration.run import (
    AuditSample,
    CalibrationRun,
    NothingToCalibrate,
    Since,
    calibrate_gate,
)
from streamer.recalibration.sampled import unread_text
from streamer.risk.states import RiskInterval
from streamer.whatif.answers import Basis, Change, Changed, ChangedAnswer, WhatIfAnswer, budget_of
from streamer.whatif.figures import figures, risk, watched
from streamer.whatif.past import MOST, Past, PastReader
from streamer.whatif.replay import Difference, replay, replay_record, segments_under
from streamer.whatif.rescored import Found, RescoredSample, ScoresOf, rescored
from streamer.wording.numbers import younger_labels

Flags = NDArray[np.bool_]

SETTINGS = tuple(name for name, one in DECLARED.items() if one.asked)
"""The settings that may be asked about, beside the parameters of methods and shapes."""


class NothingToJudge(TryLater):
    """Nothing was decided in the period that could be judged."""


class PastSample(AuditSample, Protocol):
    """Where calibrations read."""

    def alarm_closure(self, gate: str) -> Since | None:
        """Return where the newest alarm that closed the gate, or should have, restarts its sample; None: nowhere."""
        ...

    def proposal(self, gate: str) -> Proposal | None:
        """Return the threshold that waits for a person; None: there is none."""
        ...


class PastPolicies(Protocol):
    """Where policies are."""

    def get(self, gate: str, version: int) -> Policy:
        """Return one version. Raises `UsageError` when it does not exist."""
        ...

    def list(self, gate: str) -> Sequence[Policy]:
        """Return every version that is trusted, the oldest first."""
        ...


class CandidateRecord(Protocol):
    """Where candidate policies are, and what they made of batches."""

    def present(self, gate: str) -> tuple[CandidatePolicy, GateSettings]:
        """Return the gate's candidate and its settings. Raises `UsageError` where it has none."""
        ...

    def made(self, gate: str, settings: GateSettings, numbers: Sequence[int]) -> Iterable[MadeBeside]:
        """Return what candidates with the scorer and the encoder of these settings made of batches; not all need be there."""
        ...


class WhatIf:
    """Questions about one gate's past. What is read is kept, so that further questions cost a
    replay only.

    The record is read by `past`, `sample`, `policies` and, where there are any, `candidates`: the
    newest `most` prompts from `since` to `now`.
    """

    def __init__(
        self,
        gate: GateRevision,
        *,
        past: PastReader,
        sample: PastSample,
        policies: PastPolicies,
        since: datetime,
        now: datetime,
        most: int = MOST,
        candidates: CandidateRecord | None = None,
    ) -> None:
        self._gate = gate
        self._reader = past
        self._sample = sample
        self._closure = sample.alarm_closure
        self._proposal = sample.proposal
        self._policies = policies
        self._since = since
        self._now = now
        self._most = most
        self._candidates = candidates
        self._pasts: dict[str | None, Past] = {}
        self._differences: tuple[Difference, ...] | None = None

    def ask(self, change: Change, *, delta: float | None = None) -> WhatIfAnswer:
        """Say what a change would have done.

        A threshold is judged on prompts that had no part in finding it: an earlier policy from its
        calibration on, a candidate with a threshold from when it was set on. One without is
        calibrated on the prompts decided before the period and judged on the period; where there
        are too few of these (`least_groups` of the gate, or what the method needs to open at all),
        the older half of those of the period that are old enough for their labels calibrates, and
        what was decided later is judged.

        `delta` : chance that an interval is wrong, in (0, 1); None: the gate's `monitor_delta`. To
        compare k thresholds, give each delta / k: then all their intervals hold together.

        Raises `UsageError` for what the record cannot answer, and an unknown policy;
        `NothingToJudge` when nothing was decided in the period.
        """
        settings = self._settings(change)
        past, usable, left_out = self._usable(settings, beside=change.candidate)
        if not usable.any():
            raise NothingToJudge(self._nothing(left_out))
        # Before the period is divided and before a severity is looked at.
        cut = self._age_cut(settings, past.where(usable))
        old = np.ones(len(past), dtype=np.bool_)
        if cut is not None and cut.seconds > 0:
            old = ~_from(past, self._now - timedelta(seconds=cut.seconds))
        reading, basis = self._threshold(change, settings, past, usable & old)
        if basis.before is not None:
            usable = usable & _from(past, basis.before)
            if not usable.any():
                raise NothingToJudge(
                    f"nothing was decided after {basis.before:%Y-%m-%d %H:%M:%SZ}, up to where the labels go that chose this "
                    "threshold"
                )
        kept, judged = past.where(usable), old[usable]
        if not judged.any():  # all are young: counts say something, and missing labels that nothing is known
            judged[:] = True
        ships = replay(kept, settings, reading, salt=self._gate.audit_salt)
        counted, asked = kept.where(judged), ships[np.repeat(judged, kept.sizes)]
        differences = self.differences()
        if change.candidate:
            differences += self._not_as_beside(kept, ships)
        chance = self._gate.settings.monitor_delta if delta is None else delta
        how: Any = {
            "unit": settings.unit,
            "loss": settings.loss,
            "alpha": budget_of(settings),
            "delta": chance,
        }

        def changed(flags: Flags) -> Changed:
            return _changed(counted, flags, risk(counted, flags, **how).selective())

        return WhatIfAnswer(
            gate=self._gate,
            settings=settings,
            reading=reading,
            basis=basis,
            since=min(kept.decided_at),
            until=max(kept.decided_at),
            prompts=len(kept),
            judged=len(counted),
            age=cut,
            younger=younger_labels(
                *(one.severities[one.drawn] for one in (kept.where(~judged), counted)), unit=settings.unit
            ),
            unscored=int((~counted.scored).sum()),
            closed=int((~counted.could_ship).sum()),
            shadow=int(_decided_by(counted, lambda one: one.mode == "shadow").sum()),
            unaudited=int((~watched(counted)).sum()),
            left_out=MappingProxyType(dict(left_out)),
            versions=(int(counted.versions.min()), int(counted.versions.max())),
            recorded=figures(counted, counted.shipped, **how),
            asked=figures(counted, asked, **how),
            more=changed(asked & ~counted.shipped),
            less=changed(counted.shipped & ~asked),
            differences=differences,
            delta=chance,
        )

    def calibrate(self, settings: GateSettings) -> CalibrationRun | None:
        """Calibrate on every label that there is by now, with another scorer's scores as candidates gave them; None: on none."""
        return self._run(settings, self._now)

    def differences(self) -> tuple[Difference, ...]:
        """Decide the whole period again by the policies that decided it, and say what differs from the record."""
        if self._differences is None:
            self._differences = tuple(replay_record(self._past(self._gate.settings.segment_by)))
        return self._differences

    # -- what is asked ---------------------------------------------------------------------------------------

    def _settings(self, change: Change) -> GateSettings:
        present = self._gate.settings
        if change.policy is not None:
            wanted = self._policies.get(self._gate.gate, change.policy).settings
        elif change.proposal:
            wanted = self._proposed().settings
        elif change.candidate:
            wanted = self._candidate()[1]
        else:
            wanted = present
        if wanted.unit != present.unit:
            raise UsageError(
                f"the audit drew answers to label for the unit {present.unit}: what the unit {wanted.unit} would have cost "
                "does not follow from their labels"
            )
        return wanted

    def _proposed(self) -> Proposal:
        found = self._proposal(self._gate.gate)
        if found is None:
            raise UsageError(f"nothing is proposed for gate {self._gate.gate!r}")
        return found

    def _candidate(self) -> tuple[CandidatePolicy, GateSettings]:
        if self._candidates is None:
            raise ValueError("a question about a candidate needs to be told where candidates are")
        return self._candidates.present(self._gate.gate)

    def _threshold(
        self, change: Change, settings: GateSettings, past: Past, old: Flags
    ) -> tuple[Reading, Basis]:
        if change.cut is not None:
            return Reading(change.cut, plain_rule(settings)), Basis(source="given")
        if change.policy is not None:
            return self._of_policy(self._policies.get(self._gate.gate, change.policy))
        if change.proposal:
            found = self._proposed()
            return Reading(found.cut, found.rule, found.bursts), self._known(
                "proposal", found.at, found.guarantee
            )
        candidate, _ = self._candidate()
        if candidate.cut is not None:
            basis = self._known("candidate", candidate.at, candidate.guarantee)
            return Reading(candidate.cut, candidate.rule), basis
        return self._calibrated(settings, past, old)

    def _of_policy(self, policy: Policy) -> tuple[Reading, Basis]:
        """An earlier policy: whatever its run had read was decided before the first policy of that run came into force."""
        if policy.calibration_run is None:
            return Reading.of_policy(policy), Basis(source="policy")
        first = min(
            one.valid_from
            for one in (*self._policies.list(self._gate.gate), policy)
            if one.calibration_run == policy.calibration_run
        )
        return Reading.of_policy(policy), self._known("policy", first, policy.guarantee)

    def _known(
        self, source: Literal["policy", "proposal", "candidate"], moment: datetime, guarantee: str
    ) -> Basis:
        return Basis(source=source, before=moment, moved=moment > self._since, guarantee=guarantee)

    def _calibrated(self, settings: GateSettings, past: Past, old: Flags) -> tuple[Reading, Basis]:
        boundary = min(past.decided_at) if past.earlier else self._since
        run = self._run(settings, boundary)
        enough = max(settings.calibrator.groups_needed(budget_of(settings)), settings.least_groups)
        moved = False
        if run is None or len(run.sample) < enough:
            middle = _middle(past, old)
            if middle is not None and middle > boundary:
                boundary, moved = middle, True
                run = self._run(settings, boundary) or run
        if run is None:
            not_read = unread_text(settings, *self._sample.not_read(self._gate.gate))
            raise NothingToJudge(
                f"gate {self._gate.gate!r} has no audit-sampled batch decided before {boundary:%Y-%m-%d %H:%M:%SZ} to "
                f"calibrate on{not_read or '; label what `streamer label queue` shows'}, or ask about a threshold of your own"
            )
        basis = Basis(
            source="calibrated",
            before=boundary,
            prompts=len(run.sample),
            labelled=sum(group.labelled for group in run.sample),
            drawn=run.drawn,
            missing=run.missing,
            moved=moved,
            guarantee=run.guarantee,
        )
        return run.reading, basis

    def _run(self, settings: GateSettings, before: datetime) -> CalibrationRun | None:
        """Calibrate as the gate would, on prompts decided before a moment; None where there are none."""
        since = self._closure(self._gate.gate)
        if since is not None and since.moment >= before:
            since = None  # that alarm was still to come
        sample: AuditSample = self._sample
        if settings.scored_by != self._gate.settings.scored_by:
            sample = RescoredSample(self._sample, self._scores_of(settings), self._gate.settings)
        try:
            return calibrate_gate(
                sample,
                replace(self._gate, settings=settings),
                now=before,
                since=since,
                diagnostics=False,
            )
        except NothingToCalibrate:
            return None

    # -- what is read ----------------------------------------------------------------------------------------

    def _past(self, key: str | None) -> Past:
        if key not in self._pasts:
            self._pasts[key] = self._reader.read(
                self._gate.gate,
                since=self._since,
                until=self._now,
                kind=self._gate.settings.severity_kind,
                keys=() if key is None else (key,),
                group_by=self._gate.settings.group_by,
                most=self._most,
            )
        return self._pasts[key]

    def _usable(self, settings: GateSettings, *, beside: bool) -> tuple[Past, Flags, Counter[str]]:
        """The past with the scores that are asked about, which prompts can be decided by them, and why others cannot."""
        past = self._past(settings.segment_by)
        left_out: Counter[str] = Counter()
        if past.earlier:
            left_out[f"only the newest {len(past)} are looked at"] += past.earlier
        unit, kept = settings.unit, np.ones(len(past), dtype=np.bool_)

        def leave_out(rows: Flags, why: str) -> None:
            if count := int((kept & rows).sum()):
                left_out[why] += count
                kept[rows] = False

        known = np.isin(past.versions, list(past.policies))
        leave_out(~known, "their policy is not on record, or of a later version")
        leave_out(
            ~_decided_by(past, lambda one: one.unit == unit),
            f"they were decided by another unit than {unit}",
        )
        others = beside and settings.scored_by != self._gate.settings.scored_by
        if others:
            past, scored = rescored(past, self._scores_of(settings))
            leave_out(~scored, "no candidate with this scorer was beside them, or it had no time for them")
        else:
            leave_out(
                ~_decided_by(
                    past,
                    lambda one: (
                        (one.scorer, one.encoder, one.judged)
                        == (settings.scorer, settings.encoder, settings.judged)
                    ),
                ),
                f"they were scored otherwise than by {settings.scorer}",
            )
        if settings.calibrator.of_signals:
            leave_out(
                past.scored & np.array([one is None for one in past.rows], dtype=np.bool_)
                if others
                else ~_decided_by(past, lambda one: one.signals == settings.signals),
                "no signals of this gate's list are on record for them",
            )
        if settings.segment_by is not None:
            names = segments_under(past, settings.segment_by)
            leave_out(
                np.array([name is None for name in names], dtype=np.bool_) & past.scored,
                "their metadata are erased, so that their segment is not known",
            )
        return past, kept, left_out

    def _scores_of(self, settings: GateSettings) -> ScoresOf:
        """Return where another scorer's scores are: beside the decisions."""

        def recorded(gate: str, numbers: Sequence[int]) -> dict[int, Found]:
            made = () if self._candidates is None else self._candidates.made(gate, settings, numbers)
            return {
                one.number: (one.response_ids, one.decision.scores, one.decision.signals)
                for one in made
                if one.decision.why not in NOT_TRIED
            }

        return recorded

    def _not_as_beside(self, past: Past, ships: Flags) -> tuple[Difference, ...]:
        """Name what the candidate decided when these prompts were, and does not come to by the scores that it recorded."""
        candidate, settings = self._candidate()
        if self._candidates is None or candidate.cut is None:
            return ()
        places = {number: place for place, number in enumerate(past.numbers.tolist())}
        return tuple(
            Difference(
                batch_id=past.batch_ids[place],
                policy_version=int(past.versions[place]),
                what="candidate",
                detail="its candidate decided otherwise than by the scores on record",
            )
            for one in self._candidates.made(self._gate.gate, settings, list(places))
            if one.decision.candidate == candidate.number and one.decision.shipped is not None
            for place in [places[one.number]]
            if list(one.decision.shipped) != ships[past.of_batch(place)].tolist()
        )

    def _age_cut(self, settings: GateSettings, past: Past) -> AgeCut | None:
        """Choose the age from which labels are no longer waited for, as a calibration run does; None without a draw."""
        drawn = past.sampled & watched(past)
        if not drawn.any():
            return None
        unlabelled = past.drawn & np.isnan(past.severities)
        floor = self._gate.settings.label_floor
        if floor is not None:
            unlabelled &= past.scores > floor
        if self._gate.settings.until_wrong:
            unlabelled &= past.scores > past.first_wrong[past.batch_of]
        waits = past.by_batch(unlabelled) > 0
        draws = [(past.decided_at[one], bool(waits[one])) for one in np.flatnonzero(drawn).tolist()]
        gate = self._gate
        return age_cut.of_past(
            draws,
            self._now,
            settings,
            lambda first: self._sample.label_delays(
                gate.gate, settings=gate.settings, before=first, most=age_cut.MOST_DELAYS
            ),
        )

    def _nothing(self, left_out: Mapping[str, int]) -> str:
        said = "; ".join(f"{count} prompts are left out: {why}" for why, count in left_out.items())
        return (
            f"gate {self._gate.gate!r} decided nothing since {self._since:%Y-%m-%d %H:%M:%SZ} that could be judged"
            + (f" ({said})" if said else "; give an earlier --since")
        )


def plain_rule(settings: GateSettings) -> Rule:
    """How a threshold that somebody names is read: as the gate's shape reads one, alike for all batches."""
    if settings.shape.name in ("smooth", "ramp"):
        return Chance(settings.shape.name, float(settings.parameter("width")))  # type: ignore[arg-type]
    return Rank() if settings.shape.of_ranks else Indicator()


def _decided_by(past: Past, says: Callable[[GateSettings], bool]) -> Flags:
    """Which prompts were decided under settings of which this is true: shape (n,)."""
    return np.isin(past.versions, [one for one, policy in past.policies.items() if says(policy.settings)])


def _from(past: Past, moment: datetime) -> Flags:
    """Which prompts were decided from this moment on: shape (n,)."""
    return np.array([one >= moment for one in past.decided_at], dtype=np.bool_)


def _middle(past: Past, rows: Flags) -> datetime | None:
    """When the middle one of these decisions was made, drawn or not, so that no draw decides it; None for none."""
    moments = sorted(past.decided_at[one] for one in np.flatnonzero(rows).tolist())
    return moments[len(moments) // 2] if moments else None


def _changed(past: Past, flags: Flags, selective: RiskInterval) -> Changed:
    batches = past.batch_of
    places = np.flatnonzero(flags).tolist()
    answers = tuple(
        ChangedAnswer(
            batch_id=past.batch_ids[batch],
            response_id=past.response_ids[one],
            decided_at=past.decided_at[batch],
            score=None if np.isnan(past.scores[one]) else float(past.scores[one]),
            severity=None if np.isnan(past.severities[one]) else float(past.severities[one]),
            drawn=bool(past.drawn[one]),
        )
        for one, batch in zip(places, batches[places].tolist(), strict=True)
    )
    return Changed(answers=answers, prompts=len(set(batches[places].tolist())), selective=selective)
