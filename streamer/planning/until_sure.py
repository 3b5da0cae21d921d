"""Where to stop sampling, found on past answers: the fewest answers a prompt that keep so much of the share served."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha
from streamer.calibration.loss_curve import LossCurve, budget_limit
from streamer.calibration.prediction import Interval, interval
from streamer.errors import UsageError
from streamer.planning.prompts import SampledBatches
from streamer.scoring.steps import Steps

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

KEPT = (1.0, 0.98, 0.95, 0.9)
"""How much of the share served with all answers a rule is to keep, in the halves that it is chosen on."""

ORDERS = 5
"""Orders in which each prompt's answers are thought to come: a rule must not hang on one."""

HALVINGS = 99
LEVEL = 0.9

_BUDGETS = (0.6, 0.8, 1.0, 1.2, 1.5)
"""Times alpha: a rule is chosen on the mean share served within these. At alpha alone, few prompts would decide."""

_QUANTILES = np.linspace(0.05, 0.95, 19)
_LEAST_PROMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """A rule, and what choosing one in this way gave on prompts that the choice had not seen.

    Attributes
    ----------
    kept : what it was chosen to keep, a share of the share served with all answers.
    rule : the one to set, chosen on all prompts; one size alone where nothing else keeps so much.
    answers : sampled a prompt, on average.
    served : share of prompts served.
    fixed, fixed_served : the number of answers nearest to the mean of `answers`, and the share served if each prompt gets so
        many.
    """

    kept: float
    rule: Steps
    answers: Interval
    served: Interval
    fixed: int
    fixed_served: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilSure:
    """What stopping early saves and costs.

    Attributes
    ----------
    alpha : the budget on exposure risk.
    prompts : past prompts that were used.
    sizes : where sampling may stop.
    all_served : share of prompts served with as many answers as the last size.
    rules : one for each of `KEPT`.
    halvings, level : in each halving of the prompts one half chooses the rule, and the other calibrates and is measured;
        intervals hold this share of them.
    """

    alpha: float
    prompts: int
    sizes: tuple[int, ...]
    all_served: Interval
    rules: tuple[Stopping, ...]
    halvings: int = HALVINGS
    level: float = LEVEL


class _Bests(NamedTuple):
    """The answer that a gate would select: its score, its severity, and whether it can ship. Shape (P, `ORDERS`)."""

    scores: Floats
    severities: Floats
    shippable: Booleans

    @classmethod
    def of_batches(cls, orders: Sequence[SampledBatches]) -> "_Bests":
        columns = zip(*(one.best() for one in orders), strict=True)
        scores, severities, shippable = (np.stack(column, axis=1) for column in columns)
        return cls(np.where(shippable, scores, 0.0), severities, shippable)

    def share_served(self, prompts: NDArray[np.intp], *budgets: float) -> float:
        """Share of the prompts above the cut that they calibrate: the lowest with (sum of losses + 1) / (P + 1) <= alpha.

        Of several budgets the mean.
        """
        scores, severities = self.scores[prompts].ravel(), self.severities[prompts].ravel()
        shippable = self.shippable[prompts].ravel()
        curve = LossCurve.of(scores, np.where(shippable, severities, 0.0))
        able = np.sort(scores[shippable])
        served = 0
        for alpha in budgets:
            limit = budget_limit(alpha, len(prompts))
            if limit >= 0:
                cut = curve.first_over(limit * len(scores) / len(prompts))
                served += len(able) - int(np.searchsorted(able, cut, side="right"))
        return served / (len(scores) * len(budgets))


class _Followed(NamedTuple):
    """What following a rule comes to: numbers of answers, shape (P, `ORDERS`), and the best ones."""

    rule: Steps
    answers: Floats
    bests: _Bests


