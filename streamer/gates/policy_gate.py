"""A policy applied to one batch: its rule finds the cut that serves this batch, and the gate decides by it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.calibration.batch_rule import TransductiveRule
from streamer.calibration.full_fit import unread
from streamer.calibration.shapes import rank_scores
from streamer.gates.declared import Unit
from streamer.gates.gate import BatchGate, gate_batch
from streamer.gates.policy import Bursts, Policy, segment_of
from streamer.gates.rule import BatchCut, CalibrationLosses, Chance, Cut, Full, Needed, Rank, Rule, Segments
from streamer.scoring.signals.signal_list import batch_row


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy says about one batch.

    `gate`: what ships. `cut`: what this batch was cut by: its own under a transductive rule, its
    segment's under segments. `needed`: the budget that it would have shipped with; None where the
    policy does not say. `lacks_labels`: no budget lets it out, as too few labelled prompts had
    answers like these; `unread`: the encoder did not read one of them. `bad_burst`: whether nothing
    of it ships because its burst has a bad label.
    """

    gate: BatchGate
    cut: Cut
    needed: Needed | None = None
    lacks_labels: bool = False
    unread: bool = False
    bad_burst: bool = False

    @property
    def reason(self) -> str:
        """Why it was decided so, as an action says it of a policy in force."""
        if self.bad_burst:
            return "bad_burst"
        if self.cut.state == "closed":
            return "closed"
        if not self.lacks_labels:
            return "scored"
        return "not_read" if self.unread else "too_few_alike"


def unit_row(
    unit: Unit, rows: NDArray[np.float32], scores: Sequence[float], blank: Sequence[bool]
) -> NDArray[np.float32] | None:
    """Return the row of signals, shape (d,), of what a unit may ship: its best answer, or the mean of all under `batch`.

    None where nothing of it may ship, and under the unit `response`.
    """
    if unit in ("response", "claim") or all(blank):
        return None
    if unit == "batch":
        return batch_row(rows, blank)
    best = gate_batch(scores, unit=unit, state="closed", threshold=None, blank=blank).best
    return None if best is None else rows[best]


