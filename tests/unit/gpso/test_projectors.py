"""Projectors, ranks and scatters from first principles: against dense matrices, and under what must not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import ortho_group

from streamer_research.gpso.diagnostics import scatter_difference
from streamer_research.gpso.projectors import distance, eigengap_rank, overlap, spectrum
from streamer_research.gpso.scatter import PIPELINES, directions, scatter_factor

ROWS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 9), st.integers(1, 7)),
    elements=st.floats(-4, 4).filter(lambda x: x == 0 or abs(x) > 1e-3),
).filter(lambda a: bool((np.abs(a).max(axis=1) > 0).all()))
KEYS = tuple(PIPELINES)


@settings(deadline=None)
@given(rows=ROWS, key=st.sampled_from(KEYS))
def test_a_scatter_is_the_papers_divided_by_n(rows, key):
    pipeline, n = PIPELINES[key], len(rows)
    v = rows / np.linalg.norm(rows, axis=1, keepdims=True) if pipeline.unit_rows else rows
    h = np.eye(n) - np.ones((n, n)) / n if pipeline.centred else np.eye(n)
    factor = scatter_factor(rows, pipeline)
    assert factor.T @ factor == pytest.approx(v.T @ h @ v / n, abs=1e-12)


@pytest.mark.parametrize("key", KEYS)
def test_rows_that_stand_for_their_copies_have_the_scatter_of_all(key):
    rows, copies = np.random.default_rng(0).normal(size=(5, 4)), [1, 3, 2, 1, 4]
    short = scatter_factor(rows, PIPELINES[key], copies)
    whole = scatter_factor(np.repeat(rows, copies, axis=0), PIPELINES[key])
    assert short.shape == (5, 4)
    assert short.T @ short == pytest.approx(whole.T @ whole, abs=1e-12)


@settings(deadline=None)
@given(rows=ROWS, key=st.sampled_from(KEYS), rank=st.integers(1, 4))
def test_projectors_are_symmetric_idempotent_and_of_their_rank(rows, key, rank):
    found = spectrum(scatter_factor(rows, PIPELINES[key]))
    w = found.directions[:, :rank]
    p = w @ w.T
    assert p == pytest.approx(p.T, abs=1e-12)
    assert p @ p == pytest.approx(p, abs=1e-9)
    assert np.trace(p) == pytest.approx(min(rank, len(found.values)), abs=1e-9)
    assert (np.diff(found.values) <= 0).all()
    # It is a spectrum of the scatter: each direction is an eigenvector of it.
    factor = scatter_factor(rows, PIPELINES[key])
    assert factor.T @ factor @ found.directions == pytest.approx(found.directions * found.values, abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(5, 40), (60, 40), (70, 100), (100, 80)])
def test_tall_and_wide_factors_have_the_same_spectrum(n, d):
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(n, d)) * np.linspace(3, 0.1, d)
    values, directions = np.linalg.eigh(factor.T @ factor)
    found = spectrum(factor, 4)
    assert found.values == pytest.approx(values[::-1][:4])
    for j in range(4):
        assert abs(found.directions[:, j] @ directions[:, -1 - j]) == pytest.approx(1)


@pytest.mark.parametrize("key", KEYS)
def test_rotations_reflections_and_the_order_of_rows_change_no_overlap(key):
    rng = np.random.default_rng(2)
    turn = ortho_group.rvs(12, random_state=3)  # reflections too, when its determinant is -1
    turn[:, 0] *= -np.sign(np.linalg.det(turn))
    one, other = rng.normal(size=(6, 12)), rng.normal(size=(7, 12))

    def overlaps(a, b):
        first, second = (spectrum(scatter_factor(rows, PIPELINES[key])).directions[:, :2] for rows in (a, b))
        return overlap(first, second), distance(first, second)

    plain = overlaps(one, other)
    assert overlaps(one @ turn, other @ turn) == pytest.approx(plain)
    assert overlaps(-one, -other) == pytest.approx(plain)
    assert overlaps(one[::-1], other[rng.permutation(7)]) == pytest.approx(plain)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), r=st.integers(1, 3), s=st.integers(1, 3))
def test_overlap_and_distance_are_those_of_dense_projectors(seed, r, s):
    rng = np.random.default_rng(seed)
    w, q = (np.linalg.qr(rng.normal(size=(6, k)))[0] for k in (r, s))
    p, o = w @ w.T, q @ q.T
    assert overlap(w, q) == pytest.approx((p * o).sum())
    assert distance(w, q) == pytest.approx(np.linalg.norm(p - o), abs=1e-7)
    assert 0 <= overlap(w, q) <= min(r, s) + 1e-12


@pytest.mark.parametrize(
    ("values", "cap", "rank"),
    [
        ([9, 8.5, 8, 1, 0.9], 5, 3),  # the planted spectrum has three
        ([9, 1, 0.5], 5, 1),
        (
            [9, 8.5, 8, 1, 0.9],
            2,
            1,
        ),  # the gap after three is past the cap: 0.5 and 0.5 tie, and the first wins
        ([5, 5, 5], 5, 3),  # what follows the last is 0
        ([5, 5, 5], 2, 1),  # no gap at all
        ([2], 8, 1),
        ([], 8, 0),
    ],
)
def test_the_eigengap_finds_the_rank_of_planted_spectra(values, cap, rank):
    assert eigengap_rank(np.array(values, dtype=float), cap) == rank


def test_a_cap_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        eigengap_rank(np.array([1.0]), 0)


@pytest.mark.parametrize(
    "shapes", [((3, 50), (4, 50)), ((40, 50), (30, 50)), ((90, 80), (90, 80)), ((20, 80), (300, 80))]
)
def test_the_spectral_norm_of_a_difference_is_that_of_dense_matrices(shapes):
    rng = np.random.default_rng(7)
    one, other = (rng.normal(size=shape) for shape in shapes)
    found = scatter_difference(spectrum(one), spectrum(other))
    assert found == pytest.approx(np.linalg.norm(one.T @ one - other.T @ other, 2))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_equal_rows_have_no_deviation_whatever_the_rounding(n):
    row = np.random.default_rng(8).normal(size=384)
    for key in ("A", "C"):
        assert len(spectrum(scatter_factor(np.tile(row, (n, 1)), PIPELINES[key])).values) == 0
    for key in ("B", "D"):
        assert len(spectrum(scatter_factor(np.tile(row, (n, 1)), PIPELINES[key])).values) == 1


def test_small_deviations_of_large_rows_are_kept():
    row = np.full(10, 7.0)
    near = row.copy()
    near[3] += 1e-6
    assert len(spectrum(scatter_factor([row, near], PIPELINES["C"])).values) == 1


def test_pipelines_without_l2_follow_lengths_and_the_others_do_not():
    rows = np.random.default_rng(9).normal(size=(5, 6))
    stretched = rows * np.array([[1], [2], [3], [4], [5]])
    for key, same in (("A", True), ("B", True), ("C", False), ("D", False)):
        found = np.allclose(scatter_factor(rows, PIPELINES[key]), scatter_factor(stretched, PIPELINES[key]))
        assert found is same


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((0, 4)), "shape"),
        (np.zeros(4), "shape"),
        (np.zeros((3, 0)), "shape"),
        ([[1.0, 2.0], [np.nan, 1.0]], "row 1 is not finite"),
        ([[1.0, 2.0], [np.inf, 1.0]], "row 1 is not finite"),
    ],
)
def test_what_is_no_batch_is_refused(rows, message):
    for pipeline in PIPELINES.values():
        with pytest.raises(ValueError, match=message):
            scatter_factor(rows, pipeline)


def test_a_zero_row_has_no_direction_but_a_place():
    rows = [[1.0, 0.0], [0.0, 0.0]]
    for key in ("A", "B"):
        with pytest.raises(ValueError, match="row 1 is zero"):
            scatter_factor(rows, PIPELINES[key])
    for key in ("C", "D"):
        assert np.isfinite(scatter_factor(rows, PIPELINES[key])).all()


def test_rows_of_any_size_can_be_normalised():
    rows = np.array([[3e300, 4e300], [3e-300, 4e-300]])
    assert directions(rows) == pytest.approx(np.array([[0.6, 0.8], [0.6, 0.8]]))
