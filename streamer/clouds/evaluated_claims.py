"""What a gate of claims ships of prompts that did not calibrate it, beside one of whole answers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.claims import (
    ClaimLoss,
    by_steps,
    check_least_kept,
    claim_loss,
    first_wrong,
    labels_needed,
)
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import counted
from streamer.calibration.registry import calibrator
from streamer.calibration.specification import Calibrator, Number, Sample
from streamer.clouds.claims import WHY_HELD, ClaimedPrompt, RestsOn, check_answered, claimed_prompt
from streamer.clouds.cloud import Cloud
from streamer.clouds.halves import HalvesSplit, seeded_splits
from streamer.clouds.sentence import graded, percent
from streamer.clouds.spreads import Spread, spread
from streamer.clouds.unlabelled import check_unlabelled
from streamer.errors import UsageError
from streamer.scoring.registry import SUPPORT, claim_scorer

Floats = NDArray[np.float64]

CLAIM = "claim"
"""The unit, as it is asked for."""
CLAIM_BUDGETS = (0.05, 0.10, 0.20)
ALL_LOSSES = ("any", "share", "mass:3", "wrong-among")
"""What is compared unless somebody names losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """What was asked: budgets in (0, 1), losses (`streamer.calibration.claims.claim_loss`), and
    which answer of a prompt is cut into claims (`streamer.clouds.claims.claimed_prompt`).

    `calibrate` is the share of the prompts that calibrates, in (0, 1); the others are measured, in
    `splits` seeded splits, of which `seed` is the first; by a method that goes by age once, in
    order. `least_kept` is the share of an answer's claims that must be left, in [0, 1]. A claim
    without a severity counts as 1 (`worst`), its prompt is left out (`drop`), or it is refused
    (`fail`). `parameters` are those of the calibrator that are not its defaults.
    """

    alphas: tuple[float, ...] = CLAIM_BUDGETS
    losses: tuple[str, ...] = ALL_LOSSES
    answer: str = "first"
    calibrate: float = 0.5
    least_kept: float = 0.0
    rests_on: RestsOn = "named"
    scorer: str = SUPPORT
    splits: int = 50
    seed: int = 0
    unlabelled: str = "worst"
    method: str = Mean.name
    parameters: tuple[tuple[str, Number], ...] = ()

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator. Raises `ValueError` for one that reads no losses of claims."""
        return by_steps(calibrator(self.method, dict(self.parameters)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One loss at one budget, on prompts that did not calibrate.

    `risk` is the mean loss of a prompt, which the promise bounds; `something` the share of prompts
    that get at least one claim; `kept` the share of an answer's claims that ships, the mean over
    prompts; `wrong` the mean severity of the claims that ship. `whole`, `whole_wrong` : the same
    loss and budget with whole answers, by their weakest claims: the share of prompts that get one,
    and of those whose answer has a claim of severity .5 or more. Below `prompts` labelled prompts
    nothing can ship. `labels` : of the claims that calibrated, as many as a person labels who
    begins at the highest score of a prompt and stops where the loss is 1.
    """

    loss: str
    alpha: float
    risk: Spread
    something: Spread
    kept: Spread
    wrong: Spread
    whole: Spread
    whole_wrong: Spread
    prompts: int
    labels: Spread


def _mean(name: str) -> Callable[[ClaimRow], str | None]:
    def cell(row: ClaimRow) -> str | None:
        mean: float | None = getattr(row, name).mean
        return None if mean is None else f"{mean:.3f}"

    return cell


