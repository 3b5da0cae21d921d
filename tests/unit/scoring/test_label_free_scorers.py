"""Label-free scorers: what each says of answers that are known, and what holds for all of them, whatever the answers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.scoring.registry import SCORER_NAMES, SCORERS
from streamer.scoring.scorer import AnswerBatch

WORDS = ("", " ", "paris", "Paris.", "lyon", "the answer is paris", "x" * 3000)


@st.composite
def batches(draw: st.DrawFn) -> AnswerBatch:
    """Few distinct directions and words, so that ties, copies and blank answers are common."""
    n = draw(st.integers(2, 9))
    texts = draw(st.lists(st.sampled_from(WORDS), min_size=n, max_size=n))
    directions = draw(
        st.lists(st.tuples(*[st.sampled_from((-1.0, 0.0, 0.3, 1.0))] * 3).filter(any), min_size=n, max_size=n)
    )
    rows = np.array(directions)
    return AnswerBatch(
        texts, [text.strip().lower().strip(".") for text in texts], rows, [not text.strip() for text in texts]
    )


def permuted(batch: AnswerBatch, order: list[int]) -> AnswerBatch:
    return AnswerBatch(
        [batch.texts[i] for i in order],
        [batch.forms[i] for i in order],
        batch.embeddings[order],
        [batch.blank[i] for i in order],
    )


@pytest.mark.parametrize("scorer", SCORERS, ids=SCORER_NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_scores_are_rounded_ratios_that_follow_the_answers_wherever_they_stand(scorer, data):
    batch = data.draw(batches())
    scores = scorer.score(batch)
    assert scores.shape == (len(batch.texts),)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (scores == np.round(scores, 6)).all()
    assert (scores[np.array(batch.blank)] == 0).all()
    order = data.draw(st.permutations(range(len(batch.texts))))
    # sums in another order may round the seventh digit to the other side
    assert scorer.score(permuted(batch, order)) == pytest.approx(scores[order], abs=1.5e-6)


@pytest.mark.parametrize("scorer", SCORERS, ids=SCORER_NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_equal_answers_score_alike(scorer, data):
    batch = data.draw(batches())
    first, second = data.draw(st.lists(st.integers(0, len(batch.texts) - 1), min_size=2, max_size=2))
    copied = permuted(batch, [first if i == second else i for i in range(len(batch.texts))])
    scores = scorer.score(copied)
    assert scores[first] == pytest.approx(scores[second], abs=1.5e-6)


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("n", [2, 3, 20])
def test_answers_that_are_all_the_same_score_1(scorer, n):
    batch = AnswerBatch(["Paris"] * n, ["paris"] * n, np.tile([0.6, -0.8], (n, 1)), [False] * n)
    assert scorer.score(batch).tolist() == [1.0] * n


@pytest.mark.parametrize("scorer", SCORERS, ids=SCORER_NAMES)
def test_a_blank_answer_agrees_with_nobody_and_takes_nothing_but_its_share(scorer):
    rows = np.tile([1.0, 0.0], (3, 1))
    batch = AnswerBatch(["Paris", "Paris", " "], ["paris", "paris", ""], rows, [False, False, True])
    scores = scorer.score(batch)
    assert scores[2] == 0
    assert scores[0] == scores[1]
    assert 0 < scores[0] < 1
    all_blank = AnswerBatch([" ", ""], ["", ""], rows[:2], [True, True])
    assert scorer.score(all_blank).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("texts", "rows", "match"),
    [(["a"], np.ones((1, 2)), "at least 2"), (["a", "b"], np.ones((3, 2)), "of one number")],
)
def test_a_batch_that_is_none_is_refused(texts, rows, match):
    with pytest.raises(ValueError, match=match):
        AnswerBatch(texts, texts, rows, [False] * len(texts))


@pytest.mark.parametrize("scorer", [one for one in SCORERS if one.name == "gram"])
@pytest.mark.parametrize("row", [[0.0, 0.0], [math.nan, 1.0]])
def test_an_embedding_without_a_direction_is_refused(scorer, row):
    batch = AnswerBatch(["a", "b"], ["a", "b"], np.array([[1.0, 0.0], row]), [False, False])
    with pytest.raises(ValueError, match=r"zero|not finite"):
        scorer.score(batch)
