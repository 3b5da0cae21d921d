"""Embeddings of texts by a named encoder, from the store or the encoder: with their lengths, or as unit rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from streamer.research.experiments.embedding_store import EMBEDDINGS_FOLDER, embedded_texts
from streamer.scoring.encoders.ctranslate2_encoder import unit_rows
from streamer.scoring.encoders.registry import find_encoder, load_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

UNNORMALISED = "pooled, not normalised"


class StoredEncoder:
    """An encoder that caches what it has encoded for all callers: scores and GPSO share one store.

    Kept are rows as pooling makes them. GPSO's pipelines without L2 want their lengths, and unit rows follow from them.

    Parameters
    ----------
    name : see `streamer.scoring.encoders.registry.find_encoder`.
    device, threads : of the encoder, which is loaded only when the store lacks a text.
    folder : of the store.
    progress : called with how many of how many distinct texts have their rows.
    """

    def __init__(
        self,
        name: str,
        *,
        device: str = "auto",
        threads: int | None = None,
        folder: Path = EMBEDDINGS_FOLDER,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._name = name
        self._files = find_encoder(name)
        self._device = device
        self._threads = threads
        self._folder = folder
        self._progress = progress

    def rows(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Rows with the length that pooling gives them, shape (len(texts), d)."""
        total, told = len(set(texts)), self._progress
        return embedded_texts(
            texts,
            name=f"{self._files.identity.id}, {UNNORMALISED}",
            dimension=self._files.identity.dimension,
            load_encoder=lambda: load_encoder(
                self._name, device=self._device, threads=self._threads, unit=False
            ),
            folder=self._folder,
            progress=None if told is None else lambda done: told(done, total),
        )

    def embed(self, batches: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """The unit vectors of every batch, on a CPU to the last bit those of `streamer.scoring.encoders.encoder.CachedEncoder`."""
        splits = np.cumsum([len(batch) for batch in batches])[:-1]
        lengths = self.rows([text for batch in batches for text in batch])
        if self._files.bert is not None:
            return np.split(unit_rows(lengths), splits)
        import torch

        rows = torch.from_numpy(lengths)
        with torch.inference_mode():
            # Once for each layer of the model's own that normalises at its end, and once as every encoder here does.
            for _ in range(1 + self._normalising_layers()):
                rows = torch.nn.functional.normalize(rows, dim=1)
        return np.split(rows.numpy(), splits)

    def _normalising_layers(self) -> int:
        try:
            modules = json.loads((self._files.folder / "modules.json").read_bytes())
        except FileNotFoundError:
            return 0
        names = [str(module["type"]).rpartition(".")[2] for module in modules]
        while names and names[-1] == "Normalize":
            names.pop()
        return len(modules) - len(names)
