"""A threshold for the claims of an answer: what scores above it ships, the rest is left out.

A prompt is one group however many claims its answer has, and how they depend on one another plays
no part. With C(l) the claims of a group that score above l, its loss L(l) is 0 where C(l) is empty,
never rises with l, and lies in [0, 1]. The rule, over G groups:

    lambda = min { l in {-inf} u {scores} u {+inf} : sum of L_i(l) <= alpha (G + 1) - 1 }

For exchangeable groups the loss of a fresh one at lambda is at most alpha on average. Proof: let l*
be the smallest l at which the sum over all G + 1 groups is at most alpha (G + 1). It is attained,
since each L_i is a step function continuous from the right, and no order of the groups matters to
it. As the loss of the fresh group is at most 1, what satisfies the rule satisfies this too: l* <=
lambda, so that its loss at lambda is at most its loss at l*, which on average is the mean over the
G + 1, at most alpha.

The bounds with high probability and the weights by age hold of any loss in [0, 1] that falls with the
level: they read its steps (`ClaimLoss.steps`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.arguments import check_alpha
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import budget, counted, what_ships
from streamer.calibration.loss_curve import LossCurve
from streamer.calibration.registry import every
from streamer.calibration.specification import Calibrator, Sample
from streamer.calibration.threshold import Threshold

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]
Counts = NDArray[np.intp]

_MEAN = Mean()
MOST_CLAIMS = 64
"""Claims of an answer; one with more is held."""


@dataclass(frozen=True, slots=True)
class ClaimLoss:
    """What a prompt loses by the claims that ship.

    `name`: as it is written: ``any``, ``share``, ``mass:2``, ``wrong-among``. `promise`: what is at
    most alpha on average, in words. `of`: from the highest severity of the claims that ship, the
    sum of their severities, their number, at least 1, and that of all claims of the answer, arrays
    alike: the loss of each, in [0, 1]. `highest`: of a prompt the highest loss counts at a
    threshold or any above, as `of` may fall.
    """

    name: str
    promise: str
    of: Callable[[Floats, Floats, Counts, Counts], Floats]
    highest: bool = False

    def curve(self, group: LabelledGroup, *, least_kept: float = 0.0) -> LossCurve:
        """Return L of one group, by its distinct scores; claims of equal score ship together.

        `least_kept` : the share of an answer's claims that must be left, or none ships.
        """
        order = np.argsort(-group.scores, kind="stable")
        scores = group.scores[order]
        counts = np.flatnonzero(np.append(scores[1:] != scores[:-1], True)) + 1
        severities = group.severities[order]
        worst, totals = np.maximum.accumulate(severities), severities.cumsum()
        losses = self.of(worst[counts - 1], totals[counts - 1], counts, np.full(len(counts), len(scores)))
        if self.highest:
            losses = np.maximum.accumulate(losses)
        losses = np.where(counts >= least_kept * len(scores), losses, 0.0)
        return LossCurve(scores[counts - 1] + 0.0, losses)

    def steps(self, group: LabelledGroup, *, least_kept: float = 0.0) -> LabelledGroup:
        """Return one group as calibrators read it: an item a score, and what L rises by there."""
        curve = self.curve(group, least_kept=least_kept)
        rises = np.diff(curve.totals, prepend=0.0)
        names = tuple(map(str, range(len(rises))))
        return LabelledGroup(group.id, names, curve.levels, rises, summed=True)

    def at(self, severities: Floats, ships: Masks) -> float:
        """Return the loss where these claims ship: L, but for the maximum of ``wrong-among``."""
        return float(self.of_each(severities, ships, np.zeros(1, dtype=np.intp))[0])

    def of_each(self, severities: Floats, ships: Masks, starts: Counts) -> Floats:
        """Return `at` of many prompts, shape (n,), whose claims stand one prompt after the other.

        `starts` : the place of each prompt's first claim; every prompt has one.
        """
        kept, own = np.add.reduceat(ships, starts, dtype=np.intp), np.where(ships, severities, 0.0)
        sizes = np.diff(starts, append=len(ships))
        sums = np.maximum.reduceat(own, starts), np.add.reduceat(own, starts)
        losses: Floats = np.where(kept > 0, self.of(*sums, np.maximum(1, kept), sizes), 0.0)
        return losses


_PLAIN = {
    one.name: one
    for one in (
        ClaimLoss(
            "any",
            "the share of prompts that get a wrong claim",
            lambda worst, _total, _kept, _size: worst,
        ),
        ClaimLoss(
            "share",
            "the share of an answer's claims that are wrong and ship",
            lambda _worst, total, _kept, size: total / size,
        ),
        ClaimLoss(
            "wrong-among",
            "the share of wrong claims in what a prompt gets",
            lambda _worst, total, kept, _size: total / kept,
            highest=True,
        ),
    )
}
LOSSES = ("any", "share", "mass:C", "wrong-among")
"""How losses are written; ``any`` is the default."""


def claim_loss(name: str) -> ClaimLoss:
    """Return a loss by its name. Raises `ValueError` for any other text.

    Of half-wrong claims (severity .5) ``any`` counts the worst, the others their sum.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    kind, _, written = name.partition(":")
    try:
        most = float(written) if kind == "mass" else math.nan
    except ValueError:
        most = math.nan
    if not 0 < most < math.inf:
        known = ", ".join(LOSSES)
        raise ValueError(f"a loss is one of {known}, with C a number above 0, not {name!r}")
    return ClaimLoss(
        f"mass:{most:g}",
        f"the number of wrong claims that a prompt gets, capped at {most:g} and divided by that,",
        lambda _worst, total, _kept, _size: np.minimum(1.0, total / most),
    )


