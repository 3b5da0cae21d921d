"""Questions about a gate's past, asked of the real record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.wiring.parts import now as present

if TYPE_CHECKING:
    from streamer.settings.settings import Settings
    from streamer.store import Store
    from streamer.whatif import Scores, WhatIf


def what_if(
    settings: Settings,
    store: Store,
    gate: str,
    *,
    since: datetime,
    now: datetime | None = None,
    progress: Callable[[int], object] = lambda _done: None,
) -> WhatIf:
    """Return what answers questions about the decisions of a gate from `since` on; nothing is read before the first one.

    Raises `UsageError` when there is no such gate. Another scorer's scores need the configured encoder, which is loaded when
    they are first asked for; `progress` is called with how many batches have been scored again.
    """
    from streamer.whatif import WhatIf

    return WhatIf(
        store.gates.get(gate),
        past=store.past,
        sample=store.calibration,
        policies=store.policies,
        since=since,
        now=now or present(),
        scores=lambda: _scores(settings, progress),
        candidates=store.candidates,
    )


def _scores(settings: Settings, progress: Callable[[int], object]) -> Scores:
    from streamer.audit.rescoring import StoredTexts
    from streamer.wiring.encoders import encoder

    cached = encoder(settings)
    if cached is None:
        raise UsageError("scoring stored texts again needs an encoder; STREAMER_ENCODER_NAME is none")
    return StoredTexts(encoder=cached.identity.id, embed=cached.embed, progress=progress)
