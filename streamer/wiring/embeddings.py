"""Embeddings of texts with the length that the encoder gives them, from the store or the configured encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.policy import NO_ENCODER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streamer.settings import Settings

UNNORMALISED = "pooled, not normalised"


def unnormalised_embeddings(
    settings: Settings, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
) -> NDArray[np.float32]:
    """Return rows of shape (len(texts), d); loads the encoder if the store lacks a text, and adds to the store.

    Raises `UsageError` when no encoder is configured.
    """
    from streamer.experiments.embedding_store import embedded_texts
    from streamer.scoring.registry import encoder_identity, load_encoder

    name = settings.encoder.name
    if name == NO_ENCODER:
        raise UsageError("responses are compared by their embeddings, and encoder.name is none: set one")
    identity = encoder_identity(name)
    return embedded_texts(
        texts,
        name=f"{identity.id}, {UNNORMALISED}",
        dimension=identity.dimension,
        load_encoder=lambda: load_encoder(
            name, device=settings.encoder.device, threads=settings.encoder.threads, unit=False
        ),
        progress=progress,
    )
