"""Gram energy against its definition, and the cases in which the definition has to be careful."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamer import gram_energy
from streamer.scoring import gram
from streamer.scoring.gram import score_batch

rows = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 12), st.integers(1, 9)),
    elements=st.floats(-4, 4).filter(lambda x: x == 0 or abs(x) > 1e-3),
).filter(lambda a: bool((np.abs(a).max(axis=1) > 0).all()))


@settings(deadline=None)
@given(embeddings=rows)
def test_both_energies_are_as_defined(embeddings):
    n = len(embeddings)
    units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    paper = np.linalg.norm(units @ units.T, axis=0) / math.sqrt(n)
    raw, leave_one_out = gram_energy(embeddings, raw=True), gram_energy(embeddings)
    assert raw == pytest.approx(np.clip(paper, 0, 1), abs=1e-12)
    assert (raw >= 1 / math.sqrt(n) - 1e-15).all()
    assert leave_one_out**2 * (n - 1) == pytest.approx(n * raw**2 - 1, abs=1e-12)
    cosines = units @ units.T
    np.fill_diagonal(cosines, 0)
    assert leave_one_out**2 == pytest.approx((cosines**2).sum(axis=1) / (n - 1), abs=1e-12)
    assert ((leave_one_out >= 0) & (leave_one_out <= 1)).all()


@settings(deadline=None)
@given(embeddings=rows, seed=st.integers(0, 2**32))
def test_scores_follow_the_responses_and_ignore_their_length_and_sign(embeddings, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(embeddings))
    stretched = (
        embeddings
        * rng.choice([-1, 1], len(embeddings))[:, None]
        * 2.0 ** rng.integers(-3, 4, (len(embeddings), 1))
    )
    assert gram_energy(stretched[order]) == pytest.approx(gram_energy(embeddings)[order], abs=1e-9)


def test_identical_answers_agree_fully_and_orthogonal_ones_not_at_all():
    same = np.tile(np.random.default_rng(0).normal(size=384).astype(np.float32), (10, 1))
    assert gram_energy(same) == pytest.approx(1, abs=1e-15)
    assert gram_energy(same).max() <= 1
    assert score_batch(same)[0].tolist() == [1.0] * 10
    assert gram_energy(np.eye(4)).tolist() == [0.0] * 4
    assert gram_energy(np.eye(4), raw=True).tolist() == [0.5] * 4


def test_the_outlier_has_the_lowest_score_whatever_the_number_of_the_others():
    for others in (2, 5, 50):
        embeddings = np.vstack([np.tile([1.0, 0.0], (others, 1)), [[0.6, 0.8]]])
        scores = score_batch(embeddings)[0]
        assert scores[-1] == 0.6
        assert (scores[:-1] > 0.6).all()


def test_small_agreement_keeps_its_digits():
    """n E**2 - 1 would lose them: 1e-7 squared is below the rounding of 1."""
    angle = 1e-9
    embeddings = np.array([[1.0, 0.0], [math.sin(angle), math.cos(angle)]])
    assert gram_energy(embeddings) == pytest.approx(math.sin(angle), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 1e308])
def test_rows_of_extreme_length_have_a_direction_still(scale):
    embeddings = np.array([[1.0, 1.0], [1.0, 0.0]])
    embeddings[0] *= scale
    assert gram_energy(embeddings) == pytest.approx(math.sqrt(0.5), rel=1e-3)


def test_many_responses_are_scored_in_blocks(monkeypatch):
    embeddings = np.random.default_rng(1).normal(size=(57, 8))
    whole = gram_energy(embeddings)
    monkeypatch.setattr(gram, "_ROWS_AT_ONCE", 10)
    assert gram_energy(embeddings) == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
def test_one_input_has_one_score_to_the_last_bit(dtype):
    embeddings = (np.random.default_rng(2).normal(size=(64, 384)) * 20).astype(dtype)
    before = embeddings.copy()
    first = gram_energy(embeddings)
    for _ in range(20):
        again = np.empty((64, 384), dtype=dtype)
        again[:] = embeddings
        assert gram_energy(again).tobytes() == first.tobytes()
    assert embeddings.tobytes() == before.tobytes()


def test_scores_are_rounded_to_a_millionth_and_raw_energies_are_not():
    embeddings = np.random.default_rng(3).normal(size=(9, 5))
    scores, raw = score_batch(embeddings)
    assert scores.tolist() == [round(q, 6) for q in gram_energy(embeddings).tolist()]
    assert raw.tolist() == gram_energy(embeddings, raw=True).tolist()


def test_blank_answers_agree_with_nobody_and_count_as_dissent():
    embeddings = np.array([[1.0, 0.0], [3.0, 4.0], [1.0, 0.0], [3.0, 4.0]])
    blank = [False, True, False, True]
    scores, raw = score_batch(embeddings, blank)
    assert scores.tolist() == [round(math.sqrt(1 / 3), 6), 0.0, round(math.sqrt(1 / 3), 6), 0.0]
    assert raw == pytest.approx([math.sqrt(2 / 4), 0, math.sqrt(2 / 4), 0])
    empty = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [np.nan, 0.0]])
    assert score_batch(empty, np.array(blank))[0].tolist() == scores.tolist()
    assert score_batch(embeddings, [True] * 4)[0].tolist() == [0.0] * 4
    assert score_batch(embeddings, [False] * 4)[0].tolist() == score_batch(embeddings)[0].tolist()


@pytest.mark.parametrize(
    ("embeddings", "blank", "message"),
    [
        ([[1.0, 2.0]], None, "at least 2 responses, not 1"),
        (np.empty((0, 3)), None, "at least 2 responses, not 0"),
        ([1.0, 2.0], None, r"shape \(n, d\), not \(2,\)"),
        ([[1.0, 2.0], [0.0, 0.0]], None, "embedding 1 is zero"),
        (np.empty((2, 0)), None, "embedding 0 is zero"),
        ([[1.0, 2.0], [np.nan, 0.0]], None, "embedding 1 is not finite"),
        ([[np.inf, 2.0], [1.0, 0.0]], None, "embedding 0 is not finite"),
        ([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], [False, True, False], "embedding 2 is zero"),
        ([[1.0, 2.0], [0.0, 1.0]], [False], "2 embeddings and 1 marks"),
    ],
)
def test_embeddings_that_cannot_be_scored_are_refused(embeddings, blank, message):
    with pytest.raises(ValueError, match=message):
        score_batch(embeddings, blank)
    if blank is None:
        with pytest.raises(ValueError, match=message):
            gram_energy(embeddings)
