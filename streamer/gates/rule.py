"""How a policy turns scores into decisions: a cut, and the rule that says how the cut is to be read. Pure values.

Every rule has a JSON form ``{kind, parameters, curve}``, the one that is stored with a policy and published on the
topic `thresholds`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, assert_never, get_args

from numpy.typing import ArrayLike

from streamer.calibration.full_fit import LEAST_ALIKE, RIDGE, Prompts, allowed
from streamer.calibration.shapes import Ramp, Smooth
from streamer.calibration.threshold import THRESHOLD_STATES, ThresholdState, state_at

RuleKind = Literal["indicator", "smooth", "ramp", "quantile", "rank", "transductive", "segments", "full"]
RULE_KINDS: tuple[RuleKind, ...] = get_args(RuleKind)

MOST_SEGMENTS = 500
"""Segments that may be calibrated on their own: those with the most groups."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a gate cuts.

    `state`: `closed` (ship nothing), `cut` (ship what passes lambda), `open` (ship all) or `full`
    (as the rule `Full` says). `threshold`: lambda, finite; None unless `state` is `cut`.
    """

    state: ThresholdState
    threshold: float | None

    def __post_init__(self) -> None:
        if self.state not in THRESHOLD_STATES:
            raise ValueError(f"state must be one of {', '.join(THRESHOLD_STATES)}, not {self.state!r}")
        if (self.state == "cut") != (self.threshold is not None):
            raise ValueError(f"a gate in state {self.state!r} cannot have threshold {self.threshold!r}")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError(f"the threshold of a cut must be finite, not {self.threshold!r}")

    @classmethod
    def at(cls, value: float) -> Cut:
        """Return the cut at lambda: +inf is closed, -inf open, NaN full."""
        state = state_at(value)
        return cls(state, value if state == "cut" else None)

    @property
    def value(self) -> float:
        """Lambda; +inf when closed, -inf when open, NaN when full."""
        if self.threshold is not None:
            return self.threshold
        return {"closed": math.inf, "open": -math.inf}.get(self.state, math.nan)


@dataclass(frozen=True, slots=True)
class Indicator:
    """Ship iff the score is above lambda."""

    kind: ClassVar[RuleKind] = "indicator"


INDICATOR = Indicator()


@dataclass(frozen=True, slots=True)
class Chance:
    """Ship with a probability that rises with the score: iff the randomised score is above lambda.

    With U the uniform number in (0, 1) that is recorded with the decision, the randomised score is
    Q - width logit(U) for `smooth` and Q - width U for `ramp`. Lambda may lie outside [0, 1].
    """

    kind: Literal["smooth", "ramp"]
    width: float

    def __post_init__(self) -> None:
        if self.kind not in ("smooth", "ramp"):
            raise ValueError(f"a random gate is smooth or a ramp, not {self.kind!r}")
        if not 0 < self.width < math.inf:
            raise ValueError(
                f"the width of a {self.kind} gate must be positive and finite, not {self.width!r}"
            )

    @property
    def shape(self) -> Smooth | Ramp:
        """The chance to ship as a function of the score, and the randomised scores."""
        match self.kind:
            case "smooth":
                return Smooth(self.width)
            case "ramp":
                return Ramp(self.width)
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True)
class Quantile:
    """Ship iff the score's quantile in the frozen calibration distribution is above `quantile`.

    The distribution is a step function, so that this is the same as a score above lambda, which the policy holds.
    `quantile` is None when the gate is closed or open.
    """

    quantile: float | None
    kind: ClassVar[RuleKind] = "quantile"

    def __post_init__(self) -> None:
        if self.quantile is not None and not 0 <= self.quantile <= 1:
            raise ValueError(f"a quantile must lie in [0, 1], not {self.quantile!r}")


@dataclass(frozen=True, slots=True)
class Rank:
    """Ship iff the share of the batch that scores strictly less is above lambda. For the unit `response`."""

    kind: ClassVar[RuleKind] = "rank"


@dataclass(frozen=True, slots=True)
class BatchCut:
    """Find a new lambda for each batch, from its own scores and this window of the summed
    calibration loss.

    Lambda is the smallest l with S(l) + c(l) <= `alpha` (`groups` + 1), and no less than `floor`;
    `alpha` is the budget of one attempt, in (0, 1). S(l) is `totals[i]`, not rising, for
    `levels[i]` <= l < `levels[i + 1]`, which strictly rise; the first may be -inf. c(l) is the mean
    of the `labelled` >= 1 largest of 1{Q > l} over the batch's responses (all of them when
    `labelled` is None).
    """

    alpha: float
    groups: int
    labelled: int | None
    levels: tuple[float, ...]
    totals: tuple[float, ...]
    floor: float | None = None
    kind: ClassVar[RuleKind] = "transductive"

    def __post_init__(self) -> None:
        if not self.levels or len(self.levels) != len(self.totals):
            raise ValueError("a transductive rule needs one total for each level, and at least one level")
        if any(not math.isfinite(level) for level in self.levels[1:]) or not self.levels[0] < math.inf:
            raise ValueError("levels are finite, but for a first one of -inf")


@dataclass(frozen=True, slots=True)
class Segments:
    """Cut each segment where its own calibration says; the policy's cut serves every other.

    `key`: the metadata key that names a batch's segment. `own`: (segment, cut) of each segment with
    groups enough, sorted by segment.
    """

    key: str
    own: tuple[tuple[str, Cut], ...]
    kind: ClassVar[RuleKind] = "segments"

    def __post_init__(self) -> None:
        names = [name for name, _ in self.own]
        if names != sorted(set(names)):
            raise ValueError("segments must be sorted, each there once")


@dataclass(frozen=True, slots=True)
class Fitted:
    """The calibration prompts that a batch is compared with; see `streamer.calibration.full_fit`.

    `groups`: number G of prompts, the newest of those that the policy's run has read. `bad`: how
    many of them are bad. `allowed`: the largest count that ships, k. `rows`: `Prompts.digest`, so
    that nobody can put other prompts in their place. `own`: (segment, its G, its k) by segment;
    empty where there are none.
    """

    groups: int
    bad: int
    allowed: int
    rows: str
    own: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Full:
    """Ship iff few enough bad calibration prompts look at least as good, by all signals: those of
    the list whose SHA-256, in hexadecimal, is `signals`.

    What ships must pass each of `fits`: all prompts, and the newest alone where they have become
    worse; `ridge` is lambda of the fit. `segment_by`: the metadata key that names a batch's
    segment; None: all prompts count. `pooled`: all prompts serve a segment that has none of its
    own; else nothing of it ships. Nothing ships whose score is at most `ship_above`, in [0, 1]; 0:
    no score holds. `least_alike`: prompts that must have been unread for the same reasons as a
    batch that the encoder did not read; see `unfamiliar`. `prompts`: those of each fit, read from the record; without
    them nothing can be decided. Not part of the rule.
    """

    signals: str
    ridge: float
    fits: tuple[Fitted, ...]
    segment_by: str | None = None
    pooled: bool = False
    ship_above: float = 0.0
    least_alike: int = LEAST_ALIKE
    prompts: tuple[Prompts, ...] | None = field(default=None, compare=False, repr=False)
    kind: ClassVar[RuleKind] = "full"

    def __post_init__(self) -> None:
        if not 1 <= len(self.fits) <= 2:
            raise ValueError(f"a rule of all signals has one fit or two, not {len(self.fits)}")

    @classmethod
    def of(
        cls,
        prompts: Prompts,
        *,
        signals: str,
        budget: float,
        attempts: int,
        segment_by: str | None,
        pooled: bool,
        ship_above: float = 0.0,
        least_alike: int = LEAST_ALIKE,
    ) -> Full:
        """Make the rule that compares with these prompts."""
        groups = len(prompts.ids)
        sizes = Counter(prompts.segments or ()) if segment_by is not None else Counter()
        # By size alone, which knows no label: a policy has to fit into one message.
        kept = sorted(sizes, key=lambda name: (-sizes[name], name))[:MOST_SEGMENTS]
        own = [(name, sizes[name], allowed(budget, sizes[name], attempts=attempts)) for name in sorted(kept)]
        fitted = Fitted(
            groups=groups,
            bad=int(prompts.bad.sum()),
            allowed=allowed(budget, groups, attempts=attempts),
            rows=prompts.digest,
            own=tuple(one for one in own if one[2] >= 1 or not pooled),
        )
        return cls(
            signals=signals,
            ridge=RIDGE,
            fits=(fitted,),
            segment_by=segment_by,
            pooled=pooled,
            ship_above=ship_above,
            least_alike=least_alike,
            prompts=(prompts,),
        )

    @property
    def floor(self) -> float:
        """The score above which what passes all fits ships."""
        return self.ship_above or -math.inf

    def and_by(self, newest: Full) -> Full:
        """Return the rule that ships what this and that of the newest prompts alone ship."""
        prompts = None
        if self.prompts is not None and newest.prompts is not None:
            prompts = (*self.prompts, *newest.prompts)
        return replace(self, fits=(*self.fits, *newest.fits), prompts=prompts)

    def with_prompts(self, found: Sequence[Prompts]) -> Full:
        """Attach the prompts of the record. Raises `ValueError` where they are not those of the rule."""
        if [one.digest for one in found] != [one.rows for one in self.fits]:
            raise ValueError("the calibration prompts on record are not those that the policy was made of")
        return replace(self, prompts=tuple(found))

    def weights(self, columns: Sequence[str]) -> dict[str, float]:
        """Return what each signal weighs in the fit to all prompts: its coefficient times its standard deviation among them.

        The largest first, without regard to sign; a positive one speaks for an answer. Empty where the prompts are not attached.
        """
        if self.prompts is None:
            return {}
        fit, rows = self.prompts[0].fit, self.prompts[0].rows
        weights = fit.weights[1:] * rows.std(axis=0, dtype="f8")
        return dict(sorted(zip(columns, weights.tolist(), strict=True), key=lambda one: -abs(one[1])))

    def limits(self, segment: str | None = None) -> Iterator[tuple[int, int]]:
        """Yield, of each fit, the G that a count is out of, and the k that it may be."""
        for fitted in self.fits:
            own = {name: (size, k) for name, size, k in fitted.own}.get(segment or "")
            if self.segment_by is None or (own is None and self.pooled):
                yield fitted.groups, fitted.allowed
            else:
                yield own or (0, 0)

    def counts(
        self, row: ArrayLike, segment: str | None = None, *, prompt: str | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """Yield, of each fit, the batch's count, the G that it is out of, and the k that it may be,
        from its signals, shape (d,).

        `prompt` is the batch's id and left out of the prompts where it is one of them; None: it is
        new. Raises `ValueError` where the prompts are not attached.
        """
        if self.prompts is None:
            raise ValueError("the policy's calibration prompts were not read")
        for fitted, prompts, (groups, k) in zip(self.fits, self.prompts, self.limits(segment), strict=True):
            known = any(name == (segment or "") for name, _, _ in fitted.own)
            within = (segment or "") if self.segment_by is not None and (known or not self.pooled) else None
            if prompts.unfamiliar(row, self.least_alike, prompt):
                count = groups + 1
            elif prompt is None:
                count = prompts.count(row, segment=within)
            else:
                count = prompts.count_of(prompt, row, segment=within)
            yield count, groups, k


Rule = Indicator | Chance | Quantile | Rank | BatchCut | Segments | Full


def ships_nothing(state: ThresholdState, rule: Rule) -> bool:
    """Whether a gate is closed for every batch there may be: no segment has a cut of its own that ships either."""
    own = rule.own if isinstance(rule, Segments) else ()
    return state == "closed" and all(cut.state == "closed" for _, cut in own)


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON values: ``kind``, ``parameters``, and ``curve``, which is null unless the kind has one.

    Points of a curve are ``[level, total]``; a level of null is below every score.
    """
    parameters: dict[str, Any] = {}
    curve: list[list[float | None]] | None = None
    if isinstance(rule, Chance):
        parameters = {"width": rule.width}
    elif isinstance(rule, Quantile):
        parameters = {"quantile": rule.quantile}
    elif isinstance(rule, BatchCut):
        parameters = {
            "alpha": rule.alpha,
            "groups": rule.groups,
            "labelled": rule.labelled,
            "floor": rule.floor,
        }
        curve = [
            [None if level == -math.inf else level, total]
            for level, total in zip(rule.levels, rule.totals, strict=True)
        ]
    elif isinstance(rule, Segments):
        parameters = {
            "key": rule.key,
            "own": {name: {"state": cut.state, "lambda": cut.threshold} for name, cut in rule.own},
        }
    elif isinstance(rule, Full):
        parameters = {
            "signals": rule.signals,
            "ridge": rule.ridge,
            "segment_by": rule.segment_by,
            "pooled": rule.pooled,
            "ship_above": rule.ship_above,
            "least_alike": rule.least_alike,
            "fits": [
                {
                    "groups": one.groups,
                    "bad": one.bad,
                    "allowed": one.allowed,
                    "rows": one.rows,
                    "own": {name: [size, k] for name, size, k in one.own},
                }
                for one in rule.fits
            ],
        }
    return {"kind": rule.kind, "parameters": parameters, "curve": curve}