@dataclass(eq=False, kw_only=True)
class PolicyGate:
    """The gate of one policy, ready for many batches.

    `losses` are those of the calibration prompts, where the policy cuts one score at its budget;
    nothing of the `bursts` ships, nor of an answer of which less than the share `least_kept` of its
    claims is left.
    """

    unit: Unit
    cut: Cut
    rule: Rule
    losses: CalibrationLosses | None = None
    bursts: Bursts | None = None
    least_kept: float = 0.0

    def __post_init__(self) -> None:
        self._segments = dict(self.rule.own) if isinstance(self.rule, Segments) else {}
        self._window = _window(self.rule) if isinstance(self.rule, BatchCut) else None

    @classmethod
    def of(cls, policy: Policy) -> PolicyGate:
        """Return the gate of a policy."""
        return cls(
            unit=policy.settings.unit,
            cut=Cut(policy.state, policy.threshold),
            rule=policy.rule,
            losses=policy.losses,
            bursts=policy.bursts,
            least_kept=policy.settings.least_kept,
        )

    @property
    def needs_uniforms(self) -> bool:
        """Whether it is a random gate, with a uniform number for each response."""
        return isinstance(self.rule, Chance)

    def segment_of(self, metadata: Mapping[str, object]) -> str | None:
        """Return the segment that a batch belongs to; None if the rule knows none."""
        key = segment_key(self.rule)
        return None if key is None else segment_of(metadata, key)

    def decide(
        self,
        scores: Sequence[float],
        *,
        blank: Sequence[bool] | None = None,
        uniforms: Sequence[float] | None = None,
        segment: str | None = None,
        row: ArrayLike | None = None,
        needed: Needed | None = None,
        prompt: str | None = None,
        burst: str | None = None,
    ) -> Ruling:
        """Decide one batch.

        `scores` lie in [0, 1], in event order, rounded by the scorer; `blank` marks blank texts.
        `uniforms` in (0, 1), from `streamer.gates.uniforms`, are for a rule that ships by chance.
        `row`: the batch's signals, shape (d,), from `unit_row`; without them it is held where the
        rule reads them, and one that was not read where it does not; `needed`: what is on record of
        it, in place of `row`. `prompt`: its id, where it may be one of the rule's own calibration
        prompts: it is left out of them then. `segment` and `burst` are from `segment_of` and
        `Bursts.name`. Raises `ValueError` if scores are missing or outside [0, 1], lengths differ,
        or uniforms are missing.
        """
        ruling = self._ruling(scores, blank, uniforms, segment, row, needed, prompt)
        if sum(ruling.gate.shipped) < self.least_kept * len(scores):
            ruling = replace(ruling, gate=replace(ruling.gate, shipped=(False,) * len(scores)))
        if self.bursts is None or ruling.cut.state == "closed" or not self.bursts.holds(burst, prompt):
            return ruling
        gate = replace(ruling.gate, shipped=(False,) * len(scores), selected=None)
        return replace(ruling, gate=gate, bad_burst=True)

    def _ruling(
        self,
        scores: Sequence[float],
        blank: Sequence[bool] | None,
        uniforms: Sequence[float] | None,
        segment: str | None,
        row: ArrayLike | None,
        needed: Needed | None,
        prompt: str | None,
    ) -> Ruling:
        cut = self.cut
        if isinstance(self.rule, Full) and cut.state == "full":
            return self._by_signals(self.rule, scores, blank, segment, row, needed, prompt)
        if row is not None and 1 in unread(row):  # no threshold of scores has seen its like
            return Ruling(
                self._cut_by(Cut("closed", None), scores, blank), cut, lacks_labels=True, unread=True
            )
        if isinstance(self.rule, Segments) and segment is not None:
            cut = self._segments.get(segment, cut)
        by_score = self._cut_by(cut, scores, blank)
        if isinstance(self.rule, Chance):
            return Ruling(self._by_chance(scores, by_score, self.rule, uniforms, blank), cut)
        if isinstance(self.rule, Rank):
            ranks = rank_scores(scores).tolist()
            return Ruling(self._cut_by(cut, ranks, blank), cut)
        # A closed gate stays closed: nobody calibrated it, or somebody closed it.
        if self._window is not None and cut.state != "closed":
            window, floor = self._window
            eligible = scores if by_score.unit_score is None else [by_score.unit_score]
            own = Cut.at(max(window.threshold_for(eligible), floor))
            return Ruling(self._cut_by(own, scores, blank), own)
        if needed is None and self.losses is not None and by_score.unit_score is not None:
            needed = self.losses.needed(by_score.unit_score, segment)
        return Ruling(by_score, cut, needed)

    def _cut_by(self, cut: Cut, scores: Sequence[float], blank: Sequence[bool] | None) -> BatchGate:
        return gate_batch(scores, unit=self.unit, state=cut.state, threshold=cut.threshold, blank=blank)

    def _by_signals(
        self,
        rule: Full,
        scores: Sequence[float],
        blank: Sequence[bool] | None,
        segment: str | None,
        row: ArrayLike | None,
        needed: Needed | None,
        prompt: str | None,
    ) -> Ruling:
        """Ship what few enough bad calibration prompts look at least as good as; of two fits the stricter decides."""
        ships = False
        if needed is not None:
            ships = any(needed.groups == groups and needed.count <= k for groups, k in rule.limits(segment))
        elif row is not None:
            found = list(rule.counts(row, segment, prompt=prompt))
            ships = all(count <= k for count, _, k in found)
            needed = max((Needed(count, groups) for count, groups, _ in found), key=lambda one: one.share)
        cut = Cut.at(rule.floor if ships else math.inf)
        gate = self._cut_by(cut, scores, blank)
        return Ruling(
            gate,
            self.cut,
            needed,
            lacks_labels=needed is not None and needed.share >= 1,
            unread=row is not None and 1 in unread(row),
        )

    def _by_chance(
        self,
        scores: Sequence[float],
        by_score: BatchGate,
        rule: Chance,
        uniforms: Sequence[float] | None,
        blank: Sequence[bool] | None,
    ) -> BatchGate:
        """Replace the decision of `by_score` by that of the randomised scores; who is best does not change."""
        if uniforms is None or len(uniforms) != len(scores):
            raise ValueError("a random gate needs a uniform number for each response")
        if not all(0 < uniform < 1 for uniform in uniforms):
            raise ValueError("uniforms must lie between 0 and 1, both excluded")
        deciding = list(scores) if by_score.unit_score is None else [by_score.unit_score] * len(scores)
        passes = (
            rule.shape.randomised(np.asarray(deciding, dtype=np.float64), np.asarray(uniforms))
            > self.cut.value
        )
        blanks = [False] * len(scores) if blank is None else list(blank)
        if self.unit == "response":
            shipped = [bool(p) and not b for p, b in zip(passes, blanks, strict=True)]
        elif self.unit == "batch":
            shipped = [bool(passes.all()) and not any(blanks)] * len(scores)
        else:
            shipped = [bool(passes[i]) and i == by_score.best for i in range(len(scores))]
        best = by_score.best
        selected = best if best is not None and shipped[best] else None
        return BatchGate(tuple(shipped), best, selected, by_score.unit_score)


def segment_key(rule: Rule) -> str | None:
    """The metadata key by which a rule tells segments apart; None: it knows none."""
    if isinstance(rule, Full):
        return rule.segment_by
    return rule.key if isinstance(rule, Segments) else None


def _window(rule: BatchCut) -> tuple[TransductiveRule, float]:
    window = TransductiveRule(
        alpha=rule.alpha,
        method="mean",
        groups=rule.groups,
        labelled=rule.labelled,
        levels=rule.levels,
        totals=rule.totals,
        guarantee="",
    )
    return window, -math.inf if rule.floor is None else rule.floor
