"""Questions about a gate's past, asked of the real record."""

from datetime import datetime

from numpy.typing import ArrayLike

from streamer.clouds.evaluated_claims import ClaimResult
from streamer.errors import UsageError
from streamer.frames.recorded import beside, recorded, tried_claims
from streamer.frames.results import Report
from streamer.gates.settings import GateSettings
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.whatif import WhatIf
from streamer.wiring.encoders import encoder
from streamer.wiring.parts import now as present


def tried_gate(
    settings: Settings, store: Store, gate: str, asked: GateSettings, *, since: datetime, now: datetime
) -> tuple[Report, Report, list[str]]:
    """Say what a gate with other settings would ship of what it decided from `since` on, and what its own would of the same.

    Another scorer's scores need the configured encoder. See `streamer.frames.recorded`.
    """

    def encode(texts: list[str]) -> ArrayLike:
        cached = encoder(settings)
        if cached is None or cached.identity.id != asked.encoder:
            there = "none" if cached is None else cached.identity.id
            raise UsageError(
                f"the embeddings of {asked.encoder} are not on record, and this process has the encoder {there}: set "
                "STREAMER_ENCODER_NAME to score the stored texts again"
            )
        return cached.embed([texts])[0]

    own = store.gates.get(gate).settings
    batches, young = recorded(store.answers, store.calibration, gate, own, now=now, since=since)
    found, present, notes = beside(batches, own, asked, encode)
    return found, present, young + notes


def tried_gate_of_claims(
    store: Store, gate: str, asked: GateSettings, *, since: datetime, now: datetime
) -> tuple[list[ClaimResult], list[str]]:
    """Say the same of a gate of claims, in results of `evaluate_claims`."""
    own = store.gates.get(gate).settings
    batches, young = recorded(store.answers, store.calibration, gate, own, now=now, since=since)
    found, left = tried_claims(gate, batches, own, asked)
    return found, young + left


def what_if(store: Store, gate: str, *, since: datetime, now: datetime | None = None) -> WhatIf:
    """Return what answers questions about the decisions of a gate from `since` on; nothing is read before the first one.

    Raises `UsageError` when there is no such gate.
    """
    return WhatIf(
        store.gates.get(gate),
        past=store.past,
        sample=store.calibration,
        policies=store.policies,
        since=since,
        now=now or present(),
        candidates=store.candidates,
    )