def plan_until_sure(
    orders: Sequence[Mapping[int, SampledBatches]],
    sizes: Sequence[int],
    *,
    alpha: float,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
) -> UntilSure:
    """Find what to stop for: of all rules that keep enough of the share served the one that asks for the fewest answers.

    Parameters
    ----------
    orders : of each prompt's answers, all of the same prompts: the prompts with n answers each, by n, a smaller sample part of
        each larger one. With all sizes from 2 to the last of `sizes` the comparison with a fixed number is exact.
    sizes : where sampling may stop, rising, at least two; at the last one it does.
    alpha : budget on exposure risk, in (0, 1).
    seed : of the halvings, >= 0.
    progress : called with the number of halvings done.

    Raises
    ------
    UsageError
        If a number is out of its range, or there are too few prompts.
    """
    try:
        alpha = check_alpha(alpha)
        Steps(sizes=tuple(sizes), above=1.0)
    except ValueError as error:
        raise UsageError(str(error)) from None
    bests = {size: _Bests.of_batches([order[size] for order in orders]) for size in orders[0]}
    prompts = len(bests[sizes[-1]].scores)
    if prompts < _LEAST_PROMPTS:
        raise UsageError(f"a rule is found on {_LEAST_PROMPTS} past prompts or more, and there are {prompts}")
    tried = _tried([bests[size] for size in sizes], tuple(sizes))
    rng = np.random.default_rng(seed)
    measured, chosen = [], []
    for done in range(1, HALVINGS + 1):
        order = rng.permutation(prompts)
        measured.append(order[prompts // 2 :])
        chosen.append(_choose(tried, order[: prompts // 2], alpha))
        progress(done)

    def served(size: int) -> Interval:
        return interval(np.array([bests[size].share_served(half, alpha) for half in measured]), LEVEL)

    rules = []
    for place, (kept, final) in enumerate(zip(KEPT, _choose(tried, np.arange(prompts), alpha), strict=True)):
        halves = [(one[place], half) for one, half in zip(chosen, measured, strict=True)]
        answers = interval(np.array([float(one.answers[half].mean()) for one, half in halves]), LEVEL)
        fixed = min(bests, key=lambda size: (abs(size - answers.mean), size))
        rules.append(
            Stopping(
                kept=kept,
                rule=final.rule,
                answers=answers,
                served=interval(
                    np.array([one.bests.share_served(half, alpha) for one, half in halves]), LEVEL
                ),
                fixed=fixed,
                fixed_served=served(fixed),
            )
        )
    return UntilSure(
        alpha=alpha, prompts=prompts, sizes=tuple(sizes), all_served=served(sizes[-1]), rules=tuple(rules)
    )


def _tried(bests: list[_Bests], sizes: tuple[int, ...]) -> list[_Followed]:
    """Follow each rule that is tried; the last one never stops early."""
    every = _Bests(
        np.stack([one.scores for one in bests], axis=-1),
        np.stack([one.severities for one in bests], axis=-1),
        np.stack([one.shippable for one in bests], axis=-1),
    )
    looked_at = every.scores[..., :-1]
    levels = [float(one) for one in np.unique(np.round(np.quantile(looked_at, _QUANTILES), 3))]
    highs = [None, *(one for one in levels if 0 < one <= 1)]
    lows = [None, *(one for one in levels if 0 <= one < 1)]
    rules = [
        Steps(sizes=sizes, above=high, below=low)
        for high in highs
        for low in lows
        if (high is not None or low is not None) and (high is None or low is None or low < high)
    ]
    return [_follow(rule, every, sizes) for rule in (*rules, Steps(sizes=sizes[-1:]))]


def _follow(rule: Steps, every: _Bests, sizes: tuple[int, ...]) -> _Followed:
    """Stop each prompt's sampling where the rule does; `every` has the sizes on its last axis."""
    stops = np.zeros(every.scores.shape, dtype=np.bool_)
    if rule.above is not None:
        stops |= every.scores >= rule.above
    if rule.below is not None:
        stops |= every.scores <= rule.below
    stops[..., -1] = True
    place = stops.argmax(axis=-1)

    def there(each: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(each, place[..., np.newaxis], axis=-1)[..., 0]

    answers = np.array(sizes, dtype=np.float64)[place]
    return _Followed(
        rule, answers, _Bests(there(every.scores), there(every.severities), there(every.shippable))
    )


def _choose(tried: list[_Followed], prompts: NDArray[np.intp], alpha: float) -> tuple[_Followed, ...]:
    """Return for each of `KEPT` the rule with the fewest answers that keeps so much on these prompts."""
    *stopping, everything = tried
    budgets = [min(1.0, alpha * factor) for factor in _BUDGETS]
    wanted = everything.bests.share_served(prompts, *budgets)
    found: list[_Followed] = []
    left = sorted(KEPT)  # the fewest answers come first, and keep least
    for one in sorted(stopping, key=lambda one: float(one.answers[prompts].mean())):
        if len(found) == len(left):
            break
        share = one.bests.share_served(prompts, *budgets)
        while len(found) < len(left) and share >= left[len(found)] * wanted:
            found.append(one)
    return (*[everything] * (len(left) - len(found)), *reversed(found))
