"""Clouds scored, decided and gathered into calibration groups by arrays, as the gate does it with events.

The same score, gate and calibration, an audit sample of every batch, and no label that the audit would not ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration import LabelledGroup
from streamer.calibration.full_fit import unread
from streamer.calibration.threshold import ThresholdState
from streamer.clouds.cloud import Cloud
from streamer.clouds.measurement import DecidedBatch, OfflineRisk, Units, units_of
from streamer.gates.batch_key import BatchKey
from streamer.gates.declared import Unit
from streamer.gates.gate import mean_score
from streamer.gates.uniforms import counts_bad
from streamer.scoring.blank import is_blank


@dataclass(frozen=True, slots=True)
class ScoredCloud:
    """A cloud with its n scores in [0, 1]; None when every answer is blank or the encoder did not read one, so that there is nothing
    to score.

    `row` : the signals of what its unit may ship, shape (d,), where they were measured.
    """

    cloud: Cloud
    scores: tuple[float, ...] | None
    row: NDArray[np.float32] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, cloud: Cloud, scores: Sequence[float], row: NDArray[np.float32] | None = None) -> ScoredCloud:
        """Make one of the scores of all samples, of which witnesses lose theirs; None where all answers are blank."""
        shown = None if all(map(is_blank, cloud.texts)) else tuple(scores[: len(cloud.responses)])
        return cls(cloud, shown, row)

    @property
    def cut_alone(self) -> ScoredCloud:
        """What a gate that cuts this one score makes of it: it is held unscored where the encoder did not read an answer."""
        return replace(self, scores=None) if self.row is not None and 1 in unread(self.row) else self

    def decided(self, shipped: tuple[bool, ...] | None = None) -> DecidedBatch:
        """Return it as decided, `shipped` saying what ships of it; None: nothing does."""
        nothing = len(self.cloud.responses)
        return DecidedBatch(
            batch_id=self.cloud.batch_id,
            prompt=self.cloud.question,
            texts=self.cloud.texts,
            scores=(None,) * nothing if self.scores is None else self.scores,
            shipped=(False,) * nothing if shipped is None else shipped,
            severities=self.cloud.severities,
        )


def held_as(item: ScoredCloud, unit: Unit, *, likely: bool) -> str:
    """Return why a prompt is held whatever its scores, as an action says it; empty: they decide. `likely` as in `Cloud.has_too_few`."""
    blank = [is_blank(text) for text in item.cloud.texts]
    if item.scores is None and item.cloud.has_too_few(likely=likely):
        return "too_few_responses"
    if all(blank) or (unit == "batch" and any(blank)):
        return "empty_text"
    return "not_read" if item.scores is None else ""


def measured_units(scored: Sequence[ScoredCloud], unit: Unit, *, drop_unlabelled: bool = False) -> Units:
    """Return the units of clouds of which nothing has shipped, or those whose severity is known."""
    found = units_of([one.decided() for one in scored], unit)
    return found.labelled() if drop_unlabelled else found


_FIGURES = (
    "batches", "responses", "ship_rate", "exposure_risk", "exposure_risk_se", "selective_risk", "severity_reduction"
)  # fmt: skip


def summary(
    report: OfflineRisk,
    *,
    alpha: float,
    method: str,
    state: ThresholdState,
    threshold: float | None,
    calibration_groups: int,
) -> dict[str, Any]:
    """Return the figures of a run as one JSON object; None where a figure is undefined, `lambda` None unless cut."""
    return {
        "unit": report.unit,
        "alpha": alpha,
        "method": method,
        "state": state,
        "lambda": threshold,
        "calibration_groups": calibration_groups,
    } | {name: getattr(report, name) for name in _FIGURES}


def calibration_groups(
    scored: Sequence[ScoredCloud], unit: Unit, *, drop_unlabelled: bool = False
) -> list[LabelledGroup]:
    """Make the groups that an audit sample of every cloud gives, all its responses drawn.

    Unit `best` asks for the best response's severity alone. Under `batch` every response carries its batch's score. A
    drawn response without a severity counts as 1, or is no item (`drop_unlabelled`). Batches that are held unscored (all answers blank, or any under
    `batch`) form no group.
    """
    groups = []
    for item in scored:
        batch = item.decided()
        blank = [is_blank(text) for text in batch.texts]
        if item.scores is None or (unit == "batch" and any(blank)):
            continue
        severities = [1.0 if severity is None else severity for severity in batch.severities]
        scores = [mean_score(item.scores)] * len(severities) if unit == "batch" else item.scores
        drawn = [batch.best] if unit == "best" else list(range(len(severities)))
        if drop_unlabelled:
            drawn = [i for i in drawn if batch.severities[i] is not None]
            if not drawn:
                continue
        groups.append(
            LabelledGroup(
                id=f"{batch.batch_id}#1",  # batch and attempt, as the recalibrator names its groups
                item_ids=tuple(item.cloud.responses[i].id for i in drawn),
                scores=np.array([scores[i] for i in drawn]),
                severities=np.array([severities[i] for i in drawn]),
            )
        )
    return groups


def bad_groups(groups: Sequence[LabelledGroup], seed: int) -> NDArray[np.bool_]:
    """Say of each group of `calibration_groups` whether it counts as bad by the method `full`, by a draw from `seed`: shape (G,)."""
    salt = str(seed).encode()
    return np.array(
        [
            counts_bad(
                salt,
                BatchKey("", group.id.removesuffix("#1"), 1),
                math.fsum(group.severities.tolist()) / len(group.severities),
            )
            for group in groups
        ],
        dtype=np.bool_,
    )