COLUMNS: Mapping[str, Callable[[ClaimRow], str | None]] = {
    "loss": lambda row: row.loss,
    "alpha": lambda row: f"{row.alpha:g}",
    "loss measured": _mean("risk"),
    "prompts with something": _mean("something"),
    "kept of an answer": _mean("kept"),
    "wrong among shipped": _mean("wrong"),
    "whole answers": _mean("whole"),
    "of them with an error": _mean("whole_wrong"),
    "labels": lambda row: f"{row.labels.mean:.0f}",
}
"""A row as people read it, by column; None: nothing of it shipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """Everything about the claims of one file: of `prompts` and `claims` that were evaluated.

    `wrong` is the mean severity of the claims. `in_order`: the oldest prompts calibrate, once, as the
    method goes by age; else random ones, split by split. `held` : prompts that are held whatever the
    threshold, by a key of `WHY_HELD`. `unlabelled` : claims without a severity; `needless` : others
    without one, of which the loss needs none: they score no more than a wrong one. `graded` : how
    figures are to be read where severities lie between 0 and 1; empty where none does.
    """

    name: str
    answer: str
    scorer: str
    prompts: int
    claims: int
    wrong: float
    calibrating: int
    in_order: bool
    held: dict[str, int]
    unlabelled: int
    needless: int
    graded: str
    rows: tuple[ClaimRow, ...]

    @property
    def counted(self) -> str:
        """How much there is."""
        how = f"{self.calibrating} prompts calibrate, drawn at random, the others are measured"
        if self.in_order:
            how = f"the oldest {self.calibrating} prompts calibrate, the newer ones are measured"
        return f"{self.claims} claims of {self.prompts} prompts, {percent(self.wrong)} wrong; {how}"

    @property
    def notes(self) -> list[str]:
        """What a reader has to know, in sentences."""
        said = [
            f"{counted(count, 'prompt')} held whatever the threshold: {WHY_HELD[why]}."
            for why, count in self.held.items()
        ]
        if self.unlabelled:
            said.append(f"{self.unlabelled} claims have no severity.")
        if self.needless:
            said.append(
                f"{self.needless} claims have no severity and need none: one that scores as much is "
                "wrong. Among what ships they count as wrong, so that it is no worse than is said."
            )
        return [*said, self.graded] if self.graded else said


def check_claim_options(options: ClaimOptions) -> None:
    """Raise `UsageError` for options that are not as described."""
    for alpha in options.alphas:
        if not 0 < alpha < 1:
            raise UsageError(f"a budget must be between 0 and 1, both excluded, not {alpha:g}")
    if not 0 < options.calibrate < 1:
        raise UsageError("the share that calibrates must be between 0 and 1, both excluded")
    check_unlabelled(options.unlabelled)
    try:
        check_least_kept(options.least_kept)
        _ = options.calibrator
        for name in options.losses:
            claim_loss(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def has_claims(clouds: Sequence[Cloud]) -> bool:
    """Report whether any answer brings claims."""
    return any(one.claims is not None for cloud in clouds for one in cloud.responses)


def evaluate_claims(name: str, clouds: Sequence[Cloud], options: ClaimOptions) -> ClaimResult:
    """Calibrate and measure, again and again.

    Raises `UsageError` when an option is not as described, no prompt has the answer that was asked
    for, or fewer than two have claims with severities.
    """
    return evaluate_prompts(name, _prompts(clouds, options), options)


def evaluate_prompts(name: str, every: Sequence[ClaimedPrompt], options: ClaimOptions) -> ClaimResult:
    """Do the same with prompts whose claims have their scores."""
    check_claim_options(options)
    check_answered(every, options.answer, name)
    if not options.calibrator.by_order:
        every = sorted(every, key=lambda one: one.cloud.batch_id)
    every = [one for one in every if one.answer is not None]
    waiting = [_missing(one, options.losses) for one in every]
    missing = sum(waiting)
    if missing and options.unlabelled == "fail":
        raise UsageError(f"{name}: {missing} claims have no severity, and none may be missing")
    ready = [
        one
        for one, waits in zip(every, waiting, strict=True)
        if one.group is not None and not (waits and options.unlabelled == "drop")
    ]
    groups = [one.group for one in ready if one.group is not None]
    claims = sum(len(group.item_ids) for group in groups)
    labelled = sum(one.severity is not None for prompt in ready for one in prompt.claims)
    held = dict(Counter(one.held for one in every if one.held))
    if len(groups) < 2 or not labelled:
        why = "".join(f"; {counted(count, 'prompt')} held: {WHY_HELD[one]}" for one, count in held.items())
        raise UsageError(
            f"{name}: {counted(len(groups) if labelled else 0, 'prompt')} with claims that have severities in the "
            f"answer that was asked for ({options.answer}), and two are needed; give claims a label in [0, 1]{why}"
        )
    splits = seeded_splits(
        [one.cloud for one in ready],
        range(options.seed, options.seed + options.splits),
        Fraction(str(options.calibrate)),
        in_order=options.calibrator.by_order,
    )
    if not splits[0].first:
        raise UsageError(f"{name}: no prompt calibrates; raise the share that does")
    losses = map(claim_loss, options.losses)
    return ClaimResult(
        name=name,
        answer=options.answer,
        scorer=options.scorer,
        prompts=len(groups),
        claims=claims,
        wrong=float(np.concatenate([one.severities for one in groups]).mean()),
        calibrating=len(splits[0].first),
        in_order=options.calibrator.by_order,
        held=held,
        unlabelled=missing,
        needless=sum(one.severity is None for prompt in every for one in prompt.claims) - missing,
        graded=graded(one.severity for prompt in ready for one in prompt.claims),
        rows=tuple(row for loss in losses for row in _rows(groups, splits, loss, options)),
    )


def planned_claims(
    name: str, clouds: Sequence[Cloud], options: ClaimOptions, *, labels: int | None = None
) -> list[ClaimResult]:
    """Evaluate ever more calibrating prompts, from the fewest that can ship to half of them.

    `labels` : of claims that can be afforded: as many prompts as they are enough for are tried too.
    Raises `UsageError` as `evaluate_claims` does, and when there are too few prompts for the first
    budget.
    """
    every = _prompts(clouds, options)
    half = evaluate_prompts(name, every, replace(options, calibrate=0.5))
    least, most = half.rows[0].prompts, half.calibrating
    if least > most:
        raise UsageError(
            f"{name}: a budget of {options.alphas[0]:g} needs {least} labelled prompts, and half "
            f"of the {half.prompts} here are {most}: label more, or name a larger budget"
        )
    sizes = {least << doubled for doubled in range((most // least).bit_length())}
    if labels is not None:
        afforded = int(labels * most / (half.rows[0].labels.mean or 1))
        sizes |= {min(max(1, afforded), most)}
    shares = [(size + 0.5) / half.prompts for size in sorted(sizes - {most})]
    return [
        *(evaluate_prompts(name, every, replace(options, calibrate=share)) for share in shares),
        half,
    ]


def claims_sentence(rows: Sequence[ClaimRow]) -> str:
    """Say what ships at the largest budget up to 10 %, or else the smallest."""
    first = [row for row in rows if row.loss == rows[0].loss]
    small = [row for row in first if row.alpha <= 0.1]
    row = max(small, key=lambda one: one.alpha) if small else first[0]
    budget = f"at a budget of {percent(row.alpha)} ({row.loss})"
    if not row.something.mean:
        return f"{budget} nothing ships; at least {row.prompts} labelled prompts are needed"
    kept, wrong, whole = row.kept.mean, row.wrong.mean, row.whole.mean
    error = f", {percent(row.whole_wrong.mean)} of them with an error" if whole else ""
    return (
        f"{budget} {percent(row.something.mean)} of prompts get something, {percent(kept)} of an "
        f"answer on average, with {percent(wrong)} of it wrong; whole answers would reach "
        f"{percent(whole)} of prompts{error}"
    )


def _prompts(clouds: Sequence[Cloud], options: ClaimOptions) -> list[ClaimedPrompt]:
    how: Any = {"rests_on": options.rests_on, "scorer": claim_scorer(options.scorer)}
    return [claimed_prompt(cloud, options.answer, **how) for cloud in clouds]


def _missing(prompt: ClaimedPrompt, losses: Sequence[str]) -> int:
    """Count the claims without a severity that one of the losses needs."""
    given = [one.severity for one in prompt.claims]
    if prompt.group is None or tuple(losses) != ("any",):
        return given.count(None)
    known = list(zip(prompt.group.scores.tolist(), given, strict=True))
    enough = first_wrong(known)
    return sum(severity is None and score > enough for score, severity in known)


def _rows(
    groups: Sequence[LabelledGroup],
    splits: Sequence[HalvesSplit],
    loss: ClaimLoss,
    options: ClaimOptions,
) -> list[ClaimRow]:
    parts, whole = (
        _Measured(groups, loss, options.least_kept),
        _Measured(list(map(_as_one, groups)), loss, 0.0),
    )
    labels, by = np.array([labels_needed(group, loss) for group in groups]), options.calibrator
    found = []
    for alpha in options.alphas:
        rows = []
        for split in splits:
            cuts = [one.cut(split, alpha, by) for one in (parts, whole)]
            own, other = parts.at(cuts[0])[:, split.second], whole.at(cuts[1])[:, split.second]
            risk, something, kept, counts, wrong, _ = own
            rows.append((
                risk.mean(), something.mean(), kept.mean(), _ratio(wrong, counts),
                other[1].mean(), _ratio(other[5], other[1]), labels[list(split.first)].sum(),
            ))  # fmt: skip
        spreads = [
            spread(values, test=len(splits[0].second), calibration=len(splits[0].first))
            for values in np.array(rows, dtype=np.float64).T
        ]
        figures = ("risk", "something", "kept", "wrong", "whole", "whole_wrong", "labels")
        named = dict(zip(figures, spreads, strict=True))
        found.append(ClaimRow(loss=loss.name, alpha=alpha, prompts=by.groups_needed(alpha), **named))
    return found


def _ratio(part: Floats, whole: Floats) -> float:
    return float(part.sum() / whole.sum()) if whole.any() else np.nan


class _Measured:
    """What each prompt gets at each threshold that was met."""

    def __init__(self, groups: Sequence[LabelledGroup], loss: ClaimLoss, least_kept: float) -> None:
        self._loss, self._least = loss, least_kept
        self._steps = [loss.steps(group, least_kept=least_kept) for group in groups]
        self._known: dict[float, Floats] = {}
        self._scores, self._severities = (
            np.concatenate(some)
            for some in ([one.scores for one in groups], [one.severities for one in groups])
        )
        self._sizes = np.array([len(one.scores) for one in groups])
        self._starts = np.cumsum(self._sizes) - self._sizes

    def cut(self, split: HalvesSplit, alpha: float, by: Calibrator) -> float:
        """Calibrate on the first part of a split."""
        some = [self._steps[place] for place in sorted(split.first)]
        return by.calibrate(Sample(groups=some, alpha=alpha, seed=split.seed)).threshold.value

    def at(self, threshold: float) -> Floats:
        """Shape (6, prompts): loss, ships, share kept, claims shipped, their severity, wrong."""
        if threshold not in self._known:
            self._known[threshold] = self._at(threshold)
        return self._known[threshold]

    def _at(self, threshold: float) -> Floats:
        starts, ships = self._starts, self._scores > threshold
        enough = np.add.reduceat(ships, starts, dtype=np.intp) >= self._least * self._sizes
        ships &= np.repeat(enough, self._sizes)
        counts, own = np.add.reduceat(ships, starts, dtype=np.intp), np.where(ships, self._severities, 0.0)
        return np.array([
            self._loss.of_each(self._severities, ships, starts), counts > 0, counts / self._sizes,
            counts, np.add.reduceat(own, starts), np.maximum.reduceat(own, starts) >= 0.5,
        ])  # fmt: skip


def _as_one(group: LabelledGroup) -> LabelledGroup:
    """A group whose claims ship together, by the weakest."""
    return LabelledGroup(
        group.id, group.item_ids, np.full(len(group.scores), group.scores.min()), group.severities
    )
