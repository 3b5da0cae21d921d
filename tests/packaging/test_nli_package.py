"""The example of an NLI model as a gate's scorer, with a tiny one that is written here."""

import importlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from streamer.labels.answer_forms import answer_batch
from streamer.scoring.encoders.registry import DEFAULT_ENCODER, find_encoder
from tests.packaging.test_scorer_package import ROOT

EXAMPLE = ROOT / "examples" / "nli-scorer-package"
WEIGHTS = shutil.ignore_patterns("model")
ANSWERS = ("in the depot", "in the shop today")  # as `tests.packaging.test_scorer_package.USE` delivers them


def write_model(folder: Path, seed: int) -> None:
    """A cross-encoder of three labels with random weights, and the packaged encoder's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(find_encoder(DEFAULT_ENCODER).folder)
    labels = {0: "entailment", 1: "neutral", 2: "contradiction"}
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, initializer_range=2.0, id2label=labels,
        label2id={label: place for place, label in labels.items()},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def contradiction(folder: Path, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """What the model says of each pair, by transformers alone."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        logits = [model(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in pairs]
    return [float(torch.softmax(one.double(), dim=0)[2]) for one in logits]


def expected(model: Path) -> list[float]:
    """The scores of `ANSWERS`: one minus the mean of what the model says of them, both ways."""
    there, back = contradiction(model, [ANSWERS, ANSWERS[::-1]])
    assert there != pytest.approx(back, abs=1e-3), "else it would not show that both ways count"
    return [1 - (there + back) / 2] * 2


@pytest.mark.slow
@pytest.mark.encoder
def test_an_nli_model_says_which_answers_the_others_contradict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = shutil.copytree(EXAMPLE / "src" / "nli_scorer", tmp_path / "nli_scorer", ignore=WEIGHTS)
    write_model(code / "model", 1)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nli_scorer", raising=False)
    module = importlib.import_module("nli_scorer")
    answers = [ANSWERS[0], " ", ANSWERS[1], ANSWERS[0]]
    scores = module.Nli().score(answer_batch(answers, np.ones((4, 2)), [False, True, False, False]))
    other, _ = expected(code / "model")
    (same,) = contradiction(code / "model", [(ANSWERS[0], ANSWERS[0])])
    # The blank answer contradicts each other one, and agrees with none.
    mixed = ((1 - same) + other) / 3
    assert scores.tolist() == pytest.approx([mixed, 0, 2 * other / 3, mixed], abs=2e-6)
