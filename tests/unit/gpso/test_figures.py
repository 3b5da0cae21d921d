"""Figures against scikit-learn and by hand; errors against leaving questions out one by one."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn import metrics

from streamer_research.gpso.figures import MEASURES, figures
from streamer_research.gpso.protocols import Outcomes


def outcomes(seed: int = 0, *, protocol: str = "across", count: int = 12, ties: bool = True) -> Outcomes:
    rng = np.random.default_rng(seed)
    question = np.repeat(np.arange(count), rng.integers(2, 9, size=count))
    good = rng.random(len(question)) < 0.6
    score = rng.normal(size=len(question)) + good
    if ties:
        score = np.round(score, 1)
    return Outcomes("m", protocol, "response", question, question, good, score)


def left_out(of: Outcomes, place: int) -> Outcomes:
    keep = of.question != place
    return dataclasses.replace(
        of, **{name: getattr(of, name)[keep] for name in ("question", "fold", "good", "score")}
    )


def test_figures_are_those_of_scikit_learn():
    found = outcomes(ties=False)
    made, predicted = figures(found), found.score > 0
    assert made.accuracy.value == pytest.approx(metrics.accuracy_score(found.good, predicted))
    assert made.auroc.value == pytest.approx(metrics.roc_auc_score(found.good, found.score))
    assert made.macro_f1.value == pytest.approx(metrics.f1_score(found.good, predicted, average="macro"))
    assert made.undecided == 0


def test_auroc_counts_ties_one_half():
    found = outcomes(3)
    assert len(np.unique(found.score)) < len(found.score)
    assert figures(found).auroc.value == pytest.approx(metrics.roc_auc_score(found.good, found.score))


def test_class_shares_count_each_question_once():
    found = Outcomes(
        "m", "within", "response",
        question=np.array([0, 0, 0, 0, 7, 7]), fold=np.array([0, 0, 0, 0, 1, 1]),
        good=np.array([True, True, True, False, True, False]),
        score=np.array([1.0, 1.0, 1.0, -1.0, -1.0, 0.0]),
    )  # fmt: skip
    made = figures(found)
    assert made.accuracy_good.value == (1 + 0) / 2
    assert made.accuracy_bad.value == (1 + 0.5) / 2
    assert made.macro_accuracy.value == pytest.approx(0.625)
    assert made.accuracy.value == pytest.approx(4.5 / 6)
    assert (made.questions, made.judged, made.undecided) == (2, 6, 1)


def test_auroc_within_questions_is_the_mean_over_what_one_classifier_judged():
    found = outcomes(1, protocol="within")
    each = [
        metrics.roc_auc_score(found.good[mine], found.score[mine])
        for fold in np.unique(found.fold)
        if 0 < found.good[mine := found.fold == fold].sum() < mine.sum()
    ]
    assert figures(found).auroc.value == pytest.approx(np.mean(each))


@pytest.mark.parametrize("protocol", ["within", "across"])
@pytest.mark.parametrize("measure", MEASURES)
def test_errors_are_the_jackknifes_over_questions(protocol, measure):
    found = outcomes(2, protocol=protocol)
    made = figures(found).measure(measure)
    without = [figures(left_out(found, place)).measure(measure).value for place in range(12)]
    assert made.without == pytest.approx(without)
    assert made.se == pytest.approx(
        math.sqrt(11 / 12 * np.square(np.array(without) - np.mean(without)).sum())
    )
    half = student.ppf(0.975, 11) * made.se
    assert made.interval == pytest.approx((made.value - half, made.value + half))


def test_copies_of_an_outcome_make_no_error_smaller():
    found = outcomes(7)
    tenfold = dataclasses.replace(
        found, **{name: np.tile(getattr(found, name), 10) for name in ("question", "fold", "good", "score")}
    )
    for measure in ("macro_accuracy", "accuracy", "macro_f1"):
        one, ten = (figures(each).measure(measure) for each in (found, tenfold))
        assert ten.value == pytest.approx(one.value)
        assert ten.se == pytest.approx(one.se)


def test_differences_are_paired():
    one = outcomes(8)
    shifted = dataclasses.replace(one, score=one.score + 0.3)
    made, other = figures(one), figures(shifted)
    same = made.accuracy.minus(made.accuracy)
    assert (same.value, same.se) == (0.0, 0.0)
    difference = other.accuracy.minus(made.accuracy)
    assert difference.value == pytest.approx(other.accuracy.value - made.accuracy.value)
    assert difference.se < math.hypot(made.accuracy.se, other.accuracy.se)
    with pytest.raises(ValueError, match="not paired"):
        made.accuracy.minus(figures(left_out(one, 0)).accuracy)


def test_an_undecided_outcome_counts_one_half():
    places = np.arange(4)
    made = figures(
        Outcomes("m", "across", "batch", places, places, np.array([True, True, False, False]), np.zeros(4))
    )
    assert made.undecided == 4
    assert {made.measure(name).value for name in MEASURES} == {0.5}


def test_what_is_not_defined_is_none():
    nothing = figures(
        Outcomes("m", "within", "batch", *(np.empty(0, dtype=int),) * 2, np.empty(0, dtype=bool), np.empty(0))
    )
    assert (nothing.questions, nothing.accuracy.value, nothing.auroc.value) == (0, None, None)
    one_class = figures(
        Outcomes("m", "across", "batch", np.arange(3), np.arange(3), np.ones(3, dtype=bool), np.ones(3))
    )
    assert (one_class.accuracy.value, one_class.accuracy_good.value) == (1.0, 1.0)
    for name in ("accuracy_bad", "macro_accuracy", "auroc", "macro_f1"):
        assert one_class.measure(name).value is None
        assert one_class.measure(name).interval is None
    alone = figures(
        Outcomes("m", "across", "batch", np.zeros(2, dtype=int), np.zeros(2, dtype=int), np.array([True, False]), np.array([1.0, -1.0]))
    )  # fmt: skip
    assert alone.accuracy.value == 1.0
    assert alone.accuracy.se is None


def test_an_unknown_measure_is_named():
    with pytest.raises(ValueError, match="no measure 'recall'"):
        figures(outcomes()).measure("recall")
