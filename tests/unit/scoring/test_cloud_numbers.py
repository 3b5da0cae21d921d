"""The few numbers of a batch's embeddings that are kept for drift."""

from itertools import combinations

import numpy as np
import pytest

from streamer.scoring.cloud import STATISTICS, _directions, cloud_numbers
from streamer.scoring.gram import score_batch, score_rows, unit_rows


def test_the_cosine_is_the_mean_over_all_pairs_and_directions_are_cosines_to_the_mean() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(7, 384)) + 0.3
    numbers = cloud_numbers(unit_rows(vectors, None), 7, "minilm@1")
    assert numbers is not None
    assert len(numbers) == len(STATISTICS)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert numbers[0] == pytest.approx(np.mean([a @ b for a, b in combinations(unit, 2)]), abs=1e-6)
    mean = unit_rows(vectors, None).mean(axis=0)
    mean /= np.linalg.norm(mean)
    assert numbers[1:] == pytest.approx(_directions("minilm@1", 384) @ mean, abs=1e-6)


def test_blank_answers_are_left_out_and_what_is_left_must_be_two() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(4, 16))
    blank = (False, True, False, False)
    with_blank = cloud_numbers(unit_rows(vectors, blank), 3, "e")
    assert with_blank == cloud_numbers(unit_rows(vectors[[0, 2, 3]], None), 3, "e")
    assert cloud_numbers(unit_rows(vectors, (True, True, True, False)), 1, "e") is None
    assert cloud_numbers(np.array([[1.0, 0.0], [-1.0, 0.0]]), 2, "e") is None


def test_directions_are_fixed_for_ever_and_belong_to_the_encoder() -> None:
    directions = _directions("all-MiniLM-L6-v2@53aa5117", 384)
    assert np.linalg.norm(directions, axis=1) == pytest.approx(1)
    assert np.sign(directions[:, :8]).astype(int).tolist() == [
        [1, -1, 1, 1, -1, 1, -1, -1],
        [1, 1, -1, -1, 1, -1, -1, -1],
        [-1, 1, 1, 1, -1, 1, 1, -1],
        [-1, -1, 1, -1, -1, -1, 1, -1],
    ]
    assert (_directions("other", 384) != directions).any()


def test_scores_are_the_same_from_rows_as_from_embeddings() -> None:
    vectors, blank = np.random.default_rng(3).normal(size=(5, 32)), (False, True, False, False, False)
    for one, other in zip(
        score_batch(vectors, blank), score_rows(unit_rows(vectors, blank), blank), strict=True
    ):
        assert (one == other).all()
