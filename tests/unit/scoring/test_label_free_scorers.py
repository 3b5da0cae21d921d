"""Label-free scorers: what each says of answers that are known, and what holds for all of them, whatever the answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.scoring.gram import gram_energy
from streamer.scoring.registry import SCORER_NAMES, SCORERS
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.scorers.exact_match import exact_match
from streamer.scoring.scorers.kernel_entropy import KernelEntropy

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
    if scorer.name != "brevity":
        assert 0 < scores[0] < 1
    all_blank = AnswerBatch([" ", ""], ["", ""], rows[:2], [True, True])
    assert scorer.score(all_blank).tolist() == [0, 0]


def test_exact_match_is_the_share_of_the_others_that_say_the_same():
    assert exact_match(["a", "b", "a", "a", "c"]).tolist() == [0.5, 0, 0.5, 0.5, 0]
    assert exact_match(["a", "b"]).tolist() == [0, 0]
    assert exact_match(["", ""]).tolist() == [0, 0], "what claims nothing agrees with nothing"
    with pytest.raises(ValueError, match="at least 2"):
        exact_match(["a"])


def unit(*degrees: float) -> np.ndarray:
    return np.array([[math.cos(math.radians(d)), math.sin(math.radians(d))] for d in degrees])


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


def test_kernel_entropy_counts_directions():
    def of(rows: np.ndarray, blank: list[bool] | None = None) -> list[float]:
        n = len(rows)
        return KernelEntropy().score(AnswerBatch(["a"] * n, ["a"] * n, rows, blank or [False] * n)).tolist()

    assert of(unit(0, 180, 0, 180)) == [0.5] * 4, "opposite directions are two"
    assert of(unit(0, 120, 240)) == [1e-6] * 3, "no two of three agree"
    assert of(unit(0, 90, 0, 90)) == [0.5] * 4, "two of four: ln 2 of ln 4"
    assert of(np.eye(4)) == [1e-6] * 4, "what comes first scores above blank answers"
    assert of(unit(0, 0), [False, True]) == [1e-6, 0.0], "a blank answer is a direction of its own"
    # The matrix of two unit vectors has the eigenvalues (1 +- cosine) / 2.
    more, less = (1 + math.cos(math.radians(60))) / 2, (1 - math.cos(math.radians(60))) / 2
    entropy = -(more * math.log(more) + less * math.log(less))
    assert of(unit(0, 60))[0] == pytest.approx(1 - entropy / math.log(2), abs=5e-7)


def test_a_score_of_the_prompt_puts_first_what_gram_energy_does():
    rows = unit(180, 0, 10, 5)
    scores = KernelEntropy().score(AnswerBatch(["a"] * 4, ["a"] * 4, rows, [False] * 4))
    assert scores.argmax() == gram_energy(rows).argmax() == 3
    assert (scores.max() - scores).round(6).tolist() == [1e-6, 1e-6, 1e-6, 0.0]
