"""What a calibration run reads: labelled batches of the audit sample, and what a policy of all signals is made of."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.full_fit import Prompts
from streamer.calibration.weighting import WeightingScheme
from streamer.gates.batch_key import BatchKey
from streamer.gates.rule import INDICATOR, CalibrationLosses, Full, Rule, Segments
from streamer.gates.settings import GateSettings
from streamer.gates.uniforms import counts_bad, uniform_of
from streamer.scoring.unread_answers import HELPS


@dataclass(frozen=True, slots=True)
class SampledItem:
    """A response that the audit draw asks a severity for.

    `score` is what the gate cuts: the response's own, the mean of its batch under unit `batch`, its rank in the batch
    under shape `rank`. `severity` is the present mean over labellers, in [0, 1]; None while it has none.
    """

    response_id: str
    score: float
    severity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGroup:
    """One batch of the audit sample with its drawn responses, at least one, at most `draws`.

    A batch without a `decided_at` counts as long ago. `labelled_at`: when the first label of the
    last of its items came; None while one has none. `row`: what the store calls it; None where no
    store has read it. `signals`: of what the unit may ship, d float32, little-endian. `bad`: what
    it counted as by the method `full` in a run that is on record; None: it follows from its
    severity. `burst`: what those that count once share (of a run that is on record a name of its
    own); None: it is the only one. `spare`: another batch of its burst counts.
    """

    key: BatchKey
    probability: float
    items: tuple[SampledItem, ...]
    draws: int = 1
    segment: str | None = None
    decided_at: datetime | None = field(default=None, compare=False, repr=False)
    labelled_at: datetime | None = field(default=None, compare=False, repr=False)
    row: int | None = field(default=None, compare=False, repr=False)
    signals: bytes | None = field(default=None, compare=False, repr=False)
    bad: bool | None = field(default=None, compare=False, repr=False)
    burst: str | None = field(default=None, compare=False, repr=False)
    spare: bool = field(default=False, compare=False, repr=False)

    @property
    def severity(self) -> float:
        """The mean severity of its items, in [0, 1]; a missing one is 1."""
        if len(self.items) == 1:
            return 1.0 if self.items[0].severity is None else self.items[0].severity
        return math.fsum(severities_of([self])) / len(self.items)

    @property
    def labelled(self) -> bool:
        """Whether a response of it has a severity."""
        return any(item.severity is not None for item in self.items)

    def missing(self, settings: GateSettings) -> int:
        """Count the items that miss a severity; which need one says `GateSettings.asked_above`."""
        unknown = [item.score for item in self.items if item.severity is None]
        if not unknown:
            return 0
        floor = self._asked_above(settings)
        return sum(score > floor for score in unknown)

    def asked(self, settings: GateSettings) -> "SampledGroup":
        """Return it with the labelled items that `missing` looks at.

        Of claims none below the first wrong one: who labels down to it knows more of those that
        score low only where all above are right, and even a score without skill would seem to have
        some. Down to it each claim of such a score is as likely to be the wrong one, whatever came.
        """
        floor = self._asked_above(settings)
        kept = (one for one in self.items if one.severity is not None and one.score >= floor)
        return replace(self, items=tuple(kept))

    def _asked_above(self, settings: GateSettings) -> float:
        return settings.asked_above([(item.score, item.severity) for item in self.items])

    @property
    def id(self) -> str:
        """Identity of the group within its gate; the random weights derive from it."""
        return f"{self.key.batch_id}#{self.key.attempt}"


def was_before(group: SampledGroup, moment: datetime) -> bool:
    """Whether a group is that old; one whose moment is not known is."""
    return group.decided_at is None or group.decided_at < moment


def decided_before(groups: Iterable[SampledGroup], moment: datetime) -> list[SampledGroup]:
    """Return the groups that are that old, as `was_before` says."""
    return [group for group in groups if group.decided_at is None or group.decided_at < moment]


def missing_of(groups: Sequence[SampledGroup], settings: GateSettings) -> list[int]:
    """Count the items of each group that miss a severity: most have them all."""
    return [
        group.missing(settings) if None in map(_SEVERITY, group.items) else 0  # in one pass
        for group in groups
    ]


def complete(groups: Sequence[SampledGroup], settings: GateSettings) -> list[SampledGroup]:
    """Return the groups that miss no severity."""
    return [one for one, missing in zip(groups, missing_of(groups, settings), strict=True) if not missing]


def scores_of(groups: Sequence[SampledGroup]) -> NDArray[np.float64]:
    """Return the scores of all items, group after group."""
    return np.array([item.score for group in groups for item in group.items], np.float64)


def severities_of(groups: Sequence[SampledGroup]) -> NDArray[np.float64]:
    """Return the severities of all items, group after group; a missing one is 1."""
    found = np.array([item.severity for group in groups for item in group.items], np.float64)
    found[np.isnan(found)] = 1.0
    return found


_SEVERITY = attrgetter("severity")


def one_of_each(groups: Sequence[SampledGroup], salt: bytes, older_than: datetime) -> list[SampledGroup]:
    """Mark all batches of a burst but one as spare: the first by the gate's keyed draw, of those old enough where there are some."""
    first: dict[str, tuple[bool, float, BatchKey]] = {}
    for group in groups:
        if group.burst is not None:
            place = not was_before(group, older_than), uniform_of(salt, group.key, "burst"), group.key
            first[group.burst] = min(place, first.get(group.burst, place))
    return [
        replace(group, spare=group.burst is not None and first[group.burst][2] != group.key)
        for group in groups
    ]


