"""How well a score ranks units: AUROC and the coverage-risk curve with its area, resampled by question. Pure."""

import numpy as np
from numpy.typing import NDArray

from streamer.clouds.measurement import Units
from streamer.report.charts import ScoreCounts, tradeoff
from streamer.research.evaluation.results import CoverageRisk, FigureInterval, RankingRow, ScorePicture
from streamer.scoring.registry import GRAM

Floats = NDArray[np.float64]

RESAMPLES = 200
COVERAGES = tuple(round(0.02 * step, 2) for step in range(1, 51))
_AT_ONCE = 25
_THRESHOLDS = 200


def ranking(units: Units, *, unit: str, scorer: str, seed: int) -> RankingRow:
    """Measure a score's order of units.

    Parameters
    ----------
    units : at least one; units that cannot ship come last.
    seed : of the resampling, a whole number >= 0.
    """
    scores = np.where(units.shippable, np.nan_to_num(units.scores, nan=-1.0), -1.0)
    table = _Ordered.of(scores, units.severities, units.batch)
    plain = table.measure(np.ones((1, table.questions)))
    drawn = [
        table.measure(weights) for weights in _resamples(table.questions, np.random.default_rng([seed, 17]))
    ]
    curves = np.concatenate([one.curve for one in drawn])
    ideal = _Ordered.of(-units.severities, units.severities, units.batch)
    return RankingRow(
        unit=unit,
        scorer=scorer,
        auroc=_interval(plain.auroc, np.concatenate([one.auroc for one in drawn])),
        area=_interval(plain.area, np.concatenate([one.area for one in drawn])),
        best_area=float(ideal.measure(np.ones((1, ideal.questions))).area[0]),
        no_skill=float(units.severities.mean()),
        levels=len(np.unique(scores)),
        curve=CoverageRisk(
            coverage=COVERAGES,
            risk=_numbers(plain.curve[0]),
            low=_numbers(np.quantile(curves, 0.025, axis=0)),
            high=_numbers(np.quantile(curves, 0.975, axis=0)),
        ),
        picture=score_picture(units) if scorer == GRAM else None,
    )


def score_picture(units: Units) -> ScorePicture:
    """Return what is drawn of a score's units."""
    counts = ScoreCounts.of(units)
    curves = tradeoff(units)
    chosen = np.unique(np.linspace(0, len(curves[0]) - 1, _THRESHOLDS).round().astype(np.intp))
    starts, ship, exposure, selective = (curve[chosen] for curve in curves)
    return ScorePicture(
        fine=counts.fine,
        wrong=counts.wrong,
        fine_median=_or_none(counts.fine_median),
        wrong_median=_or_none(counts.wrong_median),
        thresholds=_numbers(starts),
        ship_rate=_numbers(ship),
        exposure=_numbers(exposure),
        selective=tuple(_or_none(value) for value in selective),
    )


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _resamples(questions: int, rng: np.random.Generator) -> list[Floats]:
    """Draw how often each question is in each resample: `RESAMPLES` rows in blocks that stay in the cache."""
    return [
        rng.multinomial(questions, np.full(questions, 1 / questions), size=_AT_ONCE).astype(np.float64)
        for _ in range(RESAMPLES // _AT_ONCE)
    ]


class _Measured:
    """AUROC (NaN where it is not defined), area and curve of k weightings: shapes (k,), (k,) and (k, levels)."""

    def __init__(self, auroc: Floats, area: Floats, curve: Floats) -> None:
        self.auroc, self.area, self.curve = auroc, area, curve


class _Ordered:
    """Units by falling score, with the ends of tie groups."""

    def __init__(self, severities: Floats, question: NDArray[np.intp], starts: NDArray[np.intp]) -> None:
        self._severities, self._question, self._starts = severities, question, starts
        self.questions = int(question.max()) + 1

    @classmethod
    def of(cls, scores: Floats, severities: Floats, batch: NDArray[np.intp]) -> "_Ordered":
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        _, question = np.unique(batch, return_inverse=True)
        return cls(severities[order], question[order], starts)

    def measure(self, weights: Floats) -> _Measured:
        """Measure with every question counted `weights` times, shape (k, questions)."""
        each = weights[:, self._question]
        mass = np.add.reduceat(each, self._starts, axis=1)
        bad = np.add.reduceat(each * self._severities, self._starts, axis=1)
        return _Measured(_auroc(mass, bad), *_coverage_risk(mass, bad))


def _auroc(mass: Floats, bad: Floats) -> Floats:
    """The chance that a fine unit scores above a bad one, ties counting half; columns by falling score."""
    fine = mass - bad
    below = bad.sum(axis=1, keepdims=True) - np.cumsum(bad, axis=1) + bad / 2
    pairs = fine.sum(axis=1) * bad.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(pairs > 0, (fine * below).sum(axis=1) / pairs, np.nan)


def _coverage_risk(mass: Floats, bad: Floats) -> tuple[Floats, Floats]:
    """Area and curve; within a tie group units come in a random order, so that loss grows in proportion to mass."""
    covered = np.cumsum(mass, axis=1)
    lost = np.cumsum(bad, axis=1)
    total = covered[:, -1:]
    before, lost_before = covered - mass, lost - bad
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(mass > 0, bad / mass, 0.0)
        # the integral over a tie group of (lost_before + rate (x - before)) / x, from before to covered
        logs = np.where(before > 0, np.log(covered / before), 0.0)
        parts = np.where(mass > 0, rate * mass + (lost_before - rate * before) * logs, 0.0)
    area = parts.sum(axis=1) / total[:, 0]
    curve = np.empty((len(mass), len(COVERAGES)))
    for row in range(len(mass)):
        wanted = np.asarray(COVERAGES) * total[row, 0]
        curve[row] = np.interp(wanted, np.append(0.0, covered[row]), np.append(0.0, lost[row])) / wanted
    return area, curve


def _interval(plain: Floats, drawn: Floats) -> FigureInterval:
    known = drawn[np.isfinite(drawn)]
    if not np.isfinite(plain[0]):
        return FigureInterval(value=None, low=None, high=None)
    if len(known) < len(drawn):
        return FigureInterval(value=float(plain[0]), low=None, high=None)
    low, high = np.quantile(known, (0.025, 0.975))
    return FigureInterval(value=float(plain[0]), low=float(low), high=float(high))


def _numbers(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
