"""Every calibrator on one run's groups: the gate's own decides, the others stand beside it as diagnostics."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from streamer.calibration import (
    Threshold,
    calibrate_by_age,
    calibrate_clt,
    calibrate_groups,
    calibrate_high_probability,
    calibrate_segments,
    calibrate_selective,
    calibrate_soft,
    prepare_transductive,
)
from streamer.calibration.guarantee import besides, what_ships
from streamer.calibration.laws import LAWS
from streamer.calibration.shapes import FrozenQuantiles, Ramp, Smooth
from streamer.gates.rule import Chance, Cut, Indicator, Quantile, Rank, Rule, Segments, Transductive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamer.calibration import LabelledGroup
    from streamer.gates.policy import GateSettings

CURVE_POINTS = 2048
"""Levels that a transductive rule is compressed to."""

MOST_SEGMENTS = 500
"""Segments that may have a threshold of their own: those with the most groups."""

_LARGEST_DIAGNOSTIC = 200_000_000
"""Levels times groups above which `betting` and `selective` are left out as diagnostics: their time grows with both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What one calibrator makes of the run's groups.

    Attributes
    ----------
    name : the method; with its shape or its segments in front where the gate has such: ``smooth mean``.
    decides : True for the gate's own.
    threshold : the cut, and what it promises.
    rule : how the cut is to be read.
    """

    name: str
    decides: bool
    threshold: Threshold
    rule: Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The groups of a run as calibrators need them.

    Attributes
    ----------
    groups : in order of decision, the oldest first; missing severities are 1.
    segments : by group id; empty unless the gate has segments.
    alpha : the budget of one attempt.
    seed : the gate's.
    fewest_draws : the fewest responses that the audit draw took from any group that had more.
    """

    groups: Sequence[LabelledGroup]
    segments: Mapping[str, str]
    alpha: float
    seed: int
    fewest_draws: int = 1


def candidates(settings: GateSettings, sample: Sample) -> tuple[Candidate, ...]:
    """Run the gate's own calibrator, then every other on the same groups as it would be with a plain cut.

    The gate's own comes first, and only it may become a policy: the others promise nothing to one who picks.
    """
    own = decide(settings, sample)
    others = [
        method
        for method in (*LAWS, *_per_batch(settings), "hb", "age", *_costly(settings, sample))
        if method != own.name
    ]
    found = [own, *(_diagnostic(settings, sample, method) for method in others)]
    clt = calibrate_clt(sample.groups, alpha=sample.alpha, delta=min(settings.delta, 0.5))
    rule = Rank() if settings.shape == "rank" else Indicator()
    return (*found, Candidate(name="clt", decides=False, threshold=clt, rule=rule))


def _diagnostic(settings: GateSettings, sample: Sample, method: str) -> Candidate:
    plain = replace(
        settings,
        method=method,
        shape="rank" if settings.shape == "rank" else "indicator",
        segment_by=None,
        max_attempts=1,
        label_floor=None if method == "selective" else settings.label_floor,
    )
    return replace(decide(plain, sample), name=method, decides=False)


def _per_batch(settings: GateSettings) -> tuple[str, ...]:
    return () if settings.shape == "rank" else ("transductive",)


def decide(settings: GateSettings, sample: Sample) -> Candidate:
    """Run the gate's own calibrator, in its shape and with its segments."""
    method = settings.method
    if settings.segment_by is not None:
        threshold, rule = _by_segment(settings, sample)
        return Candidate(name=f"segments {method}", decides=True, threshold=threshold, rule=rule)
    if settings.shape in ("smooth", "ramp"):
        threshold, rule = _by_chance(settings, sample)
    elif settings.shape == "quantile":
        threshold, rule = _by_quantile(settings, sample)
    else:
        threshold, rule = _plain(settings, sample)
        if settings.shape == "rank" and isinstance(rule, Indicator):
            rule = Rank()
            threshold = _noted(
                threshold, "Scores are ranks within the batch: the share of it that scores strictly less."
            )
    name = method if settings.shape == "indicator" else f"{settings.shape} {method}"
    return Candidate(name=name, decides=True, threshold=threshold, rule=rule)


def _plain(settings: GateSettings, sample: Sample) -> tuple[Threshold, Rule]:
    """Cut scores as they are."""
    method, groups, alpha, seed = settings.method, sample.groups, sample.alpha, sample.seed
    if method == "transductive":
        return _transductive(settings, sample)
    if method in LAWS:
        found = calibrate_groups(
            groups, alpha=alpha, method=method, eta=settings.eta, draws=settings.draws, seed=seed
        )
    elif method in ("hb", "betting"):
        found = calibrate_high_probability(
            groups,
            alpha=alpha,
            delta=settings.delta,
            method="hb" if method == "hb" else "betting",
            seed=seed,
        )
    elif method == "selective":
        found = calibrate_selective(
            groups,
            alpha=alpha,
            delta=settings.delta,
            grid=selective_grid(settings.grid),
            starts=settings.starts,
            seed=seed,
        )
    else:
        ages = {group.id: float(len(groups) - 1 - position) for position, group in enumerate(groups)}
        found = calibrate_by_age(groups, alpha=alpha, ages=ages, rho=settings.rho)
    return _floored(found, settings.label_floor), Indicator()


def selective_grid(levels: int) -> tuple[float, ...]:
    """Return the grid that `selective` tests: `levels` evenly spaced ones, strictly falling from 1 - 1/levels to 0."""
    return tuple((levels - 1 - position) / levels for position in range(levels))


