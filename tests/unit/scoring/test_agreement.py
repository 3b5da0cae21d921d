"""How answers agree, number by number, and the learned score that is made of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from streamer.gates.folds import fold_of
from streamer.gates.settings import GateSettings
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.agreement import ACROSS_MODELS, COLUMNS, FEATURES, agreement
from streamer.scoring.fitting import Example, NothingToLearn, fit_and_measure, fit_model, missing_prompts
from streamer.scoring.gram import gram_energy
from streamer.scoring.learned import LONGEST_MODEL, LearnedModel, UnknownModel, learned_scores
from streamer.scoring.registry import scorer_named

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


def model(order: str = "gram", **changes: object) -> LearnedModel:
    made = LearnedModel(
        features=("gram", "log_length"),
        means=(0.5, 0.2),
        scales=(0.25, 0.125),
        coefficients=(-1.0, 2.0),
        intercept=0.5,
        order="gram" if order == "gram" else "own",
        prompts=125,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_model_is_applied_by_hand() -> None:
    rows = agreement(batch())
    odds = 0.5 - (column("gram") - 0.5) / 0.25 + 2 * (column("log_length") - 0.2) / 0.125
    own = learned_scores(model("own"), rows, BLANK)
    np.testing.assert_allclose(own[:4], (1 / (1 + np.exp(-odds)))[:4].round(6))
    assert own[4] == 0
    by_gram = learned_scores(model(), rows, BLANK)
    assert by_gram[:3].tolist() == [own[:3].max()] * 3, "all three come first by Gram energy"
    assert by_gram[3] == pytest.approx(by_gram[0] - 1e-6), "the model is surer of it, and Gram energy is not"
    apart = rows.copy()
    apart[1, FEATURES.index("gram")] = 0.9
    alone = learned_scores(model(), apart, BLANK)
    assert (alone[[0, 2, 3]] < alone[1]).all()


def test_a_model_is_written_and_read_and_has_the_name_of_its_text() -> None:
    text = model().text
    assert LearnedModel.of_text(text) == model()
    assert model().name == LearnedModel.of_text(text).name != model(intercept=0.6).name
    assert scorer_named(model().name, text).score(batch()).max() > 0
    with pytest.raises(ValueError, match="the model is learned@"):
        scorer_named(model(intercept=0.6).name, text)
    values = json.loads(text)
    for changed in (
        "[]",
        "x",
        text + " ",
        " " * (LONGEST_MODEL + 1),
        json.dumps(values),
        json.dumps(values | {"scales": [0.25, 0.0]}, sort_keys=True, separators=(",", ":")),
        json.dumps(values | {"means": [0.5]}, sort_keys=True, separators=(",", ":")),
        json.dumps(values | {"means": ["1", 2]}, sort_keys=True, separators=(",", ":")),
        json.dumps(values | {"features": ["gram", "gram"]}, sort_keys=True, separators=(",", ":")),
        json.dumps(values | {"features": ["gram", "prompt"]}, sort_keys=True, separators=(",", ":")),
        json.dumps(values | {"order": "best"}, sort_keys=True, separators=(",", ":")),
        text.replace("0.5", "NaN"),
        text.replace("0.5", "1e999"),
    ):
        with pytest.raises(ValueError, match=r"a model|this version|must"):
            LearnedModel.of_text(changed)


def test_a_gate_has_the_model_of_its_scorer_or_none() -> None:
    plain = {"encoder": "e@12345678"}
    made = GateSettings(**plain, scorer=model().name, model=model().text)
    assert made.scores_by.score(batch()).max() > 0
    own = model("own")
    assert GateSettings(**plain, unit="response", scorer=own.name, model=own.text).unit == "response"
    for wrong, said in (
        ({"scorer": model().name}, "streamer score fit"),
        ({"scorer": "gram", "model": model().text}, "model must be absent"),
        ({"scorer": own.name, "model": model().text}, "not of learned@"),
        ({"scorer": own.name, "model": own.text}, "unit must be"),
        ({"scorer": "learned@x", "model": own.text}, "scorer must be one of"),
    ):
        with pytest.raises(ValueError, match=said):
            GateSettings(**plain, **wrong)


def test_a_batch_has_the_same_fold_forever_and_half_are_in_each() -> None:
    salt = bytes(range(32))
    assert [fold_of(salt, "gate", f"batch-{n}") for n in range(6)] == [
        "calibrate", "calibrate", "fit", "fit", "fit", "calibrate",
    ]  # fmt: skip
    fit = sum(fold_of(salt, "gate", f"batch-{n}") == "fit" for n in range(4000))
    assert abs(fit - 2000) < 5 * math.sqrt(1000)
    other = sum(
        fold_of(salt, "gate", f"batch-{n}") == fold_of(salt, "other", f"batch-{n}") for n in range(4000)
    )
    assert abs(other - 2000) < 5 * math.sqrt(1000)


def examples(count: int, *, wrong: float = 0.0) -> list[Example]:
    """Answers that are fine where the sixth number is high."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(count, len(FEATURES)))
    bad = (rows[:, 5] < 0) != (rng.random(count) < wrong)
    return [Example(f"p{n}", rows[n : n + 1], bad[n : n + 1].astype(float), 0) for n in range(count)]


