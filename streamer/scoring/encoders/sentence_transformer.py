"""Texts to unit vectors with sentence-transformers, each vector a function of its text alone.

Which texts go through the model together, so that a text's vector depends on the text alone. Pure.

A matrix product may round differently when its shape changes, and attention takes another kernel when no
position is padded. So the shape that a text meets, and whether it meets padding, must follow from its own
token count: never from the texts beside it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.errors import UsageError
from streamer.scoring.encoders.model_loading import load_sentence_transformer, resolve_device
from streamer.scoring.encoders.threads import Progress, encoder_threads, run_passes
from streamer.scoring.encoders.tokenizing import reading_tokenizer, tokenized

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

    from streamer.scoring.encoders.identity import EncoderIdentity


class Bucket(NamedTuple):
    """The shape of one forward pass: `rows` texts padded to `length` tokens; `full`: none of them is padded."""

    length: int
    full: bool
    rows: int


class MicroBatch(NamedTuple):
    """The texts of one forward pass, as indices; at most `bucket.rows`, the pass itself always has `bucket.rows`."""

    bucket: Bucket
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LengthBuckets:
    """Buckets by token count.

    `step`: lengths are multiples of this many tokens, >= 1. `tokens`: a pass holds about this many
    tokens, padding included, >= 1; texts longer than it go alone. `longest`: the model's maximal
    number of tokens, where truncation cuts; None: it has none.
    """

    step: int = 8
    tokens: int = 64
    longest: int | None = None

    def bucket(self, token_count: int) -> Bucket:
        """The bucket of a text with `token_count` tokens, special tokens included.

        Below `longest` the length leaves at least one position to padding, so that a pass never happens to
        be free of it; texts of exactly `longest` tokens, the truncated ones, have a bucket of their own.
        """
        if token_count < 1 or (self.longest is not None and token_count > self.longest):
            raise ValueError(f"token_count must be in 1..{self.longest}, not {token_count}")
        length = self.step * (token_count // self.step + 1)
        if self.longest is not None:
            length = min(length, self.longest)
        return Bucket(length, token_count == length, max(1, self.tokens // length))

    def micro_batches(self, token_counts: Sequence[int]) -> list[MicroBatch]:
        """Every index of `token_counts` in exactly one micro-batch; longest texts first, then by position."""
        waiting: defaultdict[Bucket, list[int]] = defaultdict(list)
        for index, count in enumerate(token_counts):
            waiting[self.bucket(count)].append(index)
        return [
            MicroBatch(bucket, tuple(indices[start : start + bucket.rows]))
            for bucket, indices in sorted(waiting.items(), reverse=True)
            for start in range(0, len(indices), bucket.rows)
        ]


_CPU_TOKENS = 128
_GPU_TOKENS = 8192
_STEP = 8
_TOKENISED_TOGETHER = 512
_FEATURES = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_PROBES = ("", "Paris", "The capital of France is Paris. " * 8)


class SentenceTransformerEncoder:
    """A sentence-transformers model whose vectors do not depend on what else is encoded, or in
    which order.

    Plain batching lets a text's vector move by 1e-7 with its neighbours: padding to the longest
    neighbour changes the shapes of the matrix products, and with them their rounding. Here each
    text meets a shape that follows from its own token count (`LengthBuckets`), short micro-batches
    are filled up, and on CPU each micro-batch runs on one thread, so that the number of threads
    does not matter either. Rows are bit-equal between calls, orders, processes and thread counts on
    one kind of CPU (or GPU) and one version of torch. Calls from several threads run one after
    another (`at_once`): one call already uses the whole device.

    Models whose input is more than tokens of a text (prompts by default, chat templates, other
    modalities) go through the library's own `encode`, one text at a time: as reproducible, slower.

    `folder` has safetensors weights. `device`: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``,
    ``cuda:1``, ``mps``. `threads`: CPU threads, >= 1; None: as many as this process may use, at
    most 32; ignored on a GPU. `unit` False leaves out the model's own normalisation as well as
    ours, so that rows keep the length that pooling gives them: for the paper's pipelines without L2
    alone, as every score is of unit rows. `strict` False gives every text a vector, of what the
    model takes of it, as the paper's experiments do. Raises `UsageError` where the model cannot be
    loaded, does not have the identity's dimension, or makes vectors that are not finite; or there
    is no such device.
    """

    at_once = 1

    def __init__(
        self,
        folder: Path,
        identity: EncoderIdentity,
        *,
        device: str = "auto",
        threads: int | None = None,
        unit: bool = True,
        strict: bool = True,
    ) -> None:
        threads = encoder_threads(threads)
        self._identity = identity
        self._device = resolve_device(device)
        on_cpu = self._device == "cpu"
        self._model = load_sentence_transformer(folder, self._device)
        self._unit = unit
        self._strict = (
            False  # a model that reads no probe, in no Latin letters or of few tokens, is none the worse
        )
        if not unit:
            from sentence_transformers.sentence_transformer.modules import Normalize

            while isinstance(self._model[-1], Normalize):
                del self._model[-1]
        self._buckets = LengthBuckets(
            step=_STEP,
            tokens=_CPU_TOKENS if on_cpu else _GPU_TOKENS,
            longest=self._model.max_seq_length,
        )
        self._by_tokens = _takes_tokens_only(self._model)
        self._tokenizer = reading_tokenizer(self._model)
        self._lock = threading.Lock()
        self._pool = _single_threaded_pool(threads) if on_cpu else None
        made = self._model.get_embedding_dimension()
        if made != self._identity.dimension:
            raise UsageError(
                f"{self._identity.id} makes {made} numbers a text, its files say {self._identity.dimension}"
            )
        lengths = np.linalg.norm(self.encode(_PROBES), axis=1)
        if not (np.allclose(lengths, 1.0, atol=1e-4) if self._unit else np.isfinite(lengths).all()):
            raise UsageError(
                f"{self._identity.id} makes vectors that are not finite: its weights are damaged"
            )
        self._strict = strict

    @property
    def identity(self) -> EncoderIdentity:
        """Of the files that were loaded."""
        return self._identity

    @property
    def device(self) -> str:
        """Where the model runs, for example ``cpu`` or ``cuda``."""
        return self._device

    def encode(self, texts: Sequence[str], *, progress: Progress = None) -> NDArray[np.float32]:
        """Rows of shape (len(texts), dimension), unit rows by default; see `streamer.scoring.encoders.encoder.Encoder`."""
        vectors = np.empty((len(texts), self._identity.dimension), dtype=np.float32)
        with self._lock:
            places = list(range(len(texts)))
            if self._tokenizer is not None:
                places = list(tokenized(self._tokenizer, texts, vectors, strict=self._strict))
            if progress is not None and len(places) < len(texts):
                progress(len(texts) - len(places))
            read = [texts[place] for place in places]
            rows = np.empty((len(read), self._identity.dimension), dtype=np.float32)
            if self._by_tokens:
                self._encode_micro_batches(read, rows, progress)
            else:
                self._encode_one_by_one(read, rows, progress)
            vectors[places] = rows
        return vectors

    def close(self) -> None:
        """End the worker threads; later calls of `encode` fail. Waits for the running one."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()

    def _encode_micro_batches(
        self, texts: Sequence[str], vectors: NDArray[np.float32], progress: Progress
    ) -> None:
        features = self._tokenise(texts)
        plan = self._buckets.micro_batches([len(one["input_ids"]) for one in features])

        def run(micro_batch: MicroBatch) -> int:
            rows = self._forward(self._padded(features, micro_batch))
            members = list(micro_batch.members)
            vectors[members] = rows[: len(members)]
            return len(members)

        run_passes(self._pool, run, plan, progress)

    def _encode_one_by_one(
        self, texts: Sequence[str], vectors: NDArray[np.float32], progress: Progress
    ) -> None:
        def run(index: int) -> int:
            vectors[index] = self._model.encode(
                [texts[index]],
                batch_size=1,
                show_progress_bar=False,
                normalize_embeddings=self._unit,
            )[0]
            return 1

        run_passes(self._pool, run, range(len(texts)), progress)

    def _tokenise(self, texts: Sequence[str]) -> list[dict[str, NDArray[np.int32]]]:
        """The model's own features of each text, cut at its maximal length, unpadded."""
        features: list[dict[str, NDArray[np.int32]]] = []
        for start in range(0, len(texts), _TOKENISED_TOGETHER):
            together = _preprocess(self._model, texts[start : start + _TOKENISED_TOGETHER])
            names = sorted(_FEATURES.intersection(together))
            features += (
                {
                    name: np.asarray(values, dtype=np.int32)
                    for name, values in zip(names, of_text, strict=True)
                }
                for of_text in zip(*(together[name] for name in names), strict=True)
            )
        return features

    def _padded(
        self, features: list[dict[str, NDArray[np.int32]]], micro_batch: MicroBatch
    ) -> dict[str, torch.Tensor | str]:
        import torch

        bucket, members = micro_batch
        tokenizer = self._model.tokenizer
        fill = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id}
        padded: dict[str, torch.Tensor | str] = {"modality": "text"}
        for name in features[members[0]]:
            rows = np.full((bucket.rows, bucket.length), fill.get(name, 0), dtype=np.int64)
            for row, index in enumerate(members):
                values = features[index][name]
                if tokenizer.padding_side == "left":
                    rows[row, bucket.length - len(values) :] = values
                else:
                    rows[row, : len(values)] = values
            # Missing rows repeat the last text: rows do not see each other, and none is without a token.
            rows[len(members) :] = rows[len(members) - 1]
            padded[name] = torch.from_numpy(rows).to(self._device)
        return padded

    def _forward(self, features: dict[str, torch.Tensor | str]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            vectors = self._model(features)["sentence_embedding"]
            truncated = self._model.truncate_dim
            if truncated is not None:
                vectors = vectors[:, :truncated]
            vectors = vectors.float()
            if self._unit:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
            rows: NDArray[np.float32] = vectors.cpu().numpy()
            return rows


def _preprocess(model: SentenceTransformer, texts: Sequence[str]) -> dict[str, Any]:
    unpadded = {"text": {"padding": False}, "common": {"return_tensors": None}}
    features: dict[str, Any] = model.preprocess(list(texts), processing_kwargs=unpadded)
    return features


def _takes_tokens_only(model: SentenceTransformer) -> bool:
    """Whether the model's input is the tokens of one text and nothing else, so that rows may be padded here."""
    from sentence_transformers.base.modules import Transformer

    if (
        not isinstance(model[0], Transformer)
        or model.modalities != ["text"]
        or model.default_prompt_name is not None
    ):
        return False
    tokenizer = model.tokenizer
    if getattr(tokenizer, "pad_token_id", None) is None or tokenizer.padding_side not in (
        "left",
        "right",
    ):
        return False
    names = set(_preprocess(model, ["probe"])) - {"modality"}
    return {"input_ids", "attention_mask"} <= names <= _FEATURES


def _single_threaded_pool(threads: int) -> ThreadPoolExecutor:
    """Threads in which torch computes on one core each, and rounds denormals as the standard says."""
    import torch

    present = torch.get_num_threads()
    all_started = threading.Barrier(threads)

    def start() -> None:
        # A new thread takes the last number set over at its first parallel operation, unless it asked before.
        torch.get_num_threads()
        torch.set_num_threads(1)
        torch.set_flush_denormal(False)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder", initializer=start)
    for started in [pool.submit(all_started.wait) for _ in range(threads)]:
        started.result()
    # Each thread has its own number, but new threads inherit the last one set: leave that as it was.
    torch.set_num_threads(present)
    return pool
