"""A cheap gate and an expensive one behind it, on past answers of both: the label floor and budgets with the fewest expensive calls."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha
from streamer.calibration.loss_curve import LossCurve, budget_limit
from streamer.calibration.plan import Interval, interval
from streamer.clouds.cloud import Cloud
from streamer.errors import UsageError
from streamer.gates.rungs import later_budget
from streamer.planning.prompts import SampledBatches, past_prompts
from streamer.scoring.encoders.encoder import CachedEncoder

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

KEPT = (1.0, 0.98, 0.95, 0.9)
"""How much of the share that the expensive gate alone serves a split should keep, on the prompts that choose it."""

ROUNDS = 99
LEVEL = 0.9

SHARES = tuple(round(0.1 * tenth, 1) for tenth in range(1, 10))
"""Parts of the budget that the cheap gate may get."""

_RESAMPLES = 5
_QUANTILES = np.linspace(0.05, 0.95, 13)
_BUDGETS = (0.6, 0.8, 1.0, 1.2, 1.5)
"""Times alpha: a split is chosen on the means within these. At alpha alone, few prompts would decide."""

_LEAST_PROMPTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSplit:
    """How a budget is split: the cheap gate gets `share` of it, in (0, 1), and hands on what scores
    from `start` to `floor`, its label floor.
    """

    share: float
    floor: float
    start: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """A split, and what choosing one in this way gave on prompts that chose nothing.

    It was chosen to keep `kept`, a share of what the expensive gate alone serves, on half of the
    prompts; None: no split keeps so much. `first` and `later` are the budgets of the two gates, the
    later one's for a prompt that reaches it, with the share that is handed on counted on the other
    half; None without a split. `handed_on` and `served` are shares of prompts, `exposure` the mean
    severity shipped a prompt.
    """

    kept: float
    split: BudgetSplit | None
    first: float | None
    later: float | None
    handed_on: Interval
    served: Interval
    exposure: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRungs:
    """What asking a cheap gate first saves and costs, within the budget `alpha` on exposure risk
    over all prompts.

    `prompts` : past prompts that both gates have answers to; `left_out` could not be used.
    `cheap_served`, `dear_served` : shares served by one gate alone with the whole budget. `rungs` :
    one for each of `KEPT`. In each of `rounds` a third of the prompts chooses a split, a third
    calibrates, a third is measured; intervals hold the share `level` of the rounds.
    """

    alpha: float
    prompts: int
    left_out: int
    answers: tuple[int, int]
    cheap_served: Interval
    dear_served: Interval
    rungs: tuple[Rungs, ...]
    rounds: int = ROUNDS
    level: float = LEVEL


class _Best(NamedTuple):
    """The best answers of P prompts: scores, and severities that count 0 where the best is blank. Shape (P,)."""

    scores: Floats
    losses: Floats

    @classmethod
    def of_batches(cls, batches: SampledBatches) -> "_Best":
        scores, severities, able = batches.best()
        # What is blank never ships: no cut is below it, and nothing is lost by it.
        return cls(np.where(able, scores, -np.inf), np.where(able, severities, 0.0))

    def cuts(self, prompts: Places, budgets: Floats) -> Floats:
        """The lowest cuts with (sum of losses + 1)/(G + 1) <= budget on these prompts, one for each budget."""
        able = prompts[np.isfinite(self.scores[prompts])]
        curve = LossCurve.of(self.scores[able], self.losses[able])
        limits = np.asarray(budgets) * (len(prompts) + 1) - 1
        levels = np.append(curve.levels, -np.inf)
        return np.where(limits < 0, np.inf, levels[np.searchsorted(curve.totals, limits, side="right")])

    def cut(self, prompts: Places, alpha: float) -> float:
        """The lowest cut with (sum of losses + 1)/(G + 1) <= alpha on these prompts."""
        limit = budget_limit(alpha, len(prompts))
        if limit < 0:
            return np.inf
        able = prompts[np.isfinite(self.scores[prompts])]
        return LossCurve.of(self.scores[able], self.losses[able]).first_over(limit)

    def above(self, prompts: Places, cuts: Floats) -> NDArray[np.intp]:
        """How many of these prompts ship at each cut."""
        scores = self.scores[prompts]
        ranked = np.sort(scores[np.isfinite(scores)])
        return len(ranked) - np.searchsorted(ranked, cuts, side="right")

    def shipped(self, prompts: Places, cut: float) -> NDArray[np.bool_]:
        scores = self.scores[prompts]
        return np.asarray((scores > cut) & np.isfinite(scores))


class _Shares(NamedTuple):
    """Shares of prompts: handed on, served, and the severity shipped a prompt."""

    handed_on: float
    served: float
    exposure: float


class _Pair(NamedTuple):
    """Both gates' best answers to the same prompts."""

    cheap: _Best
    dear: _Best

    def reaching(self, prompts: Places, start: float, floor: float) -> Places:
        """Those that are handed on; what is blank was not scored, and is not."""
        scores = self.cheap.scores[prompts]
        return prompts[(scores >= start) & (scores <= floor)]

    def outcome(self, split: BudgetSplit, alpha: float, *, calibrate: Places, measure: Places) -> _Shares:
        """Calibrate both gates, and measure."""
        reaching = self.reaching(calibrate, split.start, split.floor)
        cut = max(self.cheap.cut(calibrate, split.share * alpha), split.floor)
        later = later_budget((1 - split.share) * alpha, handed_on=len(reaching), prompts=len(calibrate))
        later_cut = self.dear.cut(reaching, later)
        there = self.reaching(measure, split.start, split.floor)
        first, second = self.cheap.shipped(measure, cut), self.dear.shipped(there, later_cut)
        return _Shares(
            len(there) / len(measure),
            float(first.sum() + second.sum()) / len(measure),
            float(self.cheap.losses[measure][first].sum() + self.dear.losses[there][second].sum())
            / len(measure),
        )

    def choose(self, prompts: Places, alpha: float, rng: np.random.Generator) -> list[BudgetSplit | None]:
        """Return for each of `KEPT` the split with the fewest expensive calls that serves so much on these prompts.

        Each split is tried with thresholds of resampled prompts: those of the prompts themselves would fit the floor as no
        threshold does that is calibrated later.
        """
        budgets = alpha * np.array(_BUDGETS)
        scores = self.cheap.scores[prompts]
        levels = np.unique(np.round(np.quantile(scores[np.isfinite(scores)], _QUANTILES), 3)).clip(0, 1)
        bands = [(start, floor) for floor in levels for start in (0.0, *levels[::2]) if start < floor]
        first, later = np.outer(SHARES, budgets), np.outer(1 - np.array(SHARES), budgets)
        wanted, served = 0.0, np.zeros((len(bands), len(SHARES)))
        for _ in range(_RESAMPLES):
            drawn = rng.choice(prompts, len(prompts))
            wanted += self.dear.above(prompts, self.dear.cuts(drawn, budgets)).mean()
            cuts = self.cheap.cuts(drawn, first)
            for place, (start, floor) in enumerate(bands):
                reaching = self.reaching(drawn, start, floor)
                there = self.dear.cuts(reaching, later * (len(drawn) + 1) / (len(reaching) + 1))
                ships = self.cheap.above(prompts, np.maximum(cuts, floor)) + self.dear.above(
                    self.reaching(prompts, start, floor), there
                )
                served[place] += ships.mean(axis=1)
        by_cost = sorted(range(len(bands)), key=lambda place: len(self.reaching(prompts, *bands[place])))
        found: list[BudgetSplit | None] = []
        for place in by_cost:
            # The fewest expensive calls come first, and keep least.
            while len(found) < len(KEPT) and served[place].max() >= sorted(KEPT)[len(found)] * wanted:
                start, floor = bands[place]
                share = SHARES[int(served[place].argmax())]
                found.append(BudgetSplit(share=share, floor=float(floor), start=float(start)))
        return [*[None] * (len(KEPT) - len(found)), *reversed(found)]


