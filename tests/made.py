"""Values that tests make up: a gate's revision, a policy, events, a sample, a decider, each with what a test does not care about filled in."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from streamer.deciding.decider import BatchDecider
from streamer.events.limits import Limits
from streamer.events.topics import Topics
from streamer.gates.batch_key import BatchKey
from streamer.gates.policy import GateRevision, Policy
from streamer.gates.settings import GateSettings
from streamer.journal import BatchDecision, OutboxMessage, Partition, Record
from streamer.recalibration.sampled import SampledGroup, SampledItem

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


def a_decision(policy: Policy, /, **changes: Any) -> BatchDecision:
    """What a gate decided about a batch without answers: nothing ships, and nothing is sampled."""
    settings = policy.settings
    fields = {
        "record": Record(Partition("log", "topic", 0), 0, None, None, (), 0), "metadata": {},
        "key": BatchKey(policy.gate, "b", 1), "content_hash": bytes(32), "prompt": "?", "references": None,
        "created_at": None, "unit": settings.unit, "mode": settings.mode, "outcome": "abstain",
        "reason": "scored", "selected": None, "responses": (), "scorer": settings.scorer,
        "encoder": settings.encoder, "embedding_source": "encoder", "sampled": False,
        "sampling_probability": 0.0, "decided_at": NOW, "action": OutboxMessage("actions", None, None, ()),
        "action_id": "i",
    }  # fmt: skip
    return BatchDecision(policy=policy, **fields | changes)


def an_event(gate: str, batch_id: str, texts: Sequence[str] = (), /, **changes: Any) -> dict[str, Any]:
    """An event of the responses topic, with these answers."""
    return {
        "schema": "streamer.responses.v1", "gate": gate, "batch_id": batch_id, "prompt": "?",
        "responses": [{"id": f"r{i}", "text": text} for i, text in enumerate(texts)],
    } | changes  # fmt: skip


def a_batch(gate: str, number: int, texts: Sequence[str], /, **changes: Any) -> bytes:
    """Such an event in bytes: `texts` answer a question of that number."""
    prompt = {"prompt": f"question {number}"}
    return json.dumps(an_event(gate, f"batch-{number}", texts, **prompt | changes)).encode()


def a_label(
    gate: str, batch_id: str, response_id: str = "r0", severity: float = 0.5, /, **changes: Any
) -> dict[str, Any]:
    """An event of the labels topic."""
    return {
        "schema": "streamer.labels.v1", "gate": gate, "batch_id": batch_id, "response_id": response_id,
        "severity": severity, "kind": "human", "labeller": "ana", "labelled_at": "2026-01-01T00:00:00Z",
    } | changes  # fmt: skip


def a_sampled_prompt(
    batch: tuple[str, str], items: Iterable[tuple[str, float, float | None]], **changes: Any
) -> SampledGroup:
    """A prompt that the audit drew, with the id, the score and the severity of each of its answers; `batch` is its gate and id."""
    made = tuple(SampledItem(response_id=name, score=score, severity=bad) for name, score, bad in items)
    return SampledGroup(key=BatchKey(*batch, 1), probability=1.0, items=made, **changes)


def a_decider(book: Any, known: Any = lambda _keys: {}, **parts: Any) -> BatchDecider:
    """A decider without an encoder, with the topics and limits that are usual."""
    usual = {"encoder": None, "topics": Topics(), "limits": Limits(), "clock": lambda: NOW}
    return BatchDecider(book=book, known=known, **usual | parts)
