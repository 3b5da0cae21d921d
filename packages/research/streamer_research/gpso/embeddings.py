"""The configured encoder behind the store of what it has encoded."""

from __future__ import annotations

from collections.abc import Callable

from streamer.errors import UsageError
from streamer.gates.settings import NO_ENCODER
from streamer.research.experiments.stored_encoder import StoredEncoder
from streamer.settings.settings import Settings


def stored_encoder(
    settings: Settings, *, progress: Callable[[int, int], None] | None = None
) -> StoredEncoder:
    """Return it; see `StoredEncoder` for `progress`. Raises `UsageError` when none is configured."""
    from streamer.research.experiments.stored_encoder import EMBEDDINGS_FOLDER, StoredEncoder

    if settings.encoder.name == NO_ENCODER:
        raise UsageError("answers are compared by their embeddings, and encoder.name is none: set one")
    return StoredEncoder(
        settings.encoder.name,
        device=settings.encoder.device,
        threads=settings.encoder.threads,
        folder=EMBEDDINGS_FOLDER,
        progress=progress,
        strict=False,
    )
