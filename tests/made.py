"""Values that tests make up: a gate's revision, a policy, a batch of answers, each with what a test does not care about filled in."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from streamer.gates.policy import GateRevision, Policy
from streamer.gates.settings import GateSettings

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def a_revision(settings: GateSettings, **changes: Any) -> GateRevision:
    """The first revision of a gate."""
    fields = {
        "gate": "g", "revision": 1, "seed": 1, "audit_salt": b"", "created_at": NOW, "created_by": "ana", "reason": "test",
    }  # fmt: skip
    return GateRevision(settings=settings, **fields | changes)


def a_policy(settings: GateSettings, **changes: Any) -> Policy:
    """A calibrated policy that ships everything."""
    fields = {
        "gate": "g", "version": 1, "gate_revision": 1, "state": "open", "threshold": None, "calibrated": True,
        "calibration_run": None, "seed": 1, "valid_from": NOW, "guarantee": "", "created_by": "ana", "reason": "test",
    }  # fmt: skip
    return Policy(settings=settings, **fields | changes)


def a_batch(gate: str, number: int, texts: Sequence[str], **changes: Any) -> bytes:
    """An event of the responses topic: `texts` answer a question of that number."""
    event = {
        "schema": "streamer.responses.v1",
        "gate": gate,
        "batch_id": f"batch-{number}",
        "prompt": f"question {number}",
        "responses": [{"id": f"r{i}", "text": text} for i, text in enumerate(texts)],
    }
    return json.dumps(event | changes).encode()