def prompts_of(groups: Sequence[SampledGroup], *, salt: bytes, segmented: bool) -> Prompts | None:
    """Return the groups with their signals and marks; None where some have none."""
    if not groups or any(group.signals is None for group in groups):
        return None
    return Prompts(
        ids=tuple(group.id for group in groups),
        rows=np.frombuffer(b"".join(group.signals or b"" for group in groups), "<f4").reshape(
            len(groups), -1
        ),
        bad=np.array([is_bad(salt, group) for group in groups]),
        segments=tuple(group.segment or "" for group in groups) if segmented else None,
    )


def prompts_of_rule(rule: Full, groups: Sequence[SampledGroup], older_than: datetime) -> list[Prompts]:
    """Return the prompts of each fit of a rule, from all groups that its run has read, in order of decision."""
    counted = [group for group in groups if not group.spare]
    sample = decided_before(counted, older_than)
    labelled = [group for group in counted if all(one.severity is not None for one in group.items)]
    found = []
    for fitted, some in zip(rule.fits, (sample, labelled), strict=False):
        prompts = prompts_of(some[-fitted.groups :], salt=b"", segmented=rule.segment_by is not None)
        if prompts is None:
            raise ValueError("the calibration prompts on record have no signals")
        found.append(prompts)
    return found


def bad_bursts(groups: Sequence[SampledGroup], salt: bytes) -> dict[str, list[str]]:
    """Return the ids of the prompts that count as bad by a label, by their burst; one without a label is none of them."""
    found: dict[str, list[str]] = {}
    for group in groups:
        if group.burst is not None and group.labelled and is_bad(salt, group):
            found.setdefault(group.burst, []).append(group.id)
    return found


def cuts_at_budget(settings: GateSettings, rule: Rule) -> bool:
    """Whether a gate ships what needs no more than its budget by one score, as `CalibrationLosses` says."""
    # Under the unit best a group has one answer, and every scheme gives it the whole weight.
    by_mean = settings.method in (Mean.name, Full.kind) and settings.unit in ("best", "batch")
    by_mean |= settings.unit == "best" and isinstance(settings.calibrator, WeightingScheme)
    return by_mean and (rule == INDICATOR or isinstance(rule, Segments)) and settings.label_floor is None


def losses_by_score(
    settings: GateSettings, rule: Rule, groups: Sequence[SampledGroup], older_than: datetime
) -> CalibrationLosses:
    """Return what the prompts of a run lose by their scores, from all groups that it has read."""
    sample = [group for group in decided_before(groups, older_than) if not group.spare]
    segmented = isinstance(rule, Segments)
    return CalibrationLosses(
        [group.items[0].score for group in sample],
        [group.severity for group in sample],
        segments=[group.segment or "" for group in sample] if segmented else None,
        pooled=pooled_segments(settings, rule),
    )


def pooled_segments(settings: GateSettings, rule: Rule) -> list[str] | None:
    """The segments that have a cut of their own, where all prompts serve the others; None where nothing does."""
    if isinstance(rule, Segments) and settings.segment_fallback == "pooled":
        return [name for name, _ in rule.own]
    return None


def unread_text(settings: GateSettings, looked: int, unread: int) -> str:
    """Say that nothing is drawn of batches that were held as not read, and what helps; empty where labels of them do."""
    if not unread or settings.calibrator.of_signals:
        return ""
    return (
        f"; its encoder did not read {unread} of the newest {looked} (not_read), and the audit draws none that the method "
        f"{settings.method} cannot score: what helps is {HELPS}"
    )


def burst_note(key: str) -> str:
    """Say what the promise is of where a key names bursts."""
    named = "question" if key == "prompt" else f"metadata key {key!r}"
    return f"Batches with the same {named} are one burst, of which one batch was drawn: the budget is of bursts, each counted once."


def is_bad(salt: bytes, group: SampledGroup) -> bool:
    """Whether a prompt counts as bad: a severity between 0 and 1 with that chance, by the gate's keyed draw."""
    if group.bad is not None:
        return group.bad
    return counts_bad(salt, group.key, group.severity)
