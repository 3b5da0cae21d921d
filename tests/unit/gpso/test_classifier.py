"""Prototypes and the overlap rule: planted classes, what must not matter, and what is degenerate."""

import math

import numpy as np
import pytest

from streamer_research.gpso import PIPELINES, diagnose, fit_batches, fit_rows
from streamer_research.gpso.diagnostics import DAVIS_KAHAN, condition_left, separation
from streamer_research.gpso.projectors import distance, overlap, spectrum
from streamer_research.gpso.prototypes import bootstrap, make_prototype
from streamer_research.gpso.scatter import scatter_factor

KEYS = tuple(PIPELINES)
DIMENSIONS = 30


def planted(rng, axes, n, *, mean=None, noise=0.05):
    """Rows that vary along `axes` of the space, about a mean direction."""
    rows = noise * rng.normal(size=(n, DIMENSIONS))
    for axis in axes:
        rows[:, axis] += rng.normal(size=n)
    if mean is not None:
        rows[:, mean] += 6.0
    return rows


def spectra(batches, key):
    return [spectrum(scatter_factor(rows, PIPELINES[key])) for rows in batches]


def test_a_prototype_is_the_leading_part_of_the_average_projector():
    rng = np.random.default_rng(1)
    batches = spectra([planted(rng, (0, 1), 12) for _ in range(8)], "C")
    mean = spectrum(np.vstack([b.factor for b in batches]) / math.sqrt(8))
    found = make_prototype(mean, batches, 2)
    average = sum(b.directions[:, :2] @ b.directions[:, :2].T for b in batches) / 8
    top = np.linalg.eigh(average)[1][:, -2:]
    assert distance(found.directions, top) == pytest.approx(0, abs=1e-6)
    assert found.dispersion == pytest.approx(
        np.median(
            [np.linalg.norm(b.directions[:, :2] @ b.directions[:, :2].T - top @ top.T) for b in batches]
        )
    )
    assert found.eigengap == pytest.approx(mean.values[1] - mean.values[2])
    # Re-projected: of rank 2 again, which the average is not.
    assert np.linalg.matrix_rank(average, tol=1e-6) > 2
    assert found.directions.T @ found.directions == pytest.approx(np.eye(2))


@pytest.mark.parametrize("key", ["A", "C"])
def test_planted_subspaces_are_found_by_centred_pipelines(key):
    rng = np.random.default_rng(2)
    # So many that the two variances come out alike: else the largest gap is between them.
    good, bad = planted(rng, (0, 1), 400, mean=5), planted(rng, (2, 3), 400, mean=5)
    classifier = fit_rows(good, bad, key)
    assert classifier.rank == 2
    for prototype, axes in ((classifier.good, (0, 1)), (classifier.bad, (2, 3))):
        assert overlap(prototype.directions, np.eye(DIMENSIONS)[:, axes]) > 1.9
    assert separation(classifier) == pytest.approx(2, abs=0.1)  # sqrt(2 r): nothing in common
    assert classifier.judge(planted(rng, (0, 1), 10, mean=5)).good is True
    assert classifier.judge(planted(rng, (2, 3), 10, mean=5)).good is False


@pytest.mark.parametrize("key", ["B", "D"])
def test_planted_means_are_found_by_pipelines_that_keep_the_mean(key):
    rng = np.random.default_rng(3)
    classifier = fit_rows(planted(rng, (0,), 12, mean=5), planted(rng, (0,), 12, mean=6), key)
    assert classifier.judge(planted(rng, (0,), 4, mean=5)).good is True
    assert classifier.judge(planted(rng, (0,), 1, mean=6)).good is False  # a batch of one can be judged


@pytest.mark.parametrize("key", KEYS)
def test_swapping_the_classes_swaps_the_verdict_exactly(key):
    rng = np.random.default_rng(4)
    good, bad = planted(rng, (0, 1), 9, mean=5), planted(rng, (1, 2), 7, mean=6)
    test = planted(rng, (0, 2), 5, mean=5)
    one, other = fit_rows(good, bad, key, seed=11), fit_rows(bad, good, key, seed=11)
    assert one.rank == other.rank
    assert one.judge(test).score == -other.judge(test).score
    batches = spectra([good[:4], good[4:]], key), spectra([bad[:4], bad[4:]], key)
    judged = [fit_batches(*pair, key).judge(test).score for pair in (batches, batches[::-1])]
    assert judged[0] == -judged[1]


def test_the_final_rank_is_the_smaller_of_the_two():
    rng = np.random.default_rng(8)
    three, one = planted(rng, (0, 1, 2), 60), planted(rng, (4,), 60)
    assert fit_rows(three, three, "C").rank == 3
    assert fit_rows(three, one, "C").rank == 1
    assert fit_rows(one, three, "C").rank == 1