def _transductive(settings: GateSettings, sample: Sample) -> tuple[Threshold, Rule]:
    """Keep the window of the loss from which each batch gets a cut of its own, and the strictest that one can get."""
    largest = max((len(group.item_ids) for group in sample.groups), default=1)
    labelled = min(settings.audit_draws, sample.fewest_draws) if settings.unit == "response" else 1
    window = prepare_transductive(
        sample.groups, alpha=sample.alpha, labelled=max(largest, labelled), seed=sample.seed
    )
    # The charge is that of the fewest draws, which is the largest; the window is compressed under it.
    window = replace(window, labelled=labelled).compressed(CURVE_POINTS)
    strictest = calibrate_groups(sample.groups, alpha=sample.alpha, seed=sample.seed)
    value = strictest.value
    guarantee = window.guarantee
    if labelled == 1:
        note = "With one charge of 1 for a batch, this ships what method mean ships."
        if value == math.inf:
            guarantee = strictest.guarantee
    else:
        highest = value if settings.label_floor is None else max(value, settings.label_floor)
        note = f"No batch gets a threshold above that of method mean, {_in_words(highest)}."
        value = min(value, 1.0)  # where mean holds all, a batch of which little would ship may still pass
    threshold = Threshold.at(
        value,
        alpha=sample.alpha,
        method="transductive",
        groups=len(sample.groups),
        guarantee=besides(guarantee, note),
    )
    rule = Transductive(
        alpha=sample.alpha,
        groups=len(sample.groups),
        labelled=labelled,
        levels=window.levels,
        totals=window.totals,
        floor=settings.label_floor,
    )
    return _floored(threshold, settings.label_floor), rule


def _by_chance(settings: GateSettings, sample: Sample) -> tuple[Threshold, Rule]:
    shape = Smooth(settings.width) if settings.shape == "smooth" else Ramp(settings.width)
    found = calibrate_soft(
        sample.groups,
        alpha=sample.alpha,
        gate=shape,
        method=settings.method,
        eta=settings.eta,
        draws=settings.draws,
        seed=sample.seed,
    )
    threshold = Threshold.at(
        found.level,
        alpha=sample.alpha,
        method=settings.method,
        groups=found.groups,
        guarantee=found.guarantee,
    )
    return threshold, Chance("smooth" if settings.shape == "smooth" else "ramp", settings.width)


def _by_quantile(settings: GateSettings, sample: Sample) -> tuple[Threshold, Rule]:
    """Cut quantiles of the calibration's own scores.

    {F(Q) > F(lambda)} is {Q >= the next higher calibration score}: never more than {Q > lambda}, so that whatever is
    promised of lambda and gets better as lambda rises is promised of this cut too.
    """
    plain, _ = _plain(replace(settings, shape="indicator"), sample)
    scores = np.concatenate([group.scores for group in sample.groups])
    if plain.state != "cut":
        return plain, Quantile(None)
    frozen = FrozenQuantiles(scores)
    higher = scores[scores > plain.value]
    value = float(np.nextafter(higher.min(), -np.inf)) if len(higher) else 1.0
    quantile = float(frozen.of([plain.value])[0])
    threshold = _noted(
        Threshold.at(
            value, alpha=plain.alpha, method=plain.method, groups=plain.groups, guarantee=plain.guarantee
        ),
        f"A score counts by its quantile in the distribution of the {len(scores)} calibration scores, frozen now: "
        f"what ships is above the quantile {quantile:.6g}.",
    )
    return threshold, Quantile(quantile)


def _by_segment(settings: GateSettings, sample: Sample) -> tuple[Threshold, Rule]:
    key = settings.segment_by or ""
    found = calibrate_segments(
        sample.groups,
        segments=sample.segments,
        alpha=sample.alpha,
        method=settings.method,
        eta=settings.eta,
        draws=settings.draws,
        fallback=settings.segment_fallback,
        seed=sample.seed,
    )
    # By size alone, which knows no label: a policy has to fit into one message.
    kept = sorted(found.own, key=lambda name: (-found.counts[name], name))[:MOST_SEGMENTS]
    found = replace(found, own={name: found.own[name] for name in sorted(kept)})
    cuts = {name: _floored(one, settings.label_floor) for name, one in found.own.items()}
    rest = _floored(found.rest, settings.label_floor)
    threshold = Threshold.at(
        rest.value,
        alpha=sample.alpha,
        method=settings.method,
        groups=len(sample.groups),
        guarantee=found.guarantee(f"metadata key {key!r}"),
    )
    if settings.label_floor is not None:
        threshold = _noted(threshold, _floor_note(settings.label_floor))
    return threshold, Segments(key, tuple((name, Cut.at(one.value)) for name, one in sorted(cuts.items())))


def _floored(found: Threshold, floor: float | None) -> Threshold:
    """Raise a threshold to the label floor: below it severities were not asked for, and nothing ships."""
    if floor is None:
        return found
    guarantee = found.guarantee.replace(what_ships("open"), what_ships("cut"))
    return _noted(
        Threshold.at(
            max(found.value, floor),
            alpha=found.alpha,
            method=found.method,
            groups=found.groups,
            guarantee=guarantee,
        ),
        _floor_note(floor),
    )


def _floor_note(floor: float) -> str:
    return f"Only responses that score above the label floor {floor!r} were to be labelled, and the threshold is no less."


def _noted(found: Threshold, note: str) -> Threshold:
    return replace(found, guarantee=besides(found.guarantee, note))


def _in_words(value: float) -> str:
    return (
        "which holds everything"
        if value == math.inf
        else "which ships everything"
        if value == -math.inf
        else f"{value:.6g}"
    )


def _costly(settings: GateSettings, sample: Sample) -> tuple[str, ...]:
    groups = len(sample.groups)
    levels = sum(len(group.item_ids) for group in sample.groups)
    return tuple(
        method
        for method, tested in (("betting", levels), ("selective", settings.grid))
        if tested * groups <= _LARGEST_DIAGNOSTIC
    )
