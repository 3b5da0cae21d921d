"""GPSO where theory says what must come out: planted classes, the theorem's condition, and labels that mean nothing.

Acceptance bounds are exact binomial quantiles, or normal ones of a mean over questions, at 1e-6.
"""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import binom, norm
from threadpoolctl import threadpool_limits

from streamer_research.gpso import (
    PIPELINES,
    Gpso,
    NearestMean,
    Question,
    figures,
    fit_rows,
    judge_across,
    judge_within,
)
from streamer_research.gpso.diagnostics import DAVIS_KAHAN, separation
from streamer_research.gpso.logistic import LogisticRegression
from streamer_research.gpso.projectors import distance, spectrum
from streamer_research.gpso.scatter import scatter_factor

LEVEL = 1e-6
DIMENSIONS = 12
METHODS = [*(Gpso(pipeline) for pipeline in PIPELINES.values()), LogisticRegression(), NearestMean()]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of the linear algebra library would wait for one another: the matrices are small."""
    with threadpool_limits(1):
        yield


def meaningless(count: int, seed: int, size: int = 8) -> list[Question]:
    """Questions whose rows all come of one law, of any shape, and whose labels are drawn blind."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        spread = rng.exponential(size=DIMENSIONS)
        rows = rng.normal(size=DIMENSIONS) + spread * rng.standard_t(4, size=(2 * size, DIMENSIONS))
        made.append(Question(f"q{i}", rows, rng.permutation(np.repeat([True, False], size))))
    return made


def half_right(score: np.ndarray, good: np.ndarray) -> None:
    """Accept what a fair coin gives: ties are left out, for they are right one half of the time by definition."""
    decided = score != 0
    n, right = int(decided.sum()), int(((score > 0) == good)[decided].sum())
    assert n > 0.9 * len(score)
    assert binom.ppf(LEVEL / 2, n, 0.5) <= right <= binom.isf(LEVEL / 2, n, 0.5)


def test_labels_that_mean_nothing_are_found_half_the_time_within_questions():
    """With classes of one size, what is said of the good batch is right with chance 1/2 exactly: swapping all labels of
    a question has the same probability and swaps the verdict. One batch a question: these are independent."""
    found = judge_within(meaningless(250, seed=1), METHODS, splits=1)
    for one in found:
        if one.task == "batch":
            half_right(one.score[one.good], one.good[one.good])
            half_right(one.score[~one.good], one.good[~one.good])


def test_labels_that_mean_nothing_are_found_half_the_time_across_questions():
    """Two questions a world, one calibrates and one is judged: worlds are independent, as folds of one file are not."""
    methods = [Gpso(pipeline) for pipeline in PIPELINES.values()] + [NearestMean()]
    scores: dict[str, list[float]] = {}
    for seed in range(200):
        for one in judge_across(meaningless(2, seed=1000 + seed, size=4), methods):
            if one.task == "batch":
                first = (one.question == 0) & one.good
                scores.setdefault(one.method, []).append(float(one.score[first][0]))
    for found in scores.values():
        half_right(np.array(found), np.ones(len(found), dtype=bool))


def unequal(count: int, large: int, small: int) -> list[Question]:
    """Questions with a large and a small class, the large one good in every other, whose labels mean nothing."""
    rng = np.random.default_rng(7)
    return [
        Question(
            f"q{i}",
            rng.normal(size=(large + small, DIMENSIONS)) + 1,
            np.arange(large + small) < (large if i % 2 else small),
        )
        for i in range(count)
    ]


def test_classes_of_unequal_size_lift_no_macro_accuracy_above_a_coins():
    """A class with more training rows has the better prototype, which held-out rows of either class are nearer to. Where
    most are good, "good" is said more often: that lifts the plain accuracy, and must not lift the macro accuracy."""
    z = norm.isf(LEVEL / 2)
    for one in judge_within(unequal(300, 12, 4), [Gpso(PIPELINES["B"]), NearestMean()], splits=1):
        found = figures(one)
        assert abs(found.macro_accuracy.value - 0.5) < z * found.macro_accuracy.se
        if one.task == "response":
            assert found.accuracy.value - 0.5 > z * found.accuracy.se