def _alone(best: _Best, alpha: float, calibrate: Places, measure: Places) -> _Shares:
    """What one gate does with the whole budget."""
    ships = best.shipped(measure, best.cut(calibrate, alpha))
    return _Shares(1.0, float(ships.mean()), float(best.losses[measure][ships].sum()) / len(measure))


def paired(
    cheap: Sequence[Cloud],
    dear: Sequence[Cloud],
    *,
    encoders: tuple[CachedEncoder | None, CachedEncoder | None],
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
) -> tuple[SampledBatches, SampledBatches, int]:
    """Score both gates' answers to the prompts that both files have, matched by name.

    Of each file as many answers a prompt are taken as most of its prompts have. Returns also how
    many prompts were left out. Blocks for as long as the encoder takes. Raises `UsageError` where
    fewer than two prompts can be used.
    """
    usable: list[dict[str, Cloud]] = []
    sizes: list[int] = []
    for clouds in (cheap, dear):
        named = {cloud.question_id: cloud for cloud in clouds}
        labelled = {name: cloud for name, cloud in named.items() if None not in cloud.severities}
        counts = Counter(len(cloud.responses) for cloud in labelled.values())
        sizes.append(max(counts, key=lambda n: (counts[n], n), default=2))
        usable.append({name: one for name, one in labelled.items() if len(one.responses) >= sizes[-1]})
    both = [name for name in usable[0] if name in usable[1]]
    if len(both) < 2:
        raise UsageError(
            f"the two files have {len(both)} prompts of the same name that are answered and labelled in both; "
            "a plan needs more"
        )
    found = []
    for place, (named, size, encoder) in enumerate(zip(usable, sizes, encoders, strict=True)):
        found.append(past_prompts([named[name] for name in both], size, encoder=encoder, seed=seed))
        progress(place + 1)
    return found[0], found[1], max(len(cheap), len(dear)) - len(both)


