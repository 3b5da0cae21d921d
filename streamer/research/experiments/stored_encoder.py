"""Embeddings of texts by a named encoder, from the store or the encoder: with their lengths, or as unit rows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.research.experiments.embedding_store import EMBEDDINGS_FOLDER, embedded_texts
from streamer.scoring.encoders.ctranslate2_encoder import normalized
from streamer.scoring.encoders.encoder import Encoder
from streamer.scoring.encoders.registry import EncoderFiles, find_encoder, load_encoder

UNNORMALISED = "pooled, not normalised"


class StoredEncoder:
    """An encoder that caches what it has encoded for all callers: scores and GPSO share one store.

    Kept are rows as pooling makes them. GPSO's pipelines without L2 want their lengths, and unit rows follow from them. Of
    an encoder that is given loaded the unit rows are kept.

    Parameters
    ----------
    encoder : a name, see `streamer.scoring.encoders.registry.find_encoder`; or one that is loaded, of unit rows.
    device, threads : of the encoder, which is loaded only when the store lacks a text.
    folder : of the store.
    progress : called with how many of how many distinct texts have their rows.
    strict : False gives every text a vector, of what the model takes of it; see `load_encoder`.
    """

    def __init__(
        self,
        encoder: str | Encoder,
        *,
        device: str = "auto",
        threads: int | None = None,
        folder: Path = EMBEDDINGS_FOLDER,
        progress: Callable[[int, int], None] | None = None,
        strict: bool = True,
    ) -> None:
        self._encoder = encoder
        self._files: EncoderFiles | None
        if isinstance(encoder, str):
            self._files = find_encoder(encoder)
            self._identity = self._files.identity
        else:
            self._files = None
            self._identity = encoder.identity
        self._device = device
        self._strict = strict
        self._threads = threads
        self._folder = folder
        self._progress = progress

    def rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Rows with the length that pooling gives them, where it is known, shape (len(texts), d)."""
        total, told = len(set(texts)), self._progress
        read = ", of what is read" if self._strict else ""
        return embedded_texts(
            texts,
            name=f"{self._identity.id}, {'unit rows' if self._files is None else UNNORMALISED}{read}",
            dimension=self._identity.dimension,
            load_encoder=self._load,
            folder=self._folder,
            progress=None if told is None else lambda done: told(done, total),
        )

    def _load(self) -> Encoder:
        if not isinstance(self._encoder, str):
            return self._encoder
        return load_encoder(
            self._encoder, device=self._device, threads=self._threads, unit=False, strict=self._strict
        )

    def embed(self, batches: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """The unit vectors of every batch, on a CPU to the last bit those of `streamer.scoring.encoders.encoder.CachedEncoder`."""
        splits = np.cumsum([len(batch) for batch in batches])[:-1]
        lengths = self.rows([text for batch in batches for text in batch])
        if self._files is None:
            return np.split(lengths, splits)
        if self._files.bert is not None:
            return np.split(normalized(lengths), splits)
        import torch

        rows = torch.from_numpy(lengths)
        with torch.inference_mode():
            # Once for each layer of the model's own that normalises at its end, and once as every encoder here does.
            for _ in range(1 + _normalising_layers(self._files.folder)):
                rows = torch.nn.functional.normalize(rows, dim=1)
        return np.split(rows.numpy(), splits)


def _normalising_layers(folder: Path) -> int:
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
    except FileNotFoundError:
        return 0
    names = [str(module["type"]).rpartition(".")[2] for module in modules]
    while names and names[-1] == "Normalize":
        names.pop()
    return len(modules) - len(names)
