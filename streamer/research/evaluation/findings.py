"""What an evaluation means, in sentences that follow from its figures and from nothing else."""

import math
from dataclasses import dataclass

from streamer.calibration import groups_needed
from streamer.calibration.guarantee import budget
from streamer.clouds.compared_methods import FULL
from streamer.clouds.sentence import UNIT_WORDS, percent, served_sentence
from streamer.clouds.spreads import Spread, chance_bound
from streamer.gates.declared import Unit
from streamer.research.evaluation.measures import JUDGE, MODES
from streamer.research.evaluation.results import DataSetResult, Evaluation, GateRow, ScorerRow
from streamer.research.evaluation.tables import promised_rows
from streamer.research.evaluation.words import UNITS, headline_alpha, scorer_title
from streamer.scoring.registry import GRAM

_WRONG_WAY = "No, it points the wrong way"


@dataclass(frozen=True, slots=True)
class Headline:
    """One data set at one budget: what a gate would do, in figures for a card and in a sentence."""

    name: str
    served: str
    ships: str
    """What the share served means."""
    wrong: str
    through: str
    """What the error rate among shipped means."""
    sentence: str
    good: str
    """Whether the score is any good, in a word or two."""
    score: str
    """The same with its figures, and whether another score ships clearly more."""


def headline(evaluation: Evaluation, result: DataSetResult) -> Headline:
    """Say what the product's default does at the headline budget, beside a cut of Gram energy where that is another method."""
    alpha = headline_alpha(evaluation.options.alphas)
    unit = headline_unit(result)
    many = UNIT_WORDS[unit][1]
    row = result.default_row(unit, alpha)
    shipped = row.shipped_severity.mean
    served, ship_rate = percent(row.ship_rate.mean), row.ship_rate.mean or 0.0
    everything = result.mean_severity[unit]
    without = percent(everything)
    if shipped is None:
        said = f"At a budget of {budget(alpha)} nothing ships: {_why_closed(result, alpha)}"
    else:
        exposed, beside = row.promised.mean or 0.0, _beside(result, row)
        said = served_sentence(unit, alpha, ship_rate, shipped, exposed, everything, beside)
        said = f"{said[:1].upper()}{said[1:]}."
        if _clearly_above(row.shipped_severity, everything):
            said = (
                f"The score works the wrong way for {many}: what ships is worse than if everything shipped, "
                f"{percent(shipped)} against {without}. {said}"
            )
    good, score = _worth(evaluation, result, unit)
    if good == _WRONG_WAY and not said.startswith("The score"):
        said = f"The score works the wrong way for {many}: bad answers score above fine ones. {said}"
    held = percent(1 - ship_rate)
    through = (
        f"Nothing ships: {_why_closed(result, alpha)} Without a gate severity is {without} on average."
        if shipped is None
        else f"is how wrong shipped answers are on average, against {without} without a gate. Spread over all {many}, held ones "
        f"counting 0, that is an exposure of {percent(row.exposure.mean, 1)}{_around(row.exposure)}; the budget is {budget(alpha)}."
    )
    return Headline(
        name=result.name,
        served=served,
        ships=f"of {many} get an answer{_around(row.ship_rate)}; {held} are held.{_than_gram(result, row)}",
        wrong=percent(shipped) if shipped is not None else "0 %",
        through=through,
        sentence=said,
        good=good,
        score=score,
    )


def _beside(result: DataSetResult, row: GateRow) -> str:
    """What one score alone would serve, where all signals decide."""
    if row.method == "mean":
        return ""
    return f", a cut of {_cut(result)} {percent(result.cut_row(row.unit, row.alpha).ship_rate.mean)}"


def _cut(result: DataSetResult) -> str:
    """What the first score is; without an encoder it is another's."""
    return "Gram energy" if result.encoder else "the score"


def _than_gram(result: DataSetResult, row: GateRow) -> str:
    """How much more all signals serve than Gram energy alone, and whether that is clear."""
    if row.method == "mean":
        return ""
    (beside,) = [
        one
        for one in result.compared
        if (one.unit, one.scorer, one.alpha) == (row.unit, row.method, row.alpha)
    ]
    more, error = 100 * (beside.more.mean or 0.0), 100 * (beside.more.error or math.inf)
    clear = "a clear difference" if abs(more) > 2 * error else "within the error"
    return (
        f" All signals decide (method full); a cut of {_cut(result)} alone would serve "
        f"{percent(result.cut_row(row.unit, row.alpha).ship_rate.mean)}, {abs(more):.1f} points "
        f"{'less' if more >= 0 else 'more'} (± {error:.1f}: {clear})."
    )


def headline_unit(result: DataSetResult) -> Unit:
    """Return the unit that most products use where there is one: one answer or none to a prompt."""
    return next(unit for unit in UNITS if unit in result.mean_severity)


def _around(one: Spread) -> str:
    return "" if one.error is None else f" (± {100 * one.error:.1f} points)"


def _clearly_above(one: Spread, level: float) -> bool:
    """Whether a figure lies above a level by more than twice its error."""
    return one.mean is not None and one.error is not None and one.mean - level > 2 * one.error


def _worth(evaluation: Evaluation, result: DataSetResult, unit: Unit) -> tuple[str, str]:
    auroc = next(row.auroc for row in result.ranking if row.unit == unit and row.scorer == GRAM)
    if auroc.value is None or auroc.low is None or auroc.high is None:
        worth, said = "Cannot be said", "It takes fine answers and bad ones."
    else:
        if auroc.high < 0.5:
            worth = _WRONG_WAY
        elif auroc.low <= 0.5:
            worth = "No better than chance"
        else:
            worth = "Yes"
        said = (
            f"By Gram energy a fine answer scores above a bad one "
            f"{100 * auroc.value:.0f} times out of 100 (95 %: {100 * auroc.low:.0f} to {100 * auroc.high:.0f}), where chance "
            "does 50 times."
        )
    best = _ships_most(evaluation, result, unit)
    if best is not None and best.scorer != GRAM and _clearly(best):
        said += (
            f" Of the scores compared {scorer_title(best.scorer)} ships most, {percent(best.ship_rate.mean)}."
        )
    return worth, said


