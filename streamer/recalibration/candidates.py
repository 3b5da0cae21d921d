"""Every calibrator on one run's groups: the gate's own decides, the others stand beside it as diagnostics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamer.calibration import LabelledGroup, registry
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.claims import calibrate_claims
from streamer.calibration.full_fit import Prompts
from streamer.calibration.segments import by_segment
from streamer.calibration.specification import Calibrator, Sample
from streamer.calibration.threshold import Threshold
from streamer.calibration.weighting import WeightingScheme, calibrate_by_scheme
from streamer.gates.rule import INDICATOR, MOST_SEGMENTS, Cut, Full, Rule, Segments
from streamer.gates.settings import GateSettings
from streamer.gates.shapes import INDICATOR_SHAPE, GateShape, floor_note, floored, noted

_LARGEST_DIAGNOSTIC = 200_000_000
"""Steps above which a calibrator is left out as a diagnostic: see `Calibrator.cost`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What one calibrator makes of the run's groups; `decides` marks the gate's own.

    The name is the method, with its shape or its segments in front where the gate has such:
    ``smooth mean``.
    """

    name: str
    decides: bool
    threshold: Threshold
    rule: Rule


def for_gate(settings: GateSettings, drawn: Sample) -> Sample:
    """What a calibrator of this gate works on, of the groups of a run, of which nothing else is known yet."""
    return replace(
        drawn,
        drawn=min(settings.audit_draws, drawn.drawn) if settings.unit == "response" else 1,
        largest=max([len(group.item_ids) for group in drawn.groups], default=1),
        floor=settings.label_floor,
        budget=settings.alpha,
        attempts=settings.max_attempts,
    )


def candidates(settings: GateSettings, drawn: Sample) -> tuple[Candidate, ...]:
    """Run the gate's own calibrator, then every other on the same groups as it would be with a plain cut.

    The gate's own comes first, and only it may become a policy: the others promise nothing to one who picks.
    """
    sample = for_gate(settings, drawn)
    own = decide(settings, drawn)
    others = (
        calibrator
        for calibrator in _diagnostics(settings)
        if calibrator.name != own.name and calibrator.cost(sample) <= _LARGEST_DIAGNOSTIC
    )
    return (own, *(_diagnostic(settings, sample, one) for one in others))


def decide(settings: GateSettings, drawn: Sample) -> Candidate:
    """Run the gate's own calibrator, in its shape and with its segments."""
    sample = for_gate(settings, drawn)
    if settings.signal_list is not None and settings.calibrator.of_signals:
        found = settings.calibrator.calibrate(sample)
        if found.prompts is not None:
            return Candidate(
                name=settings.method,
                decides=True,
                threshold=found.threshold,
                rule=_by_signals(settings, found.prompts),
            )
    if settings.segment_by is not None:
        threshold, rule = _by_segment(settings, sample)
        return Candidate(name=f"segments {settings.method}", decides=True, threshold=threshold, rule=rule)
    threshold, rule = _fit(settings, settings.shape, settings.calibrator, sample)
    plain = settings.shape.name == INDICATOR_SHAPE.name
    name = settings.method if plain else f"{settings.shape.name} {settings.method}"
    return Candidate(name=name, decides=True, threshold=threshold, rule=rule)


def _fit(
    settings: GateSettings, shape: GateShape, calibrator: Calibrator, sample: Sample
) -> tuple[Threshold, Rule]:
    if settings.unit != "claim":
        return shape.fit(calibrator, sample)
    return floored(_of_claims(settings, calibrator, sample, sample.groups), sample.floor), INDICATOR


def _of_claims(
    settings: GateSettings, calibrator: Calibrator, sample: Sample, groups: Sequence[LabelledGroup]
) -> Threshold:
    how: Any = {"loss": settings.loss, "least_kept": settings.least_kept, "by": calibrator}
    return calibrate_claims(groups, alpha=sample.alpha, seed=sample.seed, **how)


def _diagnostics(settings: GateSettings) -> list[Calibrator]:
    """The calibrators that a run shows, each with the parameters that the gate has, as far as they may be its own."""
    made = []
    for name, kind in registry.every().items():
        if not kind.diagnostic or (settings.shape.of_ranks and not kind.by_rank):
            continue
        if settings.unit == "claim" and not kind.by_sum:
            continue
        made.append(
            registry.calibrator(
                name,
                {one: min(settings.parameter(one), about.most) for one, about in kind.ranges().items()},
            )
        )
    return made


def _diagnostic(settings: GateSettings, sample: Sample, calibrator: Calibrator) -> Candidate:
    # What a gate cannot name promises nothing, and is shown as it is found.
    floor = sample.floor if calibrator.offered and not calibrator.refuses_floor() else None
    shape = settings.shape if settings.shape.of_ranks else INDICATOR_SHAPE
    threshold, rule = _fit(settings, shape, calibrator, replace(sample, floor=floor))
    return Candidate(name=calibrator.name, decides=False, threshold=threshold, rule=rule)


def _by_signals(settings: GateSettings, prompts: Prompts) -> Full:
    assert settings.signal_list is not None
    return Full.of(
        prompts,
        signals=settings.signal_list.hash,
        budget=settings.alpha,
        attempts=settings.max_attempts,
        segment_by=settings.segment_by,
        pooled=settings.segment_fallback == "pooled",
        ship_above=settings.floor or 0.0,
        least_alike=int(settings.parameter("least_alike")),
    )


def _by_segment(settings: GateSettings, sample: Sample) -> tuple[Threshold, Rule]:
    key = settings.segment_by or ""
    scheme = Mean() if settings.calibrator.of_signals else settings.calibrator
    if not isinstance(scheme, WeightingScheme):
        raise TypeError(f"segments need a weighting scheme, not {settings.method}")

    def calibrated(some: Sequence[LabelledGroup]) -> Threshold:
        if settings.unit == "claim":
            return _of_claims(settings, scheme, sample, some)
        return calibrate_by_scheme(some, alpha=sample.alpha, scheme=scheme, seed=sample.seed)

    found = by_segment(
        sample.groups,
        calibrated,
        segments=sample.segments,
        alpha=sample.alpha,
        fallback=settings.segment_fallback,
    )
    # By size alone, which knows no label: a policy has to fit into one message.
    kept = sorted(found.own, key=lambda name: (-found.counts[name], name))[:MOST_SEGMENTS]
    found = replace(found, own={name: found.own[name] for name in sorted(kept)})
    cuts = {name: floored(one, settings.floor) for name, one in found.own.items()}
    rest = floored(found.rest, settings.floor)
    threshold = Threshold.at(
        rest.value,
        alpha=sample.alpha,
        method=settings.method,
        groups=len(sample.groups),
        guarantee=found.guarantee(f"metadata key {key!r}"),
    )
    if settings.label_floor is not None:
        threshold = noted(threshold, floor_note(settings.label_floor))
    return threshold, Segments(key, tuple((name, Cut.at(one.value)) for name, one in sorted(cuts.items())))
