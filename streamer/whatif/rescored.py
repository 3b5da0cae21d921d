"""The past with the scores of another scorer, as a candidate policy gave them.

Labels stay where the audit drew them. With the unit `best` that is the answer that the recorded scorer ranked first: where
another one ranks another first, nobody knows how bad that is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import History
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.history import NO_HISTORY
from streamer.calibration.shapes import rank_scores
from streamer.gates.gate import gate_batch, mean_score
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import AuditSample, SampleQuery
from streamer.recalibration.sampled import SampledGroup, SampledItem
from streamer.whatif.past import Past

Found = tuple[tuple[str, ...], tuple[float, ...] | None, bytes | None]
"""Response ids, scores and row of signals of a batch; no scores where the scorer has none for it."""
ScoresOf = Callable[[str, Sequence[int]], Mapping[int, Found]]
"""Gives gate and numbers of batches what is found of them, by number."""


def rescored(past: Past, scores_of: ScoresOf) -> tuple[Past, NDArray[np.bool_]]:
    """Put other scores in place of the recorded ones, also where the recorded scorer had none.

    Returns the past with the new scores, and which of its batches it now holds rightly: shape (n,).
    Of the others nothing was found.
    """
    found = scores_of(past.gate, past.numbers.tolist())
    scores = past.scores.copy()
    signals: list[bytes | None] = [None] * len(past)
    known = np.ones(len(past), dtype=np.bool_)
    for place in range(len(past)):
        there = past.of_batch(place)
        _, new, signals[place] = found.get(int(past.numbers[place]), ((), (), None))
        if new is None:
            scores[there] = np.nan
        elif len(new) != there.stop - there.start:
            known[place] = False
        else:
            scores[there] = new
    # A row on record is of the answer that the recorded scorer chose.
    return replace(past, scores=scores, rows=signals, needed=(None,) * len(past)), known


class RescoredSample:
    """The audit sample, decided by the `recorded` settings, with other scores; implements
    `streamer.recalibration.run.AuditSample`.
    """

    def __init__(self, sample: AuditSample, scores_of: ScoresOf, recorded: GateSettings) -> None:
        self._sample = sample
        self._scores_of = scores_of
        self._recorded = recorded

    def audit_sample(self, query: SampleQuery) -> Sequence[SampledGroup]:
        """Read the sample with the other scores; groups without any are left out."""
        settings = query.settings
        groups = self._sample.audit_sample(replace(query, settings=self._as_recorded(settings)))
        by_row = {group.row: group for group in groups if group.row is not None}
        found = self._scores_of(query.gate, sorted(by_row))
        return [
            replace(_with_scores(group, ids, scores, settings=settings), signals=row)
            for group in groups
            for ids, scores, row in [found.get(-1 if group.row is None else group.row, ((), None, None))]
            if scores is not None and (row is not None or not settings.calibrator.of_signals)
        ]

    def label_delays(
        self, gate: str, *, settings: GateSettings, before: datetime, most: int
    ) -> Sequence[float | None]:
        """How late labels came has nothing to do with scores."""
        return self._sample.label_delays(gate, settings=self._as_recorded(settings), before=before, most=most)

    def not_read(self, gate: str) -> tuple[int, int]:
        """How many batches were held as not read, by the recorded settings."""
        return self._sample.not_read(gate)

    def undrawn_history(self, query: SampleQuery, *, most: int) -> History:
        """Fix no cuts: the undrawn are many, and methods do without."""
        return NO_HISTORY

    def _as_recorded(self, settings: GateSettings) -> GateSettings:
        was = self._recorded
        return replace(
            settings,
            calibrator=Mean() if settings.calibrator.of_signals else settings.calibrator,
            signals=was.signals,
            scorer=was.scorer,
            model=was.model,
            encoder=was.encoder,
            embeddings=was.embeddings,
            dimension=was.dimension,
        )


def _with_scores(
    group: SampledGroup, ids: Sequence[str], scores: Sequence[float], *, settings: GateSettings
) -> SampledGroup:
    """The group as the gate would cut it by these scores; with the unit `best` its item is the answer that is best now."""
    known = {item.response_id: item.severity for item in group.items}
    if settings.unit == "best":
        best = gate_batch(scores, unit="best", state="open", threshold=None).best or 0
        item = SampledItem(response_id=ids[best], score=scores[best], severity=known.get(ids[best]))
        return replace(group, items=(item,))
    cut = list(scores)
    if settings.unit == "batch":
        cut = [mean_score(scores)] * len(scores)
    elif settings.shape.of_ranks:
        cut = rank_scores(scores).tolist()
    of = dict(zip(ids, cut, strict=True))
    return replace(group, items=tuple(replace(item, score=of[item.response_id]) for item in group.items))