def _ships_most(evaluation: Evaluation, result: DataSetResult, unit: str) -> ScorerRow | None:
    """The label-free score that ships most at the headline budget; None where none ships anything."""
    alpha = headline_alpha(evaluation.options.alphas)
    rows = [row for row in result.compared if (row.unit, row.alpha) == (unit, alpha)]
    label_free = [row for row in rows if row.scorer not in (JUDGE, FULL) and row.ship_rate.mean is not None]
    best = max(label_free, key=lambda row: row.ship_rate.mean or 0.0, default=None)
    return best if best is not None and best.ship_rate.mean else None


def _clearly(row: ScorerRow) -> bool:
    """Whether a score ships more than the Gram energy by twice the error and more."""
    return row.more.mean is not None and row.more.mean > 2 * (row.more.error or math.inf)


def _why_closed(result: DataSetResult, alpha: float) -> str:
    if groups_needed(alpha) > result.calibrating:
        return f"{result.calibrating} calibration questions cannot carry it, {groups_needed(alpha)} could."
    return "the highest scores are wrong too often."


def findings(evaluation: Evaluation) -> list[str]:
    """Say what came out, a sentence or two for each thing that was asked."""
    scores = (_scores(evaluation, result) for result in evaluation.data_sets)
    return list(filter(None, (_budgets(evaluation), _judges(evaluation), *scores)))


def _budgets(evaluation: Evaluation) -> str:
    cells = promised_rows(evaluation)
    over = [row.excess for _, row in cells if row.excess is not None]
    bound = chance_bound(len(cells))
    if alike := sum(row.over and row.excess is None for _, row in cells):
        return (
            f"Look at this: of {len(cells)} gates that promise a mean exposure of at most α, {alike} came out above it by the "
            "same in every split, so that the effect of chance cannot be estimated: take more questions, or more splits."
        )
    if not over:
        return f"All {len(cells)} gates that promise a mean exposure of at most α came out within it."
    if max(over) <= bound:
        return (
            f"No budget is broken by more than chance: {len(over)} of {len(cells)} gates that promise a mean exposure of at most "
            f"α came out above it, by {max(over):.1f} standard errors at most. Among so many, chance alone reaches {bound:.1f} "
            "once in a hundred evaluations, and moves them together: they share their questions."
        )
    return (
        f"Look at this: a gate's mean exposure lies {max(over):.1f} standard errors above its budget, where chance among "
        f"{len(cells)} gates reaches {bound:.1f} once in a hundred evaluations. Are the questions of this file copies of "
        "one another, or is something wrong with its severities?"
    )


def _judges(evaluation: Evaluation) -> str:
    worst = max(
        (
            (row.exposure.mean - row.alpha, result.name, row)
            for result in evaluation.data_sets
            for row in result.gates
            if row.mode == MODES[0] and row.exposure.mean is not None
        ),
        key=lambda found: found[0],
        default=None,
    )
    if worst is None:
        return ""
    excess, name, row = worst
    if excess <= 0:
        return (
            "The judge's fixed thresholds happened to stay within the budgets beside them; nothing made them."
        )
    return (
        f"A fixed threshold on the judge's score promises nothing: on {name}, unit {row.unit}, Q ≥ {1 - row.alpha:g} lets "
        f"{percent(row.exposure.mean, 1)} through beside a budget of {budget(row.alpha)}."
    )


def _scores(evaluation: Evaluation, result: DataSetResult) -> str:
    if len([name for name in result.scorers if name != JUDGE]) < 2:
        return ""
    alpha = headline_alpha(evaluation.options.alphas)
    by_unit = []
    for unit in result.mean_severity:
        best = _ships_most(evaluation, result, unit)
        if best is None:
            by_unit.append(f"by {unit} no score ships anything")
            continue
        if best.scorer == GRAM:
            by_unit.append(f"by {unit} the Gram energy ships most ({percent(best.ship_rate.mean)})")
            continue
        by_unit.append(
            f"by {unit} {scorer_title(best.scorer)} ships most ({percent(best.ship_rate.mean)}, "
            f"{100 * (best.more.mean or 0):+.1f} ± {100 * (best.more.error or 0):.1f} points against the Gram energy: "
            f"{'a clear difference' if _clearly(best) else 'within the error'})"
        )
    return f"{result.name}, which label-free score ships most at α = {alpha:g}: {'; '.join(by_unit)}."


LIMITS = (
    "Exposure risk is severity per unit, held ones counting 0. Among what ships severity is higher; the budget does not "
    "bound it.",
    "The promise is about an average over calibrations and over questions like these. One calibration may land above, one "
    "kind of question may run above, and other questions promise nothing.",
    "A large reduction of severity with a small ship rate is easy: ship only the few answers that all agree on. No mode is "
    "better for its reduction alone.",
    "Agreement is not truth. Where a model repeats one mistake in every sample, every score here that asks for agreement is "
    "high, and wrong.",
    "Severities are taken as they are. Where a program or a model gave them, the risk is risk as that program sees it.",
    "A choice of the score, the method or the budget that looks best in these tables has picked on the labels: calibrate "
    "the choice on new ones before it decides anything.",
)
"""What the figures do not mean."""