def test_a_fit_depends_on_the_labels_alone_and_not_on_their_order() -> None:
    some = examples(60, wrong=0.1)
    made = fit_model(some, order="gram")
    assert fit_model(some[::-1], order="gram") == made
    assert made.prompts == 60
    place = made.features.index(FEATURES[5])
    assert abs(made.coefficients[place]) == max(map(abs, made.coefficients))
    _, (much,) = fit_and_measure(some, order="gram", alphas=[0.1], calibrating=60, all_labelled=120)
    assert much.shown
    assert much.gain > 0.2


def test_nothing_is_learned_from_too_little() -> None:
    same = [replace(one, severities=np.zeros(1)) for one in examples(60)]
    with pytest.raises(NothingToLearn, match="all labels say the same"):
        fit_model(same, order="gram")
    with pytest.raises(NothingToLearn, match="too few"):
        fit_model(examples(5), order="gram")
    one_bad = [replace(one, severities=np.full(1, float(n == 0))) for n, one in enumerate(examples(60))]
    with pytest.raises(NothingToLearn, match="nearly all"):
        fit_and_measure(one_bad, order="gram", alphas=[0.1], calibrating=60, all_labelled=120)
    assert missing_prompts(250) is None
    assert "label 40 more" in str(missing_prompts(210))


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


def test_a_score_that_knows_models_scores_answers_of_these_alone() -> None:
    knows = model(
        "own",
        features=("gram", "other_models_cosine", "model=large"),
        means=(0.5, 0.25, 0.5),
        scales=(0.25, 0.5, 0.5),
        coefficients=(-1.0, 1.0, 2.0),
        models=("", "large", "small"),
    )
    assert LearnedModel.of_text(knows.text) == knows
    assert knows.steepness == max(1.0, (1 / 0.25 + 1 / 0.5) / 4), "a name has no last digits"
    rows = agreement(of_models())
    large = np.array([0.0, 1.0, 0.0, 0.0, 1.0])
    odds = 0.5 - (rows[:, 0] - 0.5) / 0.25 + (rows[:, -1] - 0.25) / 0.5 + 2 * (large - 0.5) / 0.5
    scorer = scorer_named(knows.name, knows.text)
    np.testing.assert_allclose(scorer.score(of_models())[:4], (1 / (1 + np.exp(-odds)))[:4].round(6))
    assert scorer.score(batch()).max() > 0, "it has seen answers without a name"
    with pytest.raises(
        UnknownModel, match="no answers of newer, but on those of an unnamed one, large, small"
    ):
        scorer.score(of_models(("small", "newer", "small", "", "large")))
    nameless = replace(knows, models=("large", "small"))
    with pytest.raises(UnknownModel, match="an unnamed model"):
        learned_scores(nameless, agreement(batch()), BLANK)
    for wrong in ({"models": ("small", "large")}, {"models": ("",)}, {"models": ()}, {"models": ("x",)}):
        with pytest.raises(ValueError, match=r"models must|this version"):
            replace(knows, **wrong)  # type: ignore[arg-type]


def test_a_score_of_before_there_were_models_applies_as_it_did_whatever_answers_name() -> None:
    text = (
        '{"coefficients":[-1.0,2.0],"features":["gram","log_length"],"format":"streamer.learned.v1","intercept":0.5,'
        '"means":[0.5,0.2],"order":"own","prompts":125,"scales":[0.25,0.125]}'
    )
    assert LearnedModel.of_text(text) == model("own")
    assert model("own").name == "learned@9ad695660e08ef99"
    scorer = scorer_named(model("own").name, text)
    assert (
        scorer.score(of_models()).tolist()
        == scorer.score(batch()).tolist()
        == [0.699027, 0.40265, 0.699027, 0.970335, 0.0]
    )


def test_a_fit_learns_which_models_are_right_and_freezes_their_names() -> None:
    plain = examples(60)
    named = []
    for number, one in enumerate(plain):
        name = ("small", "large", "other")[number % 3]
        wide = np.hstack([one.features, np.zeros((1, 1))])
        bad = np.full(1, float(name == "small"))
        named.append(
            replace(one, features=wide, severities=bad, models=(name,), seen=frozenset({name, "never first"}))
        )
    made = fit_model(named, order="own")
    assert made.models == ("large", "never first", "other", "small")
    assert "model=never first" not in made.features, "no label says anything of it"
    weight = dict(zip(made.features, made.coefficients, strict=True))
    assert weight["model=small"] == -max(map(abs, made.coefficients))
    assert weight["model=large"] > 0
    alone = fit_model([replace(one, models=("one",), seen=frozenset({"one"})) for one in named], order="own")
    assert (alone.models, alone.features[-1]) == (("one",), FEATURES[-1])
    with pytest.raises(NothingToLearn, match="by family"):
        fit_model(
            [
                replace(one, models=(f"m{n}" + "x" * 190,), seen=frozenset({f"m{n}" + "x" * 190}))
                for n, one in enumerate(named)
            ],
            order="own",
        )


def test_without_models_a_fit_is_what_it_was_whatever_the_last_column_holds() -> None:
    some = examples(60, wrong=0.1)
    wider = [replace(one, features=np.hstack([one.features, np.zeros((1, 1))])) for one in some]
    assert fit_model(wider, order="gram").text == fit_model(some, order="gram").text
    assert "models" not in json.loads(fit_model(wider, order="gram").text)
