"""BERTScore (Zhang et al. 2020) of pairs of texts, computed by the package `bert-score`.

The package's last release (0.3.13, 2023) still computes, but prepares models for versions of transformers that are gone,
and its batches leave traces in scores. So the model, its tokenizer and the batches are prepared here; the token vectors
(`get_bert_embedding`), their matching (`greedy_cos_idf`) and the tables of layers and baselines are the package's.
Different from its own `score` are:

- a RoBERTa tokenizer is set to put a space before the first word when it is loaded. The package says so in each call,
  which transformers 5 ignores: first words would become other tokens than in published scores;
- a tokenizer whose files bound no length is bounded by the model's positions (the package's call overflows);
- texts without a token have F1 = 0 before rescaling, as there, without asking the package, which fails on them;
- pairs are matched without padding. In the package's batches a padded place has the cosine 0, which wins over
  negative ones: a score could move by some 1e-3 with the pairs beside it;
- unused layers are not loaded at all, weights are safetensors in float32, and no code of a model is run.
"""

import csv
import importlib
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamer import extras
from streamer.errors import UsageError
from streamer.scoring.encoders.identity import HASH_PREFIX, weight_hash
from streamer.scoring.encoders.model_loading import quiet_libraries, resolve_device
from streamer.scoring.encoders.registry import hub_snapshot

DEFAULT_MODEL = "roberta-large"
"""The paper's model, from the Hugging Face hub."""

_HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
_PAIRS_AT_ONCE = 1024
_LONGEST = 512
_PROBE = "A probe that is longer than any text that a model takes. " * 200


