"""Which sentence-transformers folders are a plain BERT or XLM-RoBERTa with mean pooling, and CTranslate2's form of them.

The form is filled from the safetensors by numpy: neither torch nor transformers is needed. It takes half a second of
processor time, so it is made at each start and nothing is kept that could go stale or be exchanged.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.scoring.encoders.identity import module_kinds, read_json

if TYPE_CHECKING:
    import ctranslate2
    from tokenizers import Tokenizer

_ACTIVATIONS = {"gelu": "GELU", "gelu_new": "GELUTanh", "relu": "RELU"}
"""The name in config.json, and CTranslate2's."""
WORDS_OF_A_TRIAL = 64
"""Rows of the table of words that are kept where only some layers are: a trial needs words, whichever."""

_MODULES = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])


@dataclass(frozen=True, slots=True)
class PlainBert:
    """A folder whose model is a plain BERT or XLM-RoBERTa encoder: mean pooling, no prompts,
    absolute positions.

    Texts are cut after `longest` tokens, special ones included.
    """

    folder: Path
    config: dict[str, Any]
    longest: int

    @property
    def first_position(self) -> int:
        """The row of the table of positions that the first token has."""
        return _first_position(self.config)


def plain_bert(folder: Path) -> PlainBert | None:
    """Return what `folder` holds if CTranslate2 runs it; None: only sentence-transformers can run it. Reads no weights."""
    modules = module_kinds(folder)
    config = read_json(folder / "config.json")
    own = read_json(folder / "config_sentence_transformers.json")
    words = read_json(folder / "sentence_bert_config.json")
    tokenizer = read_json(folder / "tokenizer_config.json")
    plain = (
        [kind for _, kind in modules] in _MODULES
        and config.get("model_type") in _NORMALISE
        and config.get("position_embedding_type", "absolute") == "absolute"
        and config.get("hidden_act") in _ACTIVATIONS
        and not config.get("is_decoder")
        and (folder / "model.safetensors").is_file()
        and (folder / "tokenizer.json").is_file()
        and not words.get("do_lower_case")
        and own.get("truncate_dim") is None
        and not own.get("default_prompt_name")
        and own.get("similarity_fn_name") in (None, "cosine")
        and isinstance(config.get("max_position_embeddings"), int)
        and tokenizer.get("truncation_side", "right") == "right"
        and _pools_by_mean(read_json(modules[1][0] / "config.json"))
        and _NORMALISE[config["model_type"]](read_json(folder / "tokenizer.json"), tokenizer)
    )
    longest = longest_text(folder)
    return PlainBert(folder, config, longest) if plain and longest is not None else None


def longest_text(folder: Path) -> int | None:
    """Return the tokens, special ones included, after which a folder's model cuts a text; None: its files do not say."""
    config, tokenizer = read_json(folder / "config.json"), read_json(folder / "tokenizer_config.json")
    words, positions = read_json(folder / "sentence_bert_config.json"), config.get("max_position_embeddings")
    own = words.get("max_seq_length") or tokenizer.get("model_max_length")
    limits = [own, positions - _first_position(config) if isinstance(positions, int) else None]
    return min((limit for limit in limits if isinstance(limit, int)), default=None)


def load_tokenizer(model: PlainBert) -> Tokenizer:
    """The model's tokenizer; see `folder_tokenizer`."""
    return folder_tokenizer(model.folder, model.longest)


def folder_tokenizer(folder: Path, longest: int | None) -> Tokenizer:
    """The tokenizer of a folder: cuts where sentence-transformers cuts, and never pads.

    Raises `UsageError` where its file cannot be read.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(f"the tokenizer in {folder} cannot be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if longest is not None:
        tokenizer.enable_truncation(longest)
    return tokenizer


def load_model(
    model: PlainBert, tokenizer: Tokenizer, *, threads: int, layers: int | None = None
) -> ctranslate2.Encoder:
    """The model in float32, which runs up to `threads` passes at a time, each on one thread.

    `layers` keeps only so many, for a trial of how they multiply, and of its words the first `WORDS_OF_A_TRIAL`.
    Raises `UsageError` where the weights are damaged, or are not those of a plain BERT.
    """
    # Intel's library gives a row the same bits in passes of any number of rows. The other one, which is
    # CTranslate2's choice on AMD, does not, and is slower there. Read when the first model is loaded.
    if platform.machine() in {"x86_64", "AMD64"}:
        os.environ.setdefault("CT2_USE_MKL", "1")
    import ctranslate2

    try:
        spec = _spec(model, tokenizer, layers)
        with tempfile.TemporaryDirectory(prefix="streamer-encoder-") as folder:
            spec.save(folder)
            return ctranslate2.Encoder(
                folder, device="cpu", compute_type="float32", inter_threads=threads, intra_threads=1
            )
    except (KeyError, ValueError, RuntimeError, OSError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"the encoder in {model.folder} cannot be loaded: {reason}") from error


def backend() -> str:
    """CTranslate2's version and the library that multiplies for it, for example ``ctranslate2 4.8.5 mkl``."""
    from importlib.metadata import version

    mkl = platform.machine() in {"x86_64", "AMD64"} and os.environ.get("CT2_USE_MKL", "1") == "1"
    return f"ctranslate2 {version('ctranslate2')} {'mkl' if mkl else 'default'}"