def test_batches_of_unequal_size_tell_meaningless_classes_apart():
    """Why judged batches are of one size: without that a larger batch is the larger class, and methods see it."""
    z = norm.isf(LEVEL / 2)
    methods = [Gpso(PIPELINES["B"]), NearestMean()]
    for one in judge_within(unequal(600, 60, 4), methods, splits=1, equal_sizes=False):
        found = figures(one).macro_accuracy
        if one.task == "batch":
            assert found.value - 0.5 > z * found.se


def half_spaces(rng: np.random.Generator, n: int, axes: tuple[int, int], noise: float) -> np.ndarray:
    """Rows whose centred scatter is, in expectation, the projector on two axes plus noise**2 times the identity."""
    rows = noise * rng.normal(size=(n, DIMENSIONS))
    rows[:, list(axes)] += rng.choice([-1.0, 1.0], size=(n, 2))
    return rows


def test_the_theorem_holds_wherever_its_condition_does():
    """With the population's own matrices in the condition it is a theorem: no exception, and the stated margin.

    Sizes go from where it never holds to where it always does.
    """
    rng = np.random.default_rng(2)
    held = 0
    noise = 0.1
    for n in (6, 300, 1500, 6000):
        for _ in range(15):
            classifier = fit_rows(
                half_spaces(rng, n, (0, 1), noise), half_spaces(rng, n, (2, 3), noise), "C",
                replicates=2, seed=1,
            )  # fmt: skip
            truth = np.eye(DIMENSIONS)[:, :2]
            population = truth @ truth.T + noise**2 * np.eye(DIMENSIONS)
            test = scatter_factor(half_spaces(rng, n, (0, 1), noise), PIPELINES["C"])
            verdict = classifier.judge_spectrum(spectrum(test))
            epsilon = np.linalg.norm(test.T @ test - population, 2)
            error = distance(classifier.good.directions, truth)
            between = separation(classifier)
            if classifier.rank == 2 and DAVIS_KAHAN * math.sqrt(2) * epsilon / 1.0 + error < between / 4:
                held += 1
                assert verdict.good is True
                assert verdict.overlap_good - verdict.overlap_bad >= between**2 / 4
    assert held >= 15


def test_the_bound_behind_the_condition_holds_and_the_sample_is_near_it_at_most():
    """||P_hat - P||_F <= 2 sqrt(2) sqrt(r) epsilon / gamma for random symmetric perturbations of any size."""
    rng = np.random.default_rng(3)
    for _ in range(2000):
        d, r = int(rng.integers(3, 9)), int(rng.integers(1, 3))
        values = np.sort(rng.exponential(size=d))[::-1]
        gap = values[r - 1] - values[r]
        noise = rng.normal(size=(d, d)) * rng.choice([0.01, 0.1, 1.0]) * gap
        noise = (noise + noise.T) / 2
        moved = np.linalg.eigh(np.diag(values) + noise)[1][:, ::-1][:, :r]
        epsilon = np.linalg.norm(noise, 2)
        assert distance(moved, np.eye(d)[:, :r]) <= DAVIS_KAHAN * math.sqrt(r) * epsilon / gap + 1e-7


def test_planted_means_are_found_almost_always():
    """Two classes whose mean directions are orthogonal, noise a tenth: theory has every batch right."""
    rng = np.random.default_rng(4)
    made = []
    for i in range(30):
        rows = 0.1 * rng.normal(size=(16, DIMENSIONS))
        good = np.arange(16) < 8
        rows[good, 0] += 1
        rows[~good, 1] += 1
        made.append(Question(f"q{i}", rows, good))
    methods = [Gpso(PIPELINES["B"]), Gpso(PIPELINES["D"]), LogisticRegression(), NearestMean()]
    for one in [*judge_within(made, methods, splits=2), *judge_across(made, methods, folds=5)]:
        assert ((one.score > 0) == one.good).all(), one.method
    # Centring takes the only difference there is away: nothing is left to find.
    centred = judge_within(made, [Gpso(PIPELINES["C"])], splits=1)[0]
    half_right(centred.score[centred.good], centred.good[centred.good])
