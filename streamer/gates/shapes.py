"""The shapes of a gate: how a threshold is read, and how one is found for it.

A shape is a specification like a calibrator's: name, parameters, what it goes with, and how a calibrator's threshold becomes
the policy's cut and rule. The arithmetic is in `streamer.calibration.shapes`, the form that is stored in `streamer.gates.rule`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from streamer.calibration.guarantee import besides, what_ships
from streamer.calibration.registry import weighting_schemes
from streamer.calibration.shapes import FrozenQuantiles, Ramp, Smooth
from streamer.calibration.soft import soft_by_scheme
from streamer.calibration.specification import (
    Calibrator,
    Number,
    Parametrised,
    Range,
    Sample,
    all_ranges,
    made,
    parameter,
)
from streamer.calibration.threshold import Threshold
from streamer.calibration.weighting import WeightingScheme
from streamer.gates.rule import BatchCut, Chance, Indicator, Quantile, Rank, Rule


class GateShape(Parametrised, ABC):
    """How a threshold is read."""

    __slots__ = ()

    summary: ClassVar[str]
    floors: ClassVar[bool] = False
    """Whether it goes with a label floor and with segments: the cut itself is what is compared with scores."""
    of_ranks: ClassVar[bool] = False
    """Whether scores are ranks within the batch."""

    def refusal(self, method: type[Calibrator], unit: str) -> str | None:
        """Say why no guarantee is known with this calibrator and unit; None if one is."""
        return None

    @abstractmethod
    def fit(self, calibrator: Calibrator, sample: Sample) -> tuple[Threshold, Rule]:
        """Calibrate in this shape."""


@dataclass(frozen=True, slots=True)
class IndicatorShape(GateShape):
    """A plain cut."""

    name: ClassVar[str] = "indicator"
    summary: ClassVar[str] = "a plain cut"
    floors: ClassVar[bool] = True

    def fit(self, calibrator: Calibrator, sample: Sample) -> tuple[Threshold, Rule]:
        """Take the threshold as it is, no less than the label floor."""
        calibrated = calibrator.calibrate(sample)
        found, window = calibrated.threshold, calibrated.window
        rule: Rule = Indicator()
        if window is not None:
            rule = BatchCut(
                alpha=window.alpha,
                groups=window.groups,
                labelled=sample.drawn,
                levels=window.levels,
                totals=window.totals,
                floor=sample.floor,
            )
        return floored(found, sample.floor), rule


@dataclass(frozen=True, slots=True)
class _ChanceShape(GateShape):
    """A chance to ship that rises with the score."""

    width: float = parameter(
        0.05,
        "width on the scale of scores",
        metavar="W",
        most=100,
        open_least=True,
    )

    name: ClassVar[Literal["smooth", "ramp"]]
    gate: ClassVar[type[Smooth | Ramp]]
    """The arithmetic."""

    def refusal(self, method: type[Calibrator], unit: str) -> str | None:
        """Only what is promised on average survives the gate's own randomness."""
        if method.by_chance:
            return None
        return (
            f"shape {self.name} goes with the methods {', '.join(weighting_schemes())}, not {method.name!r}"
        )

    def fit(self, calibrator: Calibrator, sample: Sample) -> tuple[Threshold, Rule]:
        """Find the level of the soft gate."""
        if not isinstance(calibrator, WeightingScheme):
            raise TypeError(f"shape {self.name} needs a weighting scheme, not {calibrator.name}")
        found = soft_by_scheme(
            sample.groups, alpha=sample.alpha, gate=self.gate(self.width), scheme=calibrator, seed=sample.seed
        )
        threshold = Threshold.at(
            found.level,
            alpha=sample.alpha,
            method=calibrator.name,
            groups=found.groups,
            guarantee=found.guarantee,
        )
        return threshold, Chance(self.name, self.width)


@dataclass(frozen=True, slots=True)
class SmoothShape(_ChanceShape):
    """The logistic gate."""

    name: ClassVar[Literal["smooth"]] = "smooth"
    summary: ClassVar[str] = "a chance to ship that rises with the score as a logistic curve"
    gate: ClassVar[type[Smooth]] = Smooth


