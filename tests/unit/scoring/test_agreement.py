"""How answers agree, number by number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streamer.labels.answer_forms import answer_batch
from streamer.scoring.agreement import ACROSS_MODELS, COLUMNS, FEATURES, agreement
from streamer.scoring.gram import gram_energy

if TYPE_CHECKING:
    from streamer.scoring.scorer import AnswerBatch

TEXTS = ["It is Paris.", "Paris", "It is Paris.", "Lyon, I think, but who knows", " "]
ROWS = np.array([[1.0, 0.0], [0.8, 0.6], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
BLANK = [False, False, False, False, True]


def batch(order: list[int] | None = None) -> AnswerBatch:
    places = order or list(range(len(TEXTS)))
    return answer_batch([TEXTS[p] for p in places], ROWS[places], [BLANK[p] for p in places])


def column(name: str) -> np.ndarray:
    return agreement(batch())[:, FEATURES.index(name)]


def test_each_number_by_hand() -> None:
    # Cosines of the first answer to the others: .8, 1, 0, and 0 to the blank one.
    assert column("gram")[0] == pytest.approx(math.sqrt((0.64 + 1.0) / 4))
    assert column("mean_cosine")[0] == pytest.approx(1.8 / 4)
    assert column("largest_cosine")[0] == pytest.approx(1.0)
    assert column("smallest_cosine")[0] == pytest.approx(0.0)
    assert column("cosine_spread")[0] == pytest.approx(np.std([0.8, 1.0, 0.0, 0.0]))
    assert column("cluster_share")[:4].tolist() == [0.5, 0.5, 0.5, 0.0]  # .8 links
    assert column("largest_cluster")[0] == pytest.approx(3 / 5)
    entropy = -(3 / 5 * math.log(3 / 5) + 2 / 5 * math.log(1 / 5))
    assert column("cluster_entropy")[0] == pytest.approx(1 - entropy / math.log(5))
    assert column("exact_match")[:4].tolist() == [0.25, 0.0, 0.25, 0.0]
    assert column("most_exact")[3] == 0.25
    assert column("word_jaccard")[0] == pytest.approx((1 / 3 + 1.0 + 0.0 + 0.0) / 4)
    assert column("largest_jaccard")[1] == pytest.approx(1 / 3)
    assert column("contained")[1] == pytest.approx(2 / 4)  # "paris" is in two of the four others
    assert column("contains")[1] == pytest.approx((1 / 3 + 1 / 3) / 4)  # one word of three of their heads
    assert column("log_length")[1] == pytest.approx(math.log1p(5) / 10)
    assert column("length_rank")[:4].tolist() == [0.625, 0.25, 0.625, 1.0]
    assert column("behind_best").max() == 0.0
    gram = gram_energy(np.vstack([ROWS[:4]]))  # the blank answer only adds a zero to each sum
    assert column("margin")[0] == pytest.approx((gram.max() - gram[1]) * math.sqrt(3 / 4))
    assert column("log_answers")[0] == pytest.approx(math.log(5) / 10)
    assert column("blank_share")[0] == pytest.approx(0.2)


def test_numbers_follow_the_answers_into_any_order() -> None:
    order = [3, 4, 1, 0, 2]
    np.testing.assert_allclose(agreement(batch(order)), agreement(batch())[order], atol=1e-12)
    assert np.isfinite(agreement(batch())).all()


def test_answers_that_are_all_alike_and_two_that_have_nothing_in_common() -> None:
    alike = agreement(answer_batch(["Paris"] * 3, np.ones((3, 2)), [False] * 3))
    assert alike[:, FEATURES.index("exact_match")].tolist() == [1.0] * 3
    assert alike[:, FEATURES.index("margin")].tolist() == [0.0] * 3
    apart = agreement(answer_batch(["Paris", "Lyon"], np.eye(2), [False, False]))
    assert apart[:, FEATURES.index("gram")].tolist() == [0.0, 0.0]
    assert apart[:, FEATURES.index("cluster_entropy")].tolist() == [0.0, 0.0]


MODELS = ("small", "large", "small", "", "large")


def of_models(models: tuple[str, ...] = MODELS) -> AnswerBatch:
    return answer_batch(TEXTS, ROWS, BLANK, models)


def test_agreement_across_models_is_the_mean_cosine_to_answers_of_others() -> None:
    across = agreement(of_models())[:, COLUMNS.index(ACROSS_MODELS)]
    # .8 to the other model's written answer and 0 to its blank one; the unnamed answer is of no model.
    np.testing.assert_allclose(across, [0.4, 0.8, 0.4, 0.0, 0.0])
    assert not agreement(of_models(("one",) * 5))[:, -1].any()
    np.testing.assert_array_equal(
        agreement(of_models())[:, : len(FEATURES)], agreement(batch())[:, : len(FEATURES)]
    )
    assert not agreement(batch())[:, -1].any()