class BertScorer:
    """F1 of pairs of texts by one model; a `streamer.labels.severity.SimilarityScorer`.

    `model` is the path of a local model folder (anything that is a folder, or starts with ``.``,
    ``/`` or ``~``), or a model of the hub, ``name``, ``organisation/name`` or
    ``organisation/name@revision``: an encoder with safetensors weights whose tokenizer puts one
    token before and one after a text (BERT, RoBERTa, DeBERTa, ...). `layers` is the layer whose
    vectors are compared, from 1; by default the one that `bert-score` has found best for the model,
    which it knows by name (for a folder: the folder's name). `rescale_with_baseline` maps F1 to
    (F1 - b) / (1 - b), where b is the mean F1 of unrelated sentences, which may then fall below 0;
    the paper rescales. `baseline_file` has b, as CSV with the columns LAYER and F; by default the one
    that `bert-score` ships for the model, in English. `batch_size` texts, >= 1, are in one pass of
    the model. `device` is ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ``cuda:1``, ``mps``.

    `id` says what was computed, for the record: ``bertscore/roberta-large@1234abcd/17/rescaled``.
    Thread-safe; calls run one after another. A score may move by some 1e-7 with what else is scored
    in the call.

    Raises `UsageError`, which says what to do, when the extra is not installed, or the model, its
    layer or its baseline cannot be obtained; `Unavailable` when the hub did not hand the model
    over.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        layers: int | None = None,
        rescale_with_baseline: bool = False,
        baseline_file: Path | None = None,
        batch_size: int = 64,
        device: str = "auto",
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"BERTScore needs a batch of at least 1 text, not {batch_size}")
        if baseline_file is not None and not rescale_with_baseline:
            raise UsageError(
                "a baseline file is used for rescaling only: ask for rescaling as well, or leave it out"
            )
        self._package = _bert_score()
        name, folder = _find(model)
        self._layer = layers if layers is not None else _best_layer(self._package, name)
        self._baseline = (
            _read_baseline(baseline_file or _packaged_baseline(self._package, name), self._layer)
            if rescale_with_baseline
            else None
        )
        self._batch_size = batch_size
        self._device = resolve_device(device)
        with quiet_libraries():
            self._model = _load_model(folder, self._layer, self._device)
            self._tokenizer = _load_tokenizer(folder, self._model)
        self._lock = threading.Lock()
        rescaled = "" if self._baseline is None else "/rescaled"
        self.id = f"bertscore/{name}@{weight_hash(folder)[:HASH_PREFIX]}/{self._layer}{rescaled}"
        self._check()

    def f1(
        self,
        candidates: Sequence[str],
        references: Sequence[str],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[float]:
        """BERTScore F1 of each candidate with the reference beside it: at most 1, give or take
        rounding; at least -1, or less where it is rescaled.

        A text that is longer than the model takes is cut. `progress` is called with how many more
        pairs are done. Raises `ValueError` if there are not as many candidates as references.
        """
        pairs = list(zip(candidates, references, strict=True))
        scores: list[float] = []
        with self._lock:
            for start in range(0, len(pairs), _PAIRS_AT_ONCE):
                together = pairs[start : start + _PAIRS_AT_ONCE]
                scores += self._f1(together)
                if progress is not None:
                    progress(len(together))
        if (baseline := self._baseline) is None:
            return scores
        return [(score - baseline) / (1.0 - baseline) for score in scores]

    def _f1(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        pairs = [(candidate.strip(), reference.strip()) for candidate, reference in pairs]
        has_tokens = {text: self._has_tokens(text) for text in {text for pair in pairs for text in pair}}
        vectors = self._vectors([text for text, usable in has_tokens.items() if usable])
        # Pairs of the same two lengths are matched together, without padding.
        alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for i, (candidate, reference) in enumerate(pairs):
            if has_tokens[candidate] and has_tokens[reference]:
                alike[vectors[candidate][1].shape[1], vectors[reference][1].shape[1]].append(i)
        scores = [0.0] * len(pairs)
        for members in alike.values():
            for start in range(0, len(members), self._batch_size):
                batch = members[start : start + self._batch_size]
                found = self._matched(
                    [vectors[pairs[i][1]] for i in batch], [vectors[pairs[i][0]] for i in batch]
                )
                for i, score in zip(batch, found, strict=True):
                    scores[i] = score
        return scores

    def _vectors(self, texts: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Each text's token vectors, shape (1, tokens, d), and the tokens' weights, shape (1, tokens)."""
        # Each token counts as much as another; the two that mark the ends of a text count nothing.
        weights: defaultdict[int, float] = defaultdict(lambda: 1.0)
        weights[self._tokenizer.sep_token_id] = weights[self._tokenizer.cls_token_id] = 0.0
        vectors = {}
        order = sorted(texts, key=lambda text: (len(text), text))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            rows, mask, of_tokens = self._package.get_bert_embedding(
                batch, self._model, self._tokenizer, weights, device=self._device
            )
            for i, text in enumerate(batch):
                tokens = int(mask[i].sum())
                vectors[text] = (rows[i : i + 1, :tokens].cpu(), of_tokens[i : i + 1, :tokens].cpu())
        return vectors

    def _matched(
        self, references: Sequence[tuple[Any, Any]], candidates: Sequence[tuple[Any, Any]]
    ) -> list[float]:
        import torch

        # New tensors, since the package's function normalises its arguments in place.
        sides: list[Any] = []
        for side in (references, candidates):
            weights = torch.cat([of_tokens for _, of_tokens in side])
            sides += [
                torch.cat([rows for rows, _ in side]),
                torch.ones_like(weights, dtype=torch.long),
                weights,
            ]
        _, _, f1 = self._package.greedy_cos_idf(*sides)
        scores: list[float] = f1.tolist()
        return scores

    def _has_tokens(self, text: str) -> bool:
        # Cut to one token: the library warns of every text that is longer than the model takes.
        return bool(text) and bool(
            self._tokenizer.encode(text, add_special_tokens=False, truncation=True, max_length=1)
        )

    def _check(self) -> None:
        """Score once: files that do not fit together are reported at the start."""
        try:
            (same, other) = self._f1([(_PROBE, _PROBE), (_PROBE, "Paris")])
        except (IndexError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{self.id} cannot be computed: {error}") from error
        if not abs(same - 1.0) < 1e-3 or not other < 1.0:
            raise UsageError(
                f"{self.id} gives different texts the same score: the model's weights are damaged"
            )


def _bert_score() -> Any:
    with extras.needed_by("BERTScore", "bertscore"), quiet_libraries():
        return importlib.import_module("bert_score.utils")


def _find(model: str) -> tuple[str, Path]:
    """The name and the folder of a model."""
    path = Path(model).expanduser()
    if model.startswith((".", "/", "~")) or (model and path.is_dir()):
        if not (path / "config.json").is_file():
            raise UsageError(f"there is no model in {path}: name the folder that holds its config.json")
        return path.resolve().name, path.resolve()
    name, _, revision = model.partition("@")
    if not _HUB_NAME.fullmatch(name):
        raise UsageError(
            f"no BERTScore model is called {model!r}: use the path of a model folder, {DEFAULT_MODEL!r}, or another "
            "name on the Hugging Face hub"
        )
    return name, hub_snapshot(name, revision or None)


def _best_layer(package: Any, name: str) -> int:
    layers: dict[str, int] = package.model2layers
    for known in (name, name.rpartition("/")[2]):
        if known in layers:
            return layers[known]
    raise UsageError(f"bert-score knows no best layer for {name}: say which of its layers is to be compared")


def _packaged_baseline(package: Any, name: str) -> Path:
    folder = Path(package.__file__).parent / "rescale_baseline" / "en"
    for known in (name, name.rpartition("/")[2]):
        file = folder / f"{known}.tsv"
        if file.is_file():
            return file
    raise UsageError(
        f"bert-score ships no baseline for {name}: name a baseline file, or do without rescaling"
    )


def _read_baseline(file: Path, layer: int) -> float:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = {int(row["LAYER"]): float(row["F"]) for row in csv.DictReader(lines)}
        baseline = rows[layer]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(
            f"{file} holds no baseline (columns LAYER and F) of layer {layer}: {error!r}"
        ) from error
    if not -1.0 < baseline < 1.0:
        raise UsageError(f"{file}: the baseline of layer {layer} must lie between -1 and 1, not {baseline}")
    return baseline


def _load_model(folder: Path, layer: int, device: str) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel

    try:
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        deepest = getattr(config, "num_hidden_layers", None)
        if config.is_encoder_decoder or not isinstance(deepest, int):
            raise UsageError(f"{folder} is not an encoder such as BERT or RoBERTa: choose one for BERTScore")
        if not 1 <= layer <= deepest:
            raise UsageError(f"the model in {folder} has the layers 1 to {deepest}, not {layer}")
        model: Any = AutoModel.from_pretrained(
            folder,
            num_hidden_layers=layer,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        raise UsageError(f"the model in {folder} cannot be loaded: {error}") from error
    return model.float().eval().to(device)


def _load_tokenizer(folder: Path, model: Any) -> Any:
    from transformers import AutoTokenizer, RobertaTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if isinstance(tokenizer, RobertaTokenizer):
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, add_prefix_space=True
            )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
        raise UsageError(f"the tokenizer in {folder} cannot be loaded: {error}") from error
    ends = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    if tokenizer.num_special_tokens_to_add() != 2 or None in ends:
        raise UsageError(
            f"the tokenizer in {folder} does not put one token before and one after a text, which BERTScore counts on"
        )
    tokenizer.model_max_length = min(tokenizer.model_max_length, _positions(model))
    return tokenizer


def _positions(model: Any) -> int:
    """The most tokens that the model's positions have room for."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return _LONGEST
    # RoBERTa and its kin count positions from the padding token's number on.
    skipped = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return positions - (skipped + 1 if isinstance(skipped, int) else 0)
