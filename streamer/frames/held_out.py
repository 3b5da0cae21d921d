"""What a gate would have made of a labelled table: one half of its prompts calibrates, the other half judges.

No label that found the threshold judges it, so the figures are those of prompts that the gate has not seen. Bounds are of
Hoeffding and Bentkus, at a stated level: they hold for the mean of other prompts like these, at any number of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.p_values import hoeffding_bentkus
from streamer.calibration.registry import every
from streamer.calibration.threshold import Threshold
from streamer.clouds.cloud import split_clouds
from streamer.clouds.measurement import DecidedBatch, OfflineRisk, measure, units_of
from streamer.clouds.offline import ScoredCloud, decided_batch
from streamer.errors import UsageError
from streamer.frames.answers import Read
from streamer.frames.tables import Tabular
from streamer.gates.declared import Unit
from streamer.gates.rule import Cut, Rule
from streamer.wording.numbers import SERVED, percent
from streamer.wording.policies import cut_text

Floats = NDArray[np.float64]

_STEPS = 40


@dataclass(frozen=True, slots=True)
class Bounded:
    """A mean in [0, 1] with bounds that each fail with a chance of at most delta / 2; `estimate` is None where nothing is known."""

    estimate: float | None
    lower: float
    upper: float

    def __str__(self) -> str:
        if self.estimate is None:
            return "not known"
        return f"{percent(self.estimate)}, between {percent(self.lower)} and {percent(self.upper)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a way of deciding makes of the judged prompts.

    Attributes
    ----------
    prompts : judged, without those that have no severity where these are left out.
    figures : counted, answers without a severity as 1 (or left out).
    exposure : average harm per prompt, held ones counting 0.
    selective : error rate among what ships.
    """

    prompts: int
    figures: OfflineRisk
    exposure: Bounded
    selective: Bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut(Tabular):
    """What a gate would have made of a table.

    Attributes
    ----------
    threshold : with its guarantee; None where the cut was given.
    cut, rule : what decided.
    calibrated, judged : prompts on either side; `in_sample`: they are the same ones.
    in_order : the older half calibrates, because the method looks at the order; else a random half.
    asked, everything : what the gate makes of the judged prompts, and what it would be to ship all.
    delta : chance that an interval is wrong.
    decided : the judged prompts.
    why_closed : why nothing ships whatever comes; empty otherwise.
    """

    unit: Unit
    threshold: Threshold | None
    cut: Cut
    rule: Rule
    calibrated: int
    judged: int
    in_sample: bool
    in_order: bool
    asked: Outcome
    everything: Outcome
    delta: float
    decided: Sequence[DecidedBatch] = field(repr=False)
    why_closed: str = ""
    _frame: Any = field(repr=False, default=None)
    _drop: bool = field(repr=False, default=False)

    def __str__(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """What ships and what gets through, in words."""
        asked = self.asked
        return (
            f"{percent(asked.figures.ship_rate or 0.0)} of {SERVED[self.unit]} served; error rate among shipped answers "
            f"{asked.selective}, exposure {asked.exposure}"
        )

    @property
    def basis(self) -> str:
        """What decided, and what judged it, in words."""
        if self.threshold is None:
            return f"The threshold was given, and is judged on all {self.judged} prompts: right if these labels did not choose it."
        said = f"The threshold, {cut_text(self.cut, self.rule)}, is"
        if self.cut.state == "full":
            said = "All signals decide,"
        said += f" calibrated on {self.calibrated} prompts"
        if self.in_sample:
            return f"{said}, IN-SAMPLE: they are judged as well, so that it looks better than it is."
        how = "the first half of the file" if self.in_order else "a random half of the file"
        return f"{said}, {how}, and judged on the other {self.judged}: no label counts for both."

    def comparison(self) -> list[tuple[str, str, str]]:
        """Return the figures in words, a name and what they are with everything shipped and with this gate."""
        both = (self.everything, self.asked)
        promised = None if self.threshold is None else every()[self.threshold.method].risk

        def budget(risk: str) -> str:
            return f", budget {percent(self.threshold.alpha)}" if self.threshold and risk == promised else ""

        return [
            ("prompts", str(both[0].prompts), str(both[1].prompts)),
            (
                f"share of {SERVED[self.unit]} served",
                percent(both[0].figures.ship_rate or 0.0),
                percent(both[1].figures.ship_rate or 0.0),
            ),
            (
                f"error rate among shipped{budget('selective')}",
                str(both[0].selective),
                str(both[1].selective),
            ),
            (f"exposure{budget('exposure')}", str(both[0].exposure), str(both[1].exposure)),
        ]

    def columns(self) -> dict[str, list[Any]]:
        """Return the figures as columns: name, estimate, and the bounds where there are any; NaN where nothing is known."""
        asked, everything = self.asked, self.everything
        bounded = {
            "exposure": asked.exposure,
            "wrong_among_shipped": asked.selective,
            "exposure_without_a_gate": everything.exposure,
        }
        rows = [("ship_rate", asked.figures.ship_rate, math.nan, math.nan)]
        rows += [(name, one.estimate, one.lower, one.upper) for name, one in bounded.items()]
        names, estimates, lower, upper = zip(*rows, strict=True)
        return {
            "figure": list(names),
            "estimate": [math.nan if one is None else one for one in estimates],
            "lower": list(lower),
            "upper": list(upper),
        }

    def _repr_html_(self) -> str:
        from streamer.frames.notebook import held_out_html

        units = units_of(self.decided, self.unit)
        return held_out_html(self, units.labelled() if self._drop else units)


def halves(table: Read, seed: int, *, in_order: bool) -> tuple[Read, Read]:
    """Halve the prompts of a table as `streamer evaluate` does with this seed, or in their order. Each keeps it."""
    clouds = table.clouds
    if len(clouds) < 2:
        raise UsageError(
            "there is one prompt, and one half calibrates while the other is judged: give at least two, and about a hundred for "
            "a budget of 1 %"
        )
    first = clouds[: len(clouds) // 2] if in_order else split_clouds(clouds, seed)[0]
    names = {cloud.batch_id for cloud in first}
    return part(table, [c.batch_id in names for c in clouds]), part(
        table, [c.batch_id not in names for c in clouds]
    )


def part(table: Read, kept: Sequence[bool]) -> Read:
    """Return the marked prompts of a table."""
    places = [place for place, wanted in enumerate(kept) if wanted]
    return replace(
        table,
        clouds=tuple(table.clouds[place] for place in places),
        rows=None if table.rows is None else tuple(table.rows[place] for place in places),
        metadata=tuple(table.metadata[place] for place in places) if table.metadata else (),
    )


def outcome(decided: Sequence[DecidedBatch], unit: Unit, *, delta: float, drop_unlabelled: bool) -> Outcome:
    """Measure what was decided, with bounds.

    An answer without a severity counts 0 in the lower bound and 1 in the upper one and in the estimate, unless it is left out.
    """
    units = units_of(decided, unit)
    if drop_unlabelled:
        units = units.labelled()
    # A prompt counts once, whatever its number of answers: they are not independent.
    _, place = np.unique(units.batch, return_inverse=True)
    sizes = np.bincount(place).astype(np.float64)
    share = np.bincount(place, units.shipped) / sizes
    most = np.bincount(place, units.shipped * units.severities) / sizes
    least = np.bincount(place, units.shipped * units.severities * ~units.unlabelled) / sizes
    serves = share > 0
    return Outcome(
        prompts=len(share),
        figures=measure(decided, unit, drop_unlabelled=drop_unlabelled),
        exposure=bounded(least, most, np.ones_like(share), delta),
        selective=bounded(least[serves], most[serves], share[serves], delta),
    )


def bounded(least: Floats, most: Floats, share: Floats, delta: float) -> Bounded:
    """Bound E[harm] / E[share] over independent prompts, with harm between `least` and `most`.

    For a ratio s the values harm - s share + s lie in [0, 1] and have the mean s; so s is below the upper bound unless their
    p-value against a mean of s or more is at most delta / 2, and likewise from below.

    Parameters
    ----------
    least, most : shape (n,), 0 <= least <= most <= share.
    share : shape (n,), in (0, 1].
    """
    count, shares = len(share), float(share.sum())
    if not count:
        return Bounded(None, 0.0, 1.0)

    def excluded_above(level: float) -> bool:
        total = float(most.sum()) - level * shares + level * count
        return hoeffding_bentkus(total, count, level) <= delta / 2

    def excluded_below(level: float) -> bool:
        total = float(least.sum()) - level * shares + level * count
        return hoeffding_bentkus(count - total, count, 1 - level) <= delta / 2

    low, high = float(least.sum()) / shares, float(most.sum()) / shares
    upper, lower = _edge(high, 1.0, excluded_above), _edge(low, 0.0, excluded_below)
    return Bounded(high, lower, upper)


def _edge(inside: float, outside: float, excluded: Callable[[float], bool]) -> float:
    """Bisect for where levels are excluded, on their side; the end itself where none is."""
    end = outside
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        if not 0 < middle < 1:
            return end
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return outside


def decided_at(found: Sequence[ScoredCloud], unit: Unit, cut: Cut) -> tuple[DecidedBatch, ...]:
    """Decide each prompt by one cut."""
    return tuple(decided_batch(item, unit=unit, state=cut.state, threshold=cut.threshold) for item in found)
