"""Other models than the default: small ones with random weights, saved and loaded by the real libraries."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer.errors import UsageError
from streamer.scoring.encoders.encoder import Encoder, EncoderIdentity
from streamer.scoring.encoders.registry import encoder_identity, find_encoder, load_encoder, what_it_reads
from streamer.scoring.encoders.sentence_transformer import SentenceTransformerEncoder
from streamer.scoring.encoders.tokenizing import SCRIPTS

pytestmark = pytest.mark.encoder

TEXTS = ["Paris", "Lyon", "", "It is Paris, the capital of France.", "long " * 80, "longer " * 79, "x"]


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
UNKNOWN = ("Thai", "Korean", "Ethiopic")
"""Scripts that the multilingual model's pieces were not learned from."""


def bert(words: Path) -> None:
    """A BERT with the default's pieces."""
    from transformers import BertConfig, BertModel

    BertModel(BertConfig(**SIZES, max_position_embeddings=64)).save_pretrained(words)
    default = find_encoder("all-MiniLM-L6-v2").folder
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (words / name).write_bytes((default / name).read_bytes())


def xlm_roberta(words: Path) -> None:
    """An XLM-RoBERTa with SentencePiece's pieces of most scripts."""
    from tokenizers import Tokenizer, trainers
    from tokenizers.models import Unigram
    from tokenizers.pre_tokenizers import Metaspace
    from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    learned = Tokenizer(Unigram())
    learned.pre_tokenizer = Metaspace()
    known = [text for script, text in SCRIPTS.items() if script not in UNKNOWN]
    learned.train_from_iterator(
        known,
        trainers.UnigramTrainer(
            vocab_size=600, special_tokens=special, unk_token="<unk>", show_progress=False
        ),
    )
    vocab = [tuple(one) for one in json.loads(learned.to_str())["model"]["vocab"]]
    tokenizer = XLMRobertaTokenizer([*vocab, ("<mask>", 0.0)], model_max_length=64)
    tokenizer.save_pretrained(words)
    config = XLMRobertaConfig(
        **SIZES, vocab_size=len(tokenizer), max_position_embeddings=66, type_vocab_size=1
    )
    XLMRobertaModel(config).save_pretrained(words)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Save a model of two narrow layers, 64 tokens at most, with the modules that are asked for."""

    def save(
        pooling: str = "cls", dense: bool = True, model: Callable[[Path], None] = bert, **settings: Any
    ) -> Path:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Dense, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        torch.manual_seed(5)
        words = tmp_path / "words"
        model(words)
        transformer = Transformer(str(words), max_seq_length=64)
        modules: list[Any] = [transformer, Pooling(32, pooling)]
        if dense:
            modules.append(Dense(32, 24))
        folder = tmp_path / "small-model"
        SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder))
        return folder

    return save


def reference(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def alone_and_together(encoder: Encoder) -> None:
    together = encoder.encode(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert encoder.encode([text])[0].tobytes() == row.tobytes()


def test_a_model_with_a_dense_head_and_without_normalisation(save: Callable[..., Path]):
    folder = save()
    encoder = load_encoder(str(folder), device="cpu", threads=2, strict=False)
    assert encoder.identity == encoder_identity(str(folder))
    assert encoder.identity.dimension == 24
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=1e-5)
    alone_and_together(encoder)
    encoder.close()


def test_a_model_that_pads_on_the_left(save: Callable[..., Path]):
    folder = save(pooling="mean", dense=False)
    encoder = SentenceTransformerEncoder(
        folder, encoder_identity(str(folder)), device="cpu", threads=1, strict=False
    )
    right = encoder.encode(TEXTS)
    encoder._model.tokenizer.padding_side = "left"
    alone_and_together(encoder)
    # This model counts positions from the first column, so padding on the left must show.
    assert not np.allclose(encoder.encode(TEXTS), right, rtol=0, atol=1e-3)
    encoder.close()


def test_a_prompt_by_default_is_put_before_every_text(save: Callable[..., Path]):
    folder = save(prompts={"about": "Answer: "}, default_prompt_name="about")
    encoder = load_encoder(str(folder), device="cpu", threads=2, strict=False)
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=1e-5)
    alone_and_together(encoder)
    encoder.close()


def test_texts_that_go_one_by_one_use_every_thread(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    folder = save(prompts={"about": "Answer: "}, default_prompt_name="about")
    encoder = SentenceTransformerEncoder(
        folder, encoder_identity(str(folder)), device="cpu", threads=2, strict=False
    )
    both = threading.Barrier(2)
    encode = encoder._model.encode

    def meet(*given: Any, **named: Any) -> Any:
        both.wait(timeout=120)
        return encode(*given, **named)

    monkeypatch.setattr(encoder._model, "encode", meet)
    told: list[int] = []
    encoder.encode(TEXTS[:6], progress=told.append)
    assert told == [1] * 6
    encoder.close()


@pytest.mark.parametrize("prompt", [None, "about"])
def test_truncated_vectors_are_unit_vectors_again(save: Callable[..., Path], prompt: str | None):
    folder = save(truncate_dim=8, prompts={"about": "Answer: "}, default_prompt_name=prompt)
    encoder = load_encoder(str(folder), device="cpu", threads=1, strict=False)
    assert encoder.identity.dimension == 8
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=1e-5)
    encoder.close()


def test_vectors_that_are_not_finite_are_found_at_start(save: Callable[..., Path]):
    import torch
    from safetensors.torch import load_file, save_file

    folder = save()
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    save_file(
        {name: torch.full_like(value, np.nan) for name, value in weights.items()},
        folder / "2_Dense" / "model.safetensors",
    )
    with pytest.raises(UsageError, match="not finite"):
        load_encoder(str(folder), device="cpu")


def test_a_folder_that_is_not_what_it_was_said_to_be(save: Callable[..., Path]):
    folder = save()
    identity = EncoderIdentity("small-model", "local", "0" * 64, 25)
    with pytest.raises(UsageError, match="makes 24 numbers a text, its files say 25"):
        SentenceTransformerEncoder(folder, identity, device="cpu")


def test_a_damaged_file_is_told(save: Callable[..., Path]):
    folder = save()
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_encoder(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("device", "says"), [("tpu9", "not a device"), ("cuda", "no GPU is visible"), ("mps", "no Metal device")]
)
def test_devices_that_are_not_here(device: str, says: str):
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match=says):
        load_encoder("all-MiniLM-L6-v2+sentence-transformers", device=device)


@pytest.mark.parametrize("engine", ["ctranslate2", "sentence-transformers"])
def test_at_least_one_thread(engine: str):
    with pytest.raises(UsageError, match="at least 1 thread"):
        load_encoder(f"all-MiniLM-L6-v2+{engine}", device="cpu", threads=0, strict=False)


def test_a_plain_bert_is_run_by_ctranslate2_and_gives_the_reference_s_vectors(save: Callable[..., Path]):
    folder = save(pooling="mean", dense=False)
    encoder = load_encoder(str(folder), threads=2, strict=False)
    assert encoder.identity.id == encoder_identity(f"{folder}+sentence-transformers").id + "+ctranslate2"
    expected = reference(folder).encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=1e-6)
    alone_and_together(encoder)
    encoder.close()


@pytest.mark.parametrize("engine", ["ctranslate2", "sentence-transformers"])
def test_a_multilingual_model_from_a_folder(save: Callable[..., Path], engine: str):
    folder = save(pooling="mean", dense=False, model=xlm_roberta)
    assert load_encoder(str(folder)).identity.engine == "ctranslate2", "which is looked for first"
    name = f"{folder}+{engine}"
    texts = [*SCRIPTS.values(), *TEXTS, "two  spaces\tand a line\n", "\u200bÅ\u0301 ﬁ ½ ＡＢ"]
    lenient = load_encoder(name, threads=2, strict=False, device="cpu")
    expected = reference(folder).encode(texts, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(lenient.encode(texts), expected, rtol=0, atol=1e-5)
    alone_and_together(lenient)
    assert what_it_reads(name) == (64, {script: script not in UNKNOWN for script in SCRIPTS})
    encoder = load_encoder(name, threads=1, device="cpu")
    thai, fits, long, mark = encoder.encode([SCRIPTS["Thai"], "a " * 20, "capital " * 62 + "x", "👍"])
    assert np.isnan(thai).all()
    assert np.isnan(mark).all(), "the piece for a space before it is none of what is seen"
    assert np.linalg.norm(fits) == pytest.approx(1)
    assert not long.any()


def test_what_the_default_reads():
    longest, scripts = what_it_reads("all-MiniLM-L6-v2")
    assert longest == 256
    found = [script for script, read in scripts.items() if read]
    assert found == [*("Latin", "Greek", "Cyrillic", "Hebrew", "Arabic", "Korean")]


def test_what_ctranslate2_cannot_run_is_refused_when_it_is_asked_for(save: Callable[..., Path]):
    folder = save(pooling="cls", dense=False)
    assert encoder_identity(str(folder)).engine == ""
    with pytest.raises(UsageError, match=r"is not a plain BERT .*: leave out \+ctranslate2"):
        load_encoder(f"{folder}+ctranslate2")


def test_a_gpu_is_for_sentence_transformers():
    with pytest.raises(UsageError, match=r"name the encoder all-MiniLM-L6-v2\+sentence-transformers"):
        load_encoder(device="cuda")


@pytest.mark.parametrize(
    "missing", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"]
)
def test_a_tensor_that_is_missing_is_told(save: Callable[..., Path], missing: str):
    from safetensors.torch import load_file, save_file

    folder = save(pooling="mean", dense=False)
    weights = load_file(folder / "model.safetensors")
    save_file({name: one for name, one in weights.items() if name != missing}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=f"cannot be loaded: it has no '{missing}'"):
        load_encoder(str(folder))


def test_vectors_of_a_plain_bert_that_are_not_finite_are_found_at_start(save: Callable[..., Path]):
    from safetensors.torch import load_file, save_file

    folder = save(pooling="mean", dense=False)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.output.dense.bias"][:] = np.nan
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UsageError, match="not finite"):
        load_encoder(str(folder))


def test_a_damaged_plain_bert_is_told(save: Callable[..., Path]):
    folder = save(pooling="mean", dense=False)
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_encoder(str(folder))