def rule_from_json(document: Mapping[str, Any]) -> Rule:
    """Read what `rule_to_json` wrote, exactly.

    Raises `ValueError` if the document is not such an object.
    """
    try:
        kind, parameters, curve = document["kind"], document["parameters"], document.get("curve")
        if kind == "indicator":
            return Indicator()
        if kind in ("smooth", "ramp"):
            return Chance(kind, _number(parameters["width"]))
        if kind == "quantile":
            quantile = parameters["quantile"]
            return Quantile(None if quantile is None else _number(quantile))
        if kind == "rank":
            return Rank()
        if kind == "transductive":
            labelled, floor = parameters["labelled"], parameters["floor"]
            return BatchCut(
                alpha=_number(parameters["alpha"]),
                groups=_whole(parameters["groups"]),
                labelled=None if labelled is None else _whole(labelled),
                levels=tuple(-math.inf if level is None else _number(level) for level, _ in curve or ()),
                totals=tuple(_number(total) for _, total in curve or ()),
                floor=None if floor is None else _number(floor),
            )
        if kind == "segments":
            own = {
                str(name): Cut(cut["state"], None if cut["lambda"] is None else _number(cut["lambda"]))
                for name, cut in parameters["own"].items()
            }
            return Segments(str(parameters["key"]), tuple(sorted(own.items())))
        if kind == "full":
            key = parameters["segment_by"]
            return Full(
                signals=str(parameters["signals"]),
                ridge=_number(parameters["ridge"]),
                segment_by=None if key is None else str(key),
                pooled=bool(parameters["pooled"]),
                ship_above=_number(parameters["ship_above"]),
                least_alike=_whole(parameters["least_alike"]),
                fits=tuple(
                    Fitted(
                        groups=_whole(one["groups"]),
                        bad=_whole(one["bad"]),
                        allowed=_whole(one["allowed"]),
                        rows=str(one["rows"]),
                        own=tuple(
                            (str(name), _whole(size), _whole(k))
                            for name, (size, k) in sorted(one["own"].items())
                        ),
                    )
                    for one in parameters["fits"]
                ),
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not a rule of a gate: {error!r}") from None
    raise ValueError(f"a rule's kind must be one of {', '.join(RULE_KINDS)}, not {kind!r}")


def rule_text(rule: Rule) -> str:
    """Write a rule as one JSON text, floats exact."""
    return json.dumps(
        rule_to_json(rule), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def rule_of_text(text: str) -> Rule:
    """Read what `rule_text` wrote. Raises `ValueError`."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("a rule in JSON is an object")
    return rule_from_json(document)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a rule's numbers must be finite, not {value!r}")
    return float(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


@dataclass(frozen=True, slots=True)
class Needed:
    """The smallest budget with which a batch would have shipped: ``count`` / (``groups`` + 1).

    `count`: 1 and the severities of the calibration prompts that look at least as good; a whole
    number by the method `full`. `groups`: number G >= 0 of calibration prompts.
    """

    count: float
    groups: int

    @property
    def share(self) -> float:
        """The budget, above 0; 1 and more says that no budget is enough."""
        return self.count / (self.groups + 1)

    def within(self, alpha: float, *, attempts: int = 1) -> bool:
        """Whether a budget in (0, 1), which this many attempts share, is enough."""
        return Fraction(self.count) * attempts <= Fraction(repr(float(alpha))) * (self.groups + 1)


class CalibrationLosses:
    """What one frozen score says of its calibration prompts: p of a new one is (1 + the severities that score at least as high) / (G + 1).

    A gate that cuts this score where `mean` finds lambda ships iff p is at most its budget.

    `scores`, `severities`: of G prompts, in [0, 1]. `segments`: of each, where segments have cuts
    of their own; a prompt is compared with those of its segment alone. `pooled`: the segments that
    have one, where all prompts serve the others; None: nothing does.
    """

    def __init__(
        self,
        scores: Sequence[float],
        severities: Sequence[float],
        *,
        segments: Sequence[str] | None = None,
        pooled: Collection[str] | None = None,
    ) -> None:
        self._of: dict[str, CalibrationLosses] | None = None
        self._rest = self if pooled is not None or segments is None else CalibrationLosses((), ())
        if segments is not None:
            parts: dict[str, list[tuple[float, float]]] = {}
            for name, *pair in zip(segments, scores, severities, strict=True):
                parts.setdefault(name, []).append((pair[0], pair[1]))
            self._of = {
                name: CalibrationLosses(*zip(*part, strict=True))
                for name, part in parts.items()
                if pooled is None or name in pooled
            }
        pairs = sorted(zip(scores, severities, strict=True))
        self._scores = [score for score, _ in pairs]
        bad = [severity for _, severity in pairs]
        self._above = (
            [math.fsum(bad[place:]) for place in range(len(bad) + 1)] if any(bad) else [0.0] * (len(bad) + 1)
        )

    def needed(self, score: float, segment: str | None = None) -> Needed:
        """Return the budget that a new prompt with this score needs."""
        if self._of is not None:
            found = self._of.get(segment or "", self._rest)
            if found is not self:
                return found.needed(score)
        return Needed(1 + self._above[bisect_left(self._scores, score)], len(self._scores))
