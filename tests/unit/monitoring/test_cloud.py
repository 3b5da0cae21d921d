import itertools

import numpy as np
import pytest

from streamer.risk.states import cloud_centre, cosine_to_centre, mean_pairwise_cosine


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_means_over_pairs_and_to_the_centre():
    rows = np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32) * 1e-30
    pairs = [
        cosine(a.astype(float) * 1e30, b.astype(float) * 1e30) for a, b in itertools.combinations(rows, 2)
    ]
    centre = np.arange(1.0, 9.0)
    assert mean_pairwise_cosine(rows) == pytest.approx(np.mean(pairs))
    towards = [cosine(row.astype(float) * 1e30, centre) for row in rows]
    assert cosine_to_centre(rows, centre) == pytest.approx(np.mean(towards))


def test_identical_and_opposite_answers():
    assert mean_pairwise_cosine([[3, 4], [6, 8]]) == pytest.approx(1)
    assert mean_pairwise_cosine([[3, 4], [-3, -4]]) == pytest.approx(-1)


def test_each_batch_counts_once_in_the_centre():
    centre = cloud_centre([[[1, 0]] * 9, [[0, 5]]])
    np.testing.assert_allclose(centre, np.sqrt([0.5, 0.5]))


@pytest.mark.parametrize("wrong", [[1, 2], [[0, 0], [1, 0]], [[np.nan, 1], [1, 0]], [["a"], ["b"]], [[1.0]]])
def test_what_is_no_cloud_is_refused(wrong):
    with pytest.raises(ValueError, match=r"embeddings|pair"):
        mean_pairwise_cosine(wrong)


def test_dimensions_must_agree():
    with pytest.raises(ValueError, match="dimension"):
        cosine_to_centre([[1, 0]], [1, 0, 0])
    with pytest.raises(ValueError, match="dimension"):
        cloud_centre([[[1, 0]], [[1, 0, 0]]])
    with pytest.raises(ValueError, match="at least one batch"):
        cloud_centre([])
    with pytest.raises(ValueError, match="zero"):
        cloud_centre([[[1, 0]], [[-1, 0]]])
