"""One threshold for each segment of the traffic (Mondrian calibration), where a segment has groups enough.

The guarantee of a pooled threshold is marginal: one kind of question may run above the budget while another
makes up for it. Calibrated on its own groups, a segment keeps the budget by itself, because its groups are
exchangeable among themselves. Below ceil(1/alpha) - 1 groups no threshold can, and the pooled one takes its
place, or nothing ships.

The pooled threshold keeps its budget on average over the traffic *if it serves all of it*. Where it serves
only the segments that are too small, while others have thresholds of their own, neither those segments nor
the traffic as a whole are bounded by it; `fallback="closed"` keeps both bounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from streamer.calibration.arguments import check_alpha
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, groups_needed, what_ships
from streamer.calibration.registry import weighting_scheme
from streamer.calibration.threshold import Threshold
from streamer.calibration.weighting import calibrate_by_scheme

Fallback = Literal["pooled", "closed"]
FALLBACKS: tuple[Fallback, ...] = get_args(Fallback)

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedThreshold:
    """Thresholds by segment, and what serves the rest.

    `own`: by segment, for segments with groups enough; calibrated on these groups alone. `rest`:
    serves every other segment, one that was never seen included: the pooled threshold, or a closed
    one. `fallback`: which of the two `rest` is. `counts`: calibration groups by segment.
    """

    own: Mapping[str, Threshold]
    rest: Threshold
    fallback: Fallback
    counts: Mapping[str, int]

    def threshold_for(self, segment: str) -> Threshold:
        """Return the threshold that serves `segment`."""
        return self.own.get(segment, self.rest)

    def guarantee(self, kind: str) -> str:
        """Say in words what all segments are promised together; `kind` distinguishes them, for
        example ``metadata key 'language'``.
        """
        needed = counted(groups_needed(self.rest.alpha), "group")
        some = ", ".join(repr(name) for name in list(self.own)[:_NAMED]) + (
            ", ..." if len(self.own) > _NAMED else ""
        )
        if not self.own:
            rest = (
                "Nothing ships, so exposure risk is 0."
                if self.fallback == "closed"
                else f"The pooled threshold serves all segments; nothing is promised for one alone. {self.rest.guarantee}"
            )
            return f"No segment by {kind} has the {needed} that the budget {budget(self.rest.alpha)} needs. {rest}"
        own = counted(len(self.own), "segment")
        have = "has a threshold of its own" if len(self.own) == 1 else "have thresholds of their own"
        rest = (
            "Every other segment ships nothing."
            if self.fallback == "closed"
            else f"Every other segment is served by the pooled threshold of all {counted(self.rest.groups, 'group')}; "
            "nothing is promised for it, nor for the average over all segments."
        )
        opening = (
            f"{own} by {kind} ({some}) {have}, each from its own groups; the segment of a group follows from what was "
            f"known before its responses were scored. {rest}"
        )
        shipping = [name for name, threshold in self.own.items() if threshold.state != "closed"]
        if not shipping:
            return f"{opening} No threshold of those keeps the budget {budget(self.rest.alpha)} but one that ships nothing."
        fewest = min(shipping, key=lambda name: (self.counts[name], name))
        return (
            f"{opening} Within each segment that has a threshold of its own the following holds, here in the figures "
            f"of the one with the fewest groups, {fewest!r}. {_promise(self.own[fewest])}"
        )


def _promise(threshold: Threshold) -> str:
    """A guarantee without its first sentence, which is about one threshold alone."""
    return threshold.guarantee.removeprefix(what_ships(threshold.state)).lstrip()


def calibrate_segments(
    groups: Sequence[LabelledGroup],
    *,
    segments: Mapping[str, str],
    alpha: float,
    method: str = "mean",
    eta: float = 1.0,
    draws: int = 20,
    fallback: Fallback = "pooled",
    seed: int,
) -> SegmentedThreshold:
    """Calibrate each segment on its own groups; see `streamer.calibration.calibrate_groups`.

    `segments`, by group id, are of a kind that was fixed beforehand and is known of every batch
    before its responses are scored (a metadata key); those of other groups are passed over. `alpha`
    is the budget of each segment. One of fewer than ceil(1/alpha) - 1 groups is served by the
    `fallback`: `pooled`, the threshold of all groups, or `closed`, nothing ships. Raises
    `ValueError` if a group id repeats, a group has no segment, or an argument is not valid.
    """
    if fallback not in FALLBACKS:
        raise ValueError(f"fallback must be one of {', '.join(FALLBACKS)}, not {fallback!r}")
    alpha, scheme = check_alpha(alpha), weighting_scheme(method, {"eta": eta, "draws": draws})

    def calibrated(some: Sequence[LabelledGroup]) -> Threshold:
        return calibrate_by_scheme(some, alpha=alpha, scheme=scheme, seed=seed)

    return by_segment(groups, calibrated, segments=segments, alpha=alpha, fallback=fallback)


def by_segment(
    groups: Sequence[LabelledGroup],
    calibrated: Callable[[Sequence[LabelledGroup]], Threshold],
    *,
    segments: Mapping[str, str],
    alpha: float,
    fallback: Fallback,
) -> SegmentedThreshold:
    """Calibrate the groups of each segment in the same way; see `calibrate_segments`."""
    parts: dict[str, list[LabelledGroup]] = {}
    for group in groups:
        if group.id not in segments:
            raise ValueError(f"group {group.id!r} has no segment")
        parts.setdefault(segments[group.id], []).append(group)
    pooled = calibrated(groups)
    return SegmentedThreshold(
        own=MappingProxyType(
            {
                segment: calibrated(some)
                for segment, some in sorted(parts.items())
                if len(some) >= groups_needed(alpha)
            }
        ),
        rest=pooled if fallback == "pooled" else calibrated([]),
        fallback=fallback,
        counts=MappingProxyType({segment: len(some) for segment, some in sorted(parts.items())}),
    )