def test_replicates_that_lack_directions_are_drawn_anew():
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(2, 5))  # half of all resamples of two rows are one row twice
    drawn = bootstrap(rows, PIPELINES["C"], rank=1, replicates=200, rng=rng)
    assert {len(one.values) for one in drawn} == {1}

    # Where no resample can have them, the rows themselves stand in.
    class Stuck(np.random.Generator):
        def integers(self, *_args, size, **_kwargs):
            return np.zeros(size, dtype=int)

    stuck = bootstrap(rows, PIPELINES["C"], rank=1, replicates=1, rng=Stuck(np.random.PCG64()))
    assert len(stuck[0].values) == 1


@pytest.mark.parametrize("key", ["A", "C"])
def test_a_class_of_equal_rows_leaves_centred_pipelines_undecided(key):
    rng = np.random.default_rng(10)
    same = np.tile(rng.normal(size=DIMENSIONS), (4, 1))
    classifier = fit_rows(same, planted(rng, (0,), 6), key)
    verdict = classifier.judge(planted(rng, (0,), 3))
    assert (classifier.rank, verdict.score, verdict.good) == (0, 0.0, None)
    found = diagnose(classifier, verdict, good=True)
    assert (found.left, found.holds, found.separation) == (math.inf, False, 0.0)


@pytest.mark.parametrize("key", ["A", "C"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_batch_without_deviation_is_undecided_when_centred(key, n):
    rng = np.random.default_rng(11)
    classifier = fit_rows(planted(rng, (0,), 6), planted(rng, (1,), 6), key)
    assert classifier.judge(np.tile(rng.normal(size=DIMENSIONS), (n, 1))).good is None


@pytest.mark.parametrize("key", KEYS)
def test_classes_with_the_same_rows_cannot_be_told_apart(key):
    rng = np.random.default_rng(12)
    rows = planted(rng, (0,), 6)
    assert fit_rows(rows, rows, key).judge(planted(rng, (0,), 3)).good is None


@pytest.mark.parametrize("key", KEYS)
def test_two_rows_a_class_are_enough(key):
    rng = np.random.default_rng(13)
    classifier = fit_rows(planted(rng, (0,), 2, mean=5), planted(rng, (1,), 2, mean=6), key)
    assert classifier.rank >= 1
    assert -1 <= classifier.judge(planted(rng, (0,), 2, mean=5)).score <= 1


def test_one_class_alone_is_refused():
    rng = np.random.default_rng(14)
    rows = planted(rng, (0,), 4)
    with pytest.raises(ValueError, match="shape"):
        fit_rows(rows, np.empty((0, DIMENSIONS)), "B")
    with pytest.raises(ValueError, match="each class"):
        fit_batches(spectra([rows], "B"), [], "B")


def test_another_dimension_is_refused_with_both_numbers():
    rng = np.random.default_rng(15)
    classifier = fit_rows(planted(rng, (0,), 4), planted(rng, (1,), 4), "B")
    with pytest.raises(ValueError, match="7 dimensions, the prototypes 30"):
        classifier.judge(rng.normal(size=(2, 7)))


def test_the_condition_is_computed_as_stated():
    assert pytest.approx(2 * math.sqrt(2)) == DAVIS_KAHAN
    left = condition_left(DAVIS_KAHAN, rank=4, eigengap=0.5, concentration=0.1, dispersion=0.3)
    assert left == pytest.approx(2 * math.sqrt(2) * 2 / 0.5 * 0.1 + 0.3)
    assert condition_left(2.0, rank=1, eigengap=0.0, concentration=0.0, dispersion=0.0) == math.inf


@pytest.mark.parametrize("key", KEYS)
def test_diagnostics_agree_with_dense_matrices(key):
    rng = np.random.default_rng(17)
    good, bad, test = (planted(rng, (i, i + 1), 8, mean=5 + i) for i in range(3))
    classifier = fit_rows(good, bad, key)
    verdict = classifier.judge(test)
    found = diagnose(classifier, verdict, good=False)
    own, other = classifier.bad.directions, classifier.good.directions
    c_test, c_bad = (f.T @ f for f in (scatter_factor(rows, PIPELINES[key]) for rows in (test, bad)))
    values = np.linalg.eigvalsh(c_bad)[::-1]
    r = classifier.rank
    assert found.concentration == pytest.approx(np.linalg.norm(c_test - c_bad, 2))
    assert found.eigengap == pytest.approx(values[r - 1] - values[r])
    assert found.separation == pytest.approx(np.linalg.norm(own @ own.T - other @ other.T))
    assert found.right == found.separation / 4
    top = np.linalg.eigh(c_test)[1][:, ::-1][:, :r]
    p = top @ top.T
    assert found.margin * r == pytest.approx((p * (own @ own.T)).sum() - (p * (other @ other.T)).sum())
    assert found.left > condition_left(
        2.0, rank=r, eigengap=found.eigengap, concentration=found.concentration, dispersion=found.dispersion
    )