def calibrate_claims(
    groups: Sequence[LabelledGroup],
    *,
    alpha: float,
    loss: str = "any",
    least_kept: float = 0.0,
    by: Calibrator = _MEAN,
    seed: int = 0,
) -> Threshold:
    """Find the smallest threshold for claims that keeps a loss inside its budget.

    Parameters
    ----------
    groups : a prompt each, unique by id, its items all claims of the answer that was chosen without
        looking at labels: scores, shape (K,), in [0, 1], and severities, shape (K,), 1 for a claim
        that nobody labelled. A prompt without claims is no group: it is held, which is known
        without labels, and the promise is about the others.
    alpha : the budget, in (0, 1); at least 1/(G + 1), or else nothing ships.
    loss : ``any``, ``share``, ``mass:C`` or ``wrong-among``.
    least_kept : the share of an answer's claims, in [0, 1], that must score above the threshold;
        where fewer do, none ships.
    by : a calibrator with `by_sum`; the groups are in order of decision where it goes by that.
    seed : any whole number, fixed before labels are read; most calibrators read none.

    Raises
    ------
    ValueError
        If a group id repeats or an argument is not as described.

    Examples
    --------
    >>> groups = [
    ...     LabelledGroup(f"p{i}", ("a", "b"), np.array([0.9, i / 10]), np.array([0.0, 1.0]))
    ...     for i in range(5)
    ... ]
    >>> calibrate_claims(groups, alpha=0.4).value
    0.3
    """
    alpha, least_kept = check_alpha(alpha), check_least_kept(least_kept)
    kind = claim_loss(loss)
    steps = [kind.steps(group, least_kept=least_kept) for group in groups]
    sample = Sample(groups=steps, alpha=alpha, seed=seed)
    found = by_steps(by).calibrate(sample).threshold
    return replace(found, guarantee=_guarantee(found, kind, by, sample))


def by_steps(by: Calibrator) -> Calibrator:
    """Return a calibrator that reads losses of claims. Raises `ValueError` for any other."""
    if not by.by_sum:
        known = ", ".join(name for name, one in every().items() if one.by_sum)
        raise ValueError(f"method must be one of {known} with the unit claim, not {by.name!r}")
    return by


def check_least_kept(share: float) -> float:
    """Return a share in [0, 1]. Raises `ValueError` for any other number."""
    if not 0 <= share <= 1:
        raise ValueError(f"least_kept must be from 0 to 1, not {share!r}")
    return float(share)


def shipped_claims(scores: Floats, threshold: float, *, least_kept: float = 0.0) -> Masks:
    """Mark the claims of an answer that ship, shape (K,): those above the threshold, or none."""
    ships: Masks = scores > threshold
    return ships if ships.sum() >= least_kept * len(scores) else np.zeros_like(ships)


def first_wrong(labelled: Iterable[tuple[float, float | None]]) -> float:
    """Return the highest score of an answer's wrong claims (severity 1), -inf where there is none.

    By the loss ``any`` no label of a claim that scores no more changes what the answer loses.

    `labelled` : the score and the severity, if known, of each claim.
    """
    return max((score for score, severity in labelled if severity == 1), default=-math.inf)


def labels_needed(group: LabelledGroup, loss: ClaimLoss) -> int:
    """Count the labels if a person begins at the highest score and stops where the loss is 1.

    What scores less cannot change it: for ``any`` that is behind the first wrong claim.
    """
    curve = loss.curve(group)
    reached = np.flatnonzero(curve.totals >= 1.0)
    least = curve.levels[reached[0]] if len(reached) else 0.0
    return int((group.scores >= least).sum())


def _guarantee(found: Threshold, loss: ClaimLoss, by: Calibrator, sample: Sample) -> str:
    basis = f"loss {loss.name} on {counted(found.groups, 'prompt')}, each counting once"
    if found.state == "closed" and found.groups < (needed := by.groups_needed(found.alpha)):
        return (
            f"Nothing ships. Basis: {basis}. A budget of {budget(found.alpha)} needs at least "
            f"{needed} prompts with labelled claims."
        )
    ships = what_ships(found.state)
    if found.state == "closed":
        ships = f"Nothing ships: {by.why_closed(sample) or 'no score is safe enough'}."
    population = "exchangeable with these"
    other = "a bound with high probability for this calibration"
    if by.family == "with high probability":
        population = "drawn from one population with these, all independently"
        other = "a joint bound over several calibrations"
    method = "the method" + (" with its parameters" if by.parameters() else "")
    method += ", the seed" if by.seeded else ""
    return (
        f"{ships} {by.promised(loss.promise, found.alpha)}; a prompt that gets nothing counts 0. "
        f"Basis: {basis}. Assumptions: future prompts are {population}; how an answer is cut into "
        f"claims, the score, the choice of the answer, the loss, {method} and the budget were "
        "fixed before any label was read; each claim was labelled as it reads in the whole answer, "
        f"and ships as it stands. Not promised: {other}, or for one prompt or kind of prompt."
    )
