"""A policy applied to one batch: its rule finds the cut that serves this batch, and the gate decides by it. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamer.calibration.calibrators.transductive import TransductiveRule
from streamer.calibration.shapes import rank_scores
from streamer.gates.gate import BatchGate, gate_batch
from streamer.gates.rule import BatchCut, Chance, Cut, Rank, Segments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.gates.policy import Policy
    from streamer.gates.rule import Rule
    from streamer.gates.settings import Unit

LONGEST_SEGMENT = 200
"""Characters that the name of a segment may have."""

_LARGEST_WHOLE = 10**18


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a policy says about one batch.

    Attributes
    ----------
    gate : what ships.
    cut : what this batch was cut by: its own under a transductive rule, its segment's under segments.
    """

    gate: BatchGate
    cut: Cut


class PolicyGate:
    """The gate of one policy, ready for many batches.

    Parameters
    ----------
    unit : what ships.
    cut : the policy's state and lambda.
    rule : how they are to be read.
    """

    def __init__(self, *, unit: Unit, cut: Cut, rule: Rule) -> None:
        self._unit: Unit = unit
        self._cut = cut
        self._rule = rule
        self._segments = dict(rule.own) if isinstance(rule, Segments) else {}
        self._window = _window(rule) if isinstance(rule, BatchCut) else None

    @classmethod
    def of(cls, policy: Policy) -> PolicyGate:
        """Return the gate of a policy."""
        return cls(unit=policy.settings.unit, cut=Cut(policy.state, policy.threshold), rule=policy.rule)

    @property
    def needs_uniforms(self) -> bool:
        """Whether it is a random gate, with a uniform number for each response."""
        return isinstance(self._rule, Chance)

    def segment_of(self, metadata: Mapping[str, object]) -> str | None:
        """Return the segment that a batch belongs to; None if the rule knows none."""
        return segment_of(metadata, self._rule.key) if isinstance(self._rule, Segments) else None

    def decide(
        self,
        scores: Sequence[float],
        *,
        blank: Sequence[bool] | None = None,
        uniforms: Sequence[float] | None = None,
        segment: str | None = None,
    ) -> Ruling:
        """Decide one batch.

        Parameters
        ----------
        scores : one for each response, in [0, 1], in event order, rounded by the scorer.
        blank : says for each response whether its text is blank; None: none is.
        uniforms : one in (0, 1) for each response, where the rule ships by chance; from `streamer.gates.uniforms`.
        segment : of the batch, where the rule has segments; from `segment_of`.

        Raises
        ------
        ValueError
            If scores are missing or outside [0, 1], lengths differ, or uniforms are missing.
        """
        cut = self._cut
        if isinstance(self._rule, Segments) and segment is not None:
            cut = self._segments.get(segment, cut)
        by_score = gate_batch(scores, unit=self._unit, state=cut.state, threshold=cut.threshold, blank=blank)
        if isinstance(self._rule, Chance):
            return Ruling(self._by_chance(scores, by_score, self._rule, uniforms, blank), cut)
        if isinstance(self._rule, Rank):
            ranks = rank_scores(scores).tolist()
            return Ruling(
                gate_batch(ranks, unit=self._unit, state=cut.state, threshold=cut.threshold, blank=blank), cut
            )
        # A closed gate stays closed: nobody calibrated it, or somebody closed it.
        if self._window is not None and cut.state != "closed":
            window, floor = self._window
            eligible = scores if by_score.unit_score is None else [by_score.unit_score]
            own = Cut.at(max(window.threshold_for(eligible), floor))
            return Ruling(
                gate_batch(scores, unit=self._unit, state=own.state, threshold=own.threshold, blank=blank),
                own,
            )
        return Ruling(by_score, cut)

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
            > self._cut.value
        )
        blanks = [False] * len(scores) if blank is None else list(blank)
        if self._unit == "response":
            shipped = [bool(p) and not b for p, b in zip(passes, blanks, strict=True)]
        elif self._unit == "batch":
            shipped = [bool(passes.all()) and not any(blanks)] * len(scores)
        else:
            shipped = [bool(passes[i]) and i == by_score.best for i in range(len(scores))]
        best = by_score.best
        selected = best if best is not None and shipped[best] else None
        return BatchGate(tuple(shipped), best, selected, by_score.unit_score)


def segment_of(metadata: Mapping[str, Any], key: str) -> str:
    """Return the segment that metadata name under `key`: a text, or a whole number or a truth value written as JSON.

    The empty text stands for batches that name none (or something else, or more than `LONGEST_SEGMENT` characters): a
    segment like any other.
    """
    value = metadata.get(key)
    if isinstance(value, int) and abs(value) < _LARGEST_WHOLE:
        return json.dumps(value)
    return value if isinstance(value, str) and len(value) <= LONGEST_SEGMENT else ""


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
