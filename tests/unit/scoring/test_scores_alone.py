"""The one-file verifier measures and scores answers as the program does, with the standard library alone."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.audit.standalone import verify_bundle as alone
from streamer.labels.answer_forms import answer_batch
from streamer.labels.answer_head import answer_head
from streamer.labels.lexical import normal_form
from streamer.scoring.agreement import COLUMNS, FEATURES, agreement
from streamer.scoring.gram import score_batch
from streamer.scoring.learned import LearnedModel, UnknownModel, learned_scores

PIECES = (
    "Paris", "paris.", "The ", "a ", "Dr. ", "J. K. ", "U.S. ", "No. 5", "1. ", "3.5", "-5", " .5", "C++", "ß", "ＰＡ", "é", "e\u0301",
    "\n", " ", "Final: ", "final answer:", "**", "。", "…", "...", "! ", "?) ", "\u200b", "東京", "…”", "etc. then", "Etc. Then", "_x", "½", "ǅ",
)  # fmt: skip
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.text(max_size=40))
MODELS = ("", "large", "small")


@given(TEXTS)
def test_it_finds_the_same_head(text: str) -> None:
    assert alone.head_of(text) == normal_form(answer_head(text))


def made(seed: int) -> tuple[list[str], list[bool], np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    texts = ["".join(rng.choice(PIECES, size=rng.integers(0, 5))) for _ in range(n)]
    texts[0] = texts[0] if seed % 7 else " "
    texts[-1] = texts[0] if seed % 3 == 0 else texts[-1]
    blank = [alone.is_blank(text) for text in texts]
    rows = (rng.normal(size=6) + rng.choice([0.2, 1.0]) * rng.normal(size=(n, 6))).astype("<f4")
    if seed % 3 == 0:
        rows[-1] = rows[0]
    return texts, blank, rows, rng.choice(MODELS, size=n).tolist()


def model(rng: np.random.Generator, order: str, models: tuple[str, ...]) -> LearnedModel:
    features = (*FEATURES, "other_models_cosine", *(f"model={one}" for one in models)) if models else FEATURES
    return LearnedModel(
        features=features,
        means=tuple(rng.random(len(features)).tolist()),
        scales=tuple((0.2 + rng.random(len(features))).tolist()),
        coefficients=tuple(rng.normal(size=len(features)).tolist()),
        intercept=0.3,
        order=order,  # type: ignore[arg-type]
        prompts=100,
        models=models,
    )


@pytest.mark.parametrize("seed", range(60))
def test_it_measures_and_scores_the_same(seed: int) -> None:
    texts, blank, rows, models = made(seed)
    batch = answer_batch(texts, rows, blank, models if any(models) else ())
    expected, found = agreement(batch), alone.agreement(texts, blank, rows.tolist(), models)
    assert tuple(found) == COLUMNS
    for place, name in enumerate(COLUMNS):
        np.testing.assert_allclose(found[name], expected[:, place], atol=1e-9, err_msg=name)
    np.testing.assert_allclose(
        np.where(blank, 0.0, np.round(found["gram"], 6)), score_batch(rows, blank)[0], atol=2e-6
    )
    rng = np.random.default_rng([seed, 1])
    for order in ("gram", "own"):
        for known in ((), MODELS, ("large", "small")):
            learned = model(rng, order, known)
            again = alone.learned_scores(json.loads(learned.text), found, blank, models)
            try:
                scores = learned_scores(learned, expected, blank, batch.models)
            except UnknownModel:
                assert again is None
            else:
                np.testing.assert_allclose(again, scores, atol=2e-6)


def test_embeddings_are_read_as_events_bring_them() -> None:
    row = np.array([0.5, -0.25], "<f4")
    line = {"encoder": "e@1", "text": hashlib.sha256(b"Paris").hexdigest()}
    packed: list[dict[str, Any]] = [
        line | {"embedding": base64.b64encode(row.tobytes()).decode()},
        line | {"encoder": "e@2", "embedding": row.tolist()},
    ]
    found = alone.read_embeddings(json.dumps(one).encode() for one in packed)
    assert {key: list(numbers) for key, numbers in found.items()} == {
        (one["encoder"], line["text"]): [0.5, -0.25] for one in packed
    }
    for embedding in ("AAA", ["x"], None):
        with pytest.raises((ValueError, TypeError)):
            alone.read_embeddings([json.dumps(line | {"embedding": embedding}).encode()])


@pytest.mark.parametrize(
    ("named", "score", "reason", "said"),
    [
        (("large", "small"), 0.5, "scored", None),
        (("large", "newer"), None, "unknown_model", None),
        (("large", ""), None, "unknown_model", None),
        (("large", "newer"), 0.5, "scored", "it was scored, and an answer is of a model that its score does not know"),
        (("large", ""), 0.5, "scored", "it was scored, and an answer is of a model that its score does not know"),
        (("large", "small"), None, "unknown_model", "it was held for a model that its score knows"),
    ],
)  # fmt: skip
def test_a_score_is_of_answers_whose_models_it_knows(
    named: tuple[str, str], score: float | None, reason: str, said: str | None
) -> None:
    learned = model(np.random.default_rng(1), "gram", ("large", "small"))
    settings, verifier = {"scorer": learned.name, "model": learned.text}, alone.Verifier([])
    verifier._check_model(settings, "here")
    facts = {"reason": reason, "responses": [[name, score, None, "abstain", True] for name in "ab"]}
    models = {name: one for name, one in zip("ab", named, strict=True) if one}
    line = {"content": {"metadata": {"streamer.models": models}}}
    verifier._of_models(alone._Decision(line, facts, {}, settings, "here"))
    verifier._of_models(alone._Decision({"content": None}, facts, {}, settings, "erased"))
    assert [one["detail"] for one in verifier.faults] == ([] if said is None else [said])


@pytest.mark.parametrize("coefficient", [1e9, 1e300])
def test_a_score_so_steep_that_every_number_would_fit_is_not_checked(coefficient: float) -> None:
    texts, blank, rows, models = made(1)
    features = alone.agreement(texts, blank, rows.tolist(), models)
    steep = replace(
        model(np.random.default_rng(1), "own", ()),
        features=("gram",),
        means=(0.5,),
        scales=(1e-10,),
        coefficients=(coefficient,),
    )
    verifier = alone.Verifier([])
    again = alone._ScoresAgain({}, verifier)
    again._models[steep.name] = json.loads(steep.text)
    ids = [f"r{i}" for i in range(len(texts))]
    again._compare(steep.name, features, blank, models, [0.123456] * len(texts), ids, "here")
    assert verifier.counts["batches not scored again"] == 1
    assert "batches scored again" not in verifier.counts
    assert any("too steep" in one for one in verifier.notes.values())


@pytest.mark.parametrize(("kept", "faults"), [(0.0, 0), (1.0, 0), (0.5, 1)])
def test_an_earlier_batch_of_a_model_that_the_score_does_not_know_has_0_or_once_had_1(
    kept: float, faults: int
) -> None:
    texts, blank, rows, _ = made(1)
    knows = model(np.random.default_rng(1), "gram", ("large", "small"))
    verifier = alone.Verifier([])
    again = alone._ScoresAgain({}, verifier)
    again._models[knows.name] = json.loads(knows.text)
    models = ["newer"] * len(texts)
    features = alone.agreement(texts, blank, rows.tolist(), models)
    ids = [f"r{i}" for i in range(len(texts))]
    again._compare(knows.name, features, blank, models, [kept] * len(texts), ids, "here")
    assert len(verifier.faults) == faults