def _spec(model: PlainBert, tokenizer: Tokenizer, layers: int | None) -> Any:
    with _without_torch():
        from ctranslate2.specs import common_spec, transformer_spec

    config, weights = model.config, _Weights(model.folder)
    encoder = transformer_spec.TransformerEncoderSpec(
        layers or config["num_hidden_layers"],
        config["num_attention_heads"],
        pre_norm=False,
        activation=common_spec.Activation[_ACTIVATIONS[config["hidden_act"]]],
        layernorm_embedding=True,
        num_source_embeddings=2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
    )
    encoder.scale_embeddings = False
    spec = transformer_spec.TransformerEncoderModelSpec(encoder)
    known = weights["embeddings.word_embeddings.weight"]
    encoder.embeddings[0].weight = known if layers is None else known[:WORDS_OF_A_TRIAL]
    encoder.embeddings[1].weight = weights["embeddings.token_type_embeddings.weight"]
    positions = weights["embeddings.position_embeddings.weight"]
    encoder.position_encodings.encodings = np.ascontiguousarray(positions[model.first_position :])
    weights.norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for number, layer in enumerate(encoder.layer):
        at = f"encoder.layer.{number}"
        attention = layer.self_attention
        weights.linear(
            attention.linear[0], *(f"{at}.attention.self.{one}" for one in ("query", "key", "value"))
        )
        weights.linear(attention.linear[1], f"{at}.attention.output.dense")
        weights.norm(attention.layer_norm, f"{at}.attention.output.LayerNorm")
        weights.linear(layer.ffn.linear_0, f"{at}.intermediate.dense")
        weights.linear(layer.ffn.linear_1, f"{at}.output.dense")
        weights.norm(layer.ffn.layer_norm, f"{at}.output.LayerNorm")
    words = tokenizer.get_vocab()
    by_number = dict(zip(words.values(), words, strict=True))
    # Texts come as numbers: a name stands for each row of the table, and is never looked up.
    rows = len(encoder.embeddings[0].weight)
    spec.register_vocabulary([by_number.get(number, f"[row {number}]") for number in range(rows)])
    spec.config.layer_norm_epsilon = config["layer_norm_eps"]
    spec.config.unk_token = by_number[0]
    spec.validate()
    return spec


class _Weights:
    """The tensors of a folder by their name in a BERT model, as float32."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            tensors = load_file(folder / "model.safetensors")
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        self._tensors = {
            name.removeprefix("bert.").removeprefix("roberta."): tensor for name, tensor in tensors.items()
        }

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return np.ascontiguousarray(self._tensors[name], dtype=np.float32)

    def norm(self, spec: Any, name: str) -> None:
        spec.gamma, spec.beta = self[f"{name}.weight"], self[f"{name}.bias"]

    def linear(self, spec: Any, *names: str) -> None:
        spec.weight = np.concatenate([self[f"{name}.weight"] for name in names])
        spec.bias = np.concatenate([self[f"{name}.bias"] for name in names])


@contextmanager
def _without_torch() -> Iterator[None]:
    """Where torch is installed, CTranslate2 would import it, which takes seconds, to convert what is not converted here."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def _pools_by_mean(pooling: dict[str, Any]) -> bool:
    named = pooling.get("pooling_mode")
    if named is not None:
        return named in ("mean", ["mean"]) and pooling.get("include_prompt", True)
    modes = {key for key, on in pooling.items() if key.startswith("pooling_mode_") and on is True}
    return modes == {"pooling_mode_mean_tokens"}


def _normalises_as_configured(file: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether tokenizer.json says of itself what tokenizer_config.json says, which transformers gives precedence."""
    normalizer = file.get("normalizer") or {}
    return (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("lowercase") == config.get("do_lower_case", True)
        and normalizer.get("strip_accents") == config.get("strip_accents")
        and normalizer.get("handle_chinese_chars") == config.get("tokenize_chinese_chars", True)
    )


def _pieces_as_configured(file: dict[str, Any], _config: dict[str, Any]) -> bool:
    """Whether tokenizer.json has what transformers makes of every XLM-RoBERTa: SentencePiece's characters and pieces, nothing else."""
    before = file.get("pre_tokenizer") or {}
    return (
        (file.get("model") or {}).get("type") == "Unigram"
        and (file.get("normalizer") or {}).get("type", "Precompiled") == "Precompiled"
        and [one.get("type") for one in before.get("pretokenizers", ())] == ["WhitespaceSplit", "Metaspace"]
        and (file.get("post_processor") or {}).get("type") == "TemplateProcessing"
    )


def _first_position(config: dict[str, Any]) -> int:
    """RoBERTa counts positions from behind the number of the token that pads."""
    return int(config.get("pad_token_id", 1)) + 1 if config.get("model_type") == "xlm-roberta" else 0


_NORMALISE = {"bert": _normalises_as_configured, "xlm-roberta": _pieces_as_configured}
"""What tells whether tokenizer.json, which is read here, is what transformers would make, by the type of model."""
