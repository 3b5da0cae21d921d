"""The past with the scores of another scorer, computed from the texts that are stored.

Labels stay where the audit drew them. With the unit `best` that is the answer that the recorded scorer ranked first: where
another one ranks another first, nobody knows how bad that is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration.history import NO_HISTORY
from streamer.calibration.shapes import rank_scores
from streamer.gates.gate import gate_batch, mean_score
from streamer.recalibration.run import SampledItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from streamer.calibration import History
    from streamer.gates.settings import GateSettings
    from streamer.recalibration.run import AuditSample, SampledGroup, SeverityBasis
    from streamer.whatif.past import Past, PastText

    Texts = Callable[[str, Sequence[int]], Iterator[PastText]]
    Score = Callable[[Sequence[Sequence[str]], Sequence[Sequence[str]]], Sequence[tuple[float, ...] | None]]

_AT_ONCE = 64
"""Batches that are scored by one call of the encoder."""


def rescored(past: Past, texts: Texts, score: Score) -> tuple[Past, NDArray[np.bool_]]:
    """Score the batches of a past again that have scores.

    Returns
    -------
    The past with the new scores, and which of its batches it now holds rightly: shape (n,). The others' texts are gone.
    """
    scored = past.scored
    wanted = past.numbers[scored].tolist()
    found = dict(_scored(texts(past.gate, wanted), score))
    scores = past.scores.copy()
    known = np.ones(len(past), dtype=np.bool_)
    for place in np.flatnonzero(scored).tolist():
        new = found.get(int(past.numbers[place]))
        there = past.of_batch(place)
        if new is None or len(new[1]) != there.stop - there.start:
            known[place] = False
        else:
            scores[there] = new[1]
    return replace(past, scores=scores), known


class RescoredSample:
    """The audit sample with other scores; implements `streamer.recalibration.run.AuditSample`.

    Parameters
    ----------
    sample : as it was decided.
    texts, score : where its texts are, and what scores them.
    recorded : the settings that it was decided by.
    """

    def __init__(self, sample: AuditSample, texts: Texts, score: Score, recorded: GateSettings) -> None:
        self._sample = sample
        self._texts = texts
        self._score = score
        self._recorded = recorded

    def audit_sample(
        self,
        gate: str,
        *,
        settings: GateSettings,
        older_than: datetime,
        since_version: int | None = None,
        severities: SeverityBasis = "mean",
    ) -> Sequence[SampledGroup]:
        """Read the sample and score it again; groups whose texts are gone are left out."""
        groups = self._sample.audit_sample(
            gate,
            settings=self._as_recorded(settings),
            older_than=older_than,
            since_version=since_version,
            severities=severities,
        )
        by_row = {group.row: group for group in groups if group.row is not None}
        found = dict(_scored(self._texts(gate, sorted(by_row)), self._score))
        return [
            _with_scores(group, *found[group.row], settings=settings)
            for group in groups
            if group.row is not None and group.row in found
        ]

    def label_delays(
        self, gate: str, *, settings: GateSettings, before: datetime, most: int
    ) -> Sequence[float | None]:
        """How late labels came has nothing to do with scores."""
        return self._sample.label_delays(gate, settings=self._as_recorded(settings), before=before, most=most)

    def undrawn_history(
        self,
        gate: str,
        *,
        settings: GateSettings,
        before: datetime,
        since_version: int | None,
        most: int,
    ) -> History:
        """Fix no cuts: the undrawn are many, and methods do without."""
        return NO_HISTORY

    def _as_recorded(self, settings: GateSettings) -> GateSettings:
        was = self._recorded
        return replace(
            settings,
            scorer=was.scorer,
            encoder=was.encoder,
            embeddings=was.embeddings,
            dimension=was.dimension,
        )


def _scored(
    texts: Iterator[PastText], score: Score
) -> Iterator[tuple[int, tuple[tuple[str, ...], tuple[float, ...]]]]:
    """Give number, response ids and scores of each batch whose texts are there and can be scored."""
    waiting: list[PastText] = []

    def finish() -> Iterator[tuple[int, tuple[tuple[str, ...], tuple[float, ...]]]]:
        found = score([one.texts or () for one in waiting], [one.models for one in waiting])
        for one, scores in zip(waiting, found, strict=True):
            if scores is not None:
                yield one.number, (one.response_ids, scores)
        waiting.clear()

    for one in texts:
        if one.texts is None:
            continue
        waiting.append(one)
        if len(waiting) == _AT_ONCE:
            yield from finish()
    if waiting:
        yield from finish()


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