def first_answers(clouds: Sequence[Cloud], count: int) -> list[Cloud]:
    """Return the prompts that have more answers, with their first `count` alone. Raises `UsageError` where there is none."""
    if count < 2:
        raise UsageError(f"the first rung needs at least 2 answers, not {count}: agreement needs others")
    more = [cloud for cloud in clouds if len(cloud.responses) > count]
    if not more:
        raise UsageError(f"no prompt has more than {count} answers, and the first rung alone takes {count}")
    return [replace(cloud, responses=cloud.responses[:count]) for cloud in more]


def plan_rungs(
    cheap: SampledBatches,
    dear: SampledBatches,
    *,
    alpha: float,
    left_out: int = 0,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
) -> PlannedRungs:
    """Find the splits with the fewest expensive calls, and measure what choosing them gives on
    other prompts.

    `cheap` and `dear` have answers to the same prompts, in the same order; unit `best`. `alpha` :
    budget on exposure risk over all prompts, in (0, 1). `rounds` >= 1, see `PlannedRungs`; `seed`
    >= 0 : of the thirds and halves. With the first gate's price given, fewest expensive calls is
    cheapest: the first gate is asked about every prompt. Raises `UsageError` if alpha is out of its
    range, or there are too few prompts.
    """
    try:
        alpha = check_alpha(alpha)
    except ValueError as error:
        raise UsageError(str(error)) from None
    pair = _Pair(_Best.of_batches(cheap), _Best.of_batches(dear))
    prompts = len(pair.cheap.scores)
    if prompts < _LEAST_PROMPTS:
        raise UsageError(
            f"a split is found on {_LEAST_PROMPTS} past prompts or more, and there are {prompts}"
        )
    if np.isfinite(pair.cheap.scores).sum() < prompts / 2:
        raise UsageError(
            "most prompts have no answer of the cheap gate that is not blank: nothing to plan with"
        )
    rng = np.random.default_rng(seed)
    alone: tuple[list[float], list[float]] = ([], [])
    measured: list[list[_Shares]] = [[] for _ in KEPT]
    for done in range(1, rounds + 1):
        choose, calibrate, measure = np.array_split(rng.permutation(prompts), 3)
        for one, best in zip(alone, pair, strict=True):
            one.append(_alone(best, alpha, calibrate, measure).served)
        for outcomes, split in zip(measured, pair.choose(choose, alpha, rng), strict=True):
            outcomes.append(
                _alone(pair.dear, alpha, calibrate, measure)
                if split is None
                else pair.outcome(split, alpha, calibrate=calibrate, measure=measure)
            )
        progress(done)
    choosing, counting = np.array_split(rng.permutation(prompts), 2)
    rungs = []
    for kept, split, outcomes in zip(KEPT, pair.choose(choosing, alpha, rng), measured, strict=True):
        handed_on, served, exposure = (interval(np.array(one), LEVEL) for one in zip(*outcomes, strict=True))
        later = None
        if split is not None:
            later = later_budget(
                (1 - split.share) * alpha,
                handed_on=len(pair.reaching(counting, split.start, split.floor)),
                prompts=len(counting),
            )
        rungs.append(
            Rungs(
                kept=kept,
                split=split,
                first=None if split is None else split.share * alpha,
                later=later,
                handed_on=handed_on,
                served=served,
                exposure=exposure,
            )
        )
    return PlannedRungs(
        alpha=alpha,
        prompts=prompts,
        left_out=left_out,
        answers=(cheap.scores.shape[1], dear.scores.shape[1]),
        cheap_served=interval(np.array(alone[0]), LEVEL),
        dear_served=interval(np.array(alone[1]), LEVEL),
        rungs=tuple(rungs),
        rounds=rounds,
    )