@dataclass(frozen=True, slots=True)
class RampShape(_ChanceShape):
    """The linear ramp."""

    name: ClassVar[Literal["ramp"]] = "ramp"
    summary: ClassVar[str] = "a chance to ship that rises linearly with the score"
    gate: ClassVar[type[Ramp]] = Ramp


@dataclass(frozen=True, slots=True)
class QuantileShape(GateShape):
    """A quantile of the calibration's own scores."""

    name: ClassVar[str] = "quantile"
    summary: ClassVar[str] = "a quantile of the calibration scores"

    def refusal(self, method: type[Calibrator], unit: str) -> str | None:
        """Its cut is never less than the calibrator's: what is promised must get better as that rises."""
        if method.by_quantile:
            return None
        return f"shape quantile does not go with method {method.name!r}, which has no single cut that only gets stricter"

    def fit(self, calibrator: Calibrator, sample: Sample) -> tuple[Threshold, Rule]:
        """Cut quantiles of the calibration's own scores.

        {F(Q) > F(lambda)} is {Q >= the next higher calibration score}: never more than {Q > lambda}, so that whatever is
        promised of lambda and gets better as lambda rises is promised of this cut too.
        """
        plain = calibrator.calibrate(sample).threshold
        scores = np.concatenate([group.scores for group in sample.groups])
        if plain.state != "cut":
            return plain, Quantile(None)
        frozen = FrozenQuantiles(scores)
        higher = scores[scores > plain.value]
        value = float(np.nextafter(higher.min(), -np.inf)) if len(higher) else 1.0
        quantile = float(frozen.of([plain.value])[0])
        threshold = noted(
            Threshold.at(
                value,
                alpha=plain.alpha,
                method=plain.method,
                groups=plain.groups,
                guarantee=plain.guarantee,
            ),
            f"A score counts by its quantile in the distribution of the {len(scores)} calibration scores, frozen now: "
            f"what ships is above the quantile {quantile:.6g}.",
        )
        return threshold, Quantile(quantile)


@dataclass(frozen=True, slots=True)
class RankShape(GateShape):
    """A rank within the batch."""

    name: ClassVar[str] = "rank"
    summary: ClassVar[str] = "a rank within the batch"
    of_ranks: ClassVar[bool] = True

    def refusal(self, method: type[Calibrator], unit: str) -> str | None:
        """A batch's best has always the same rank."""
        if not method.by_rank:
            return f"shape rank does not go with method {method.name}"
        if unit != "response":
            return f"shape rank goes with the unit response, not {unit!r}: a batch's best has always the same rank"
        return None

    def fit(self, calibrator: Calibrator, sample: Sample) -> tuple[Threshold, Rule]:
        """Cut ranks, which the sample has in place of scores."""
        found = calibrator.calibrate(sample).threshold
        note = "Scores are ranks within the batch: the share of it that scores strictly less."
        return noted(found, note), Rank()


EVERY: Mapping[str, type[GateShape]] = MappingProxyType(
    {one.name: one for one in (IndicatorShape, SmoothShape, RampShape, QuantileShape, RankShape)}
)
"""The shapes by name."""

INDICATOR_SHAPE = IndicatorShape()


def shape(name: str, parameters: Mapping[str, Number] = MappingProxyType({})) -> GateShape:
    """Make a shape; parameters that it does not have are ignored. Raises `ValueError` for what cannot be one."""
    return made(EVERY, name, parameters, what="shape")


def ranges() -> dict[str, tuple[Range, Number, tuple[str, ...]]]:
    """Return every parameter by name: its range, its default, and which shapes have it."""
    return all_ranges(EVERY.values())


def floored(found: Threshold, floor: float | None) -> Threshold:
    """Raise a threshold to the label floor: below it severities were not asked for, and nothing ships."""
    if floor is None:
        return found
    return noted(
        Threshold.at(
            max(found.value, floor),
            alpha=found.alpha,
            method=found.method,
            groups=found.groups,
            guarantee=found.guarantee.replace(what_ships("open"), what_ships("cut")),
        ),
        floor_note(floor),
    )


def floor_note(floor: float) -> str:
    """Say in a guarantee that there is a label floor."""
    return (
        f"Only what scores above the label floor {floor!r} was to be labelled, and the threshold is no less."
    )


def noted(found: Threshold, note: str) -> Threshold:
    """Add a sentence to a threshold's guarantee."""
    return replace(found, guarantee=besides(found.guarantee, note))
