"""What is written of each outcome: plain rows, the same mappings that leaves are made of."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from streamer.events.topics import HTTP_LOG
from streamer.gates.batch_key import BatchKey
from streamer.journal import AskedMark, BatchDecision, LabelRevision, Record, ScoredResponse, Slice
from streamer.signing.canonical_json import stored_number
from streamer.store.db.schema import dead_letters, decisions, judgements, label_revisions, label_signatures
from streamer.store.db.schema.joins import BATCH, PARTITION
from streamer.store.db.schema.types import HASH_BYTES, Columns, columns_of, row_of
from streamer.store.log.leaves import batch_mac, dead_letter_mac, judgement_mac

_OF_RESPONSES = tuple("response_id" if one == "id" else one for one in ScoredResponse.__struct_fields__)

_PATHS = {
    one.name: path for one in decisions.c if isinstance(path := one.info["of"], str) and one.name != "batch"
}
_at_paths = attrgetter(*_PATHS.values())
_MADE = {one.name: make for one in decisions.c if callable(make := one.info["of"])}


def check_slice(piece: Slice) -> None:
    """Refuse a slice that breaks its own contract (a bug of the caller): raises `ValueError`."""
    last = piece.expected_offset - 1
    for outcome in piece.outcomes:
        record = outcome.record
        if record is None or record.partition != piece.lease.partition or record.offset <= last:
            raise ValueError(f"outcomes of {piece.lease.partition} are not its records in offset order")
        last = record.offset
    if piece.next_offset != last + 1:
        raise ValueError(f"next offset {piece.next_offset} does not follow the last outcome, {last}")


def check_decision(decision: BatchDecision) -> None:
    """Refuse a decision that contradicts itself in a way that spans rows: raises `ValueError`."""
    shipped = [response.id for response in decision.responses if response.action == "ship"]
    every = len(decision.responses)
    consistent = {
        "best": shipped == ([] if decision.selected is None else [decision.selected])
        and (decision.outcome == "ship") == bool(shipped),
        "response": decision.outcome
        == ("ship" if shipped and len(shipped) == every else "mixed" if shipped else decision.outcome)
        and (bool(shipped) or decision.outcome not in ("ship", "mixed")),
        "batch": len(shipped) in (0, every) and (decision.outcome == "ship") == bool(shipped),
    }["response" if decision.unit == "claim" else decision.unit]
    if not consistent:
        raise ValueError(f"{decision.key}: outcome {decision.outcome!r} contradicts the responses' actions")
    if not decision.sampled and any(response.drawn for response in decision.responses):
        raise ValueError(f"{decision.key}: responses are drawn from a batch that is not sampled")
    if decision.extra_draw and not (decision.sampled and decision.audit_rate is not None):
        raise ValueError(f"{decision.key}: drawn beyond the base rate, though nothing raised it")
    if decision.policy.gate != decision.key.gate:
        raise ValueError(f"{decision.key}: decided under a policy of gate {decision.policy.gate!r}")


def batch_row(decision: BatchDecision, texts: Sequence[str | None]) -> dict[str, Any]:
    """The row of a batch, sealed with the texts that are kept of its responses, without its id.

    Where the gate keeps no texts, the content hash alone stands for them, in the seal too.
    """
    keep = decision.policy.settings.keep_texts
    row: dict[str, Any] = {
        **dict(zip(BATCH, decision.key, strict=True)),
        "created_at": decision.created_at,
        "prompt": decision.prompt if keep else "",
        "references": list(decision.references) if keep and decision.references is not None else None,
        "metadata": dict(decision.metadata) if keep else {},
        "content_hash": decision.content_hash,
        "salt": secrets.token_bytes(HASH_BYTES),
    }
    row["content_mac"] = batch_mac(row, texts)
    return row


def response_columns(decision: BatchDecision, batch: int) -> Columns:
    """What is written of a batch's responses: by columns, in event order."""
    count = len(decision.responses)
    own: dict[str, Sequence[Any]] = {"batch": (batch,) * count, "position": range(count)}
    if not decision.policy.settings.keep_texts:
        own["text"] = (None,) * count
    return {**columns_of(_OF_RESPONSES, map(astuple, decision.responses)), **own}


def decision_row(decision: BatchDecision, batch: int) -> dict[str, Any]:
    """The row of a decision, as its table's columns say."""
    row = {"batch": batch, **dict(zip(_PATHS, _at_paths(decision), strict=True))}
    for name, make in _MADE.items():
        row[name] = make(decision)
    return row


def judgement_rows(decision: BatchDecision, now: datetime) -> list[dict[str, Any]]:
    """The rows of what a judge was asked for a decision's scores, without ids; without words where the gate keeps no texts."""
    keep = decision.policy.settings.keep_texts
    return [
        {
            **judgement_row(decision.key, response_id, one, decision.decided_at),
            "for_score": True,
            **({} if keep else {"exchanges": None, "salt": None, "erased_at": now}),
        }
        for response_id, one in decision.asked
    ]


def judgement_row(key: BatchKey, response_id: str, asked: AskedMark, at: datetime) -> dict[str, Any]:
    """The row of what a judge was asked about a response, sealed, without its id."""
    salt, said = secrets.token_bytes(HASH_BYTES), dict(asked.exchanges)
    return row_of(
        judgements,
        asked,
        **dict(zip(BATCH, key, strict=True)),
        response_id=response_id,
        judged_at=at,
        label=None,
        subscores=None if asked.subscores is None else dict(asked.subscores),
        exchanges=said,
        salt=salt,
        content_mac=judgement_mac(salt, said),
        erased_at=None,
    )


def dead_letter_row(record: Record, code: str, detail: str, now: datetime) -> dict[str, Any]:
    """The row of a refused record, sealed, without its id."""
    row = row_of(
        dead_letters,
        record,
        **dict(zip(PARTITION, record.partition, strict=True)),
        code=code,
        detail=storable(detail),
        salt=secrets.token_bytes(HASH_BYTES),
        recorded_at=now,
    )
    row["content_mac"] = dead_letter_mac(row)
    return row


def label_row(label: LabelRevision, *, source: str, now: datetime) -> dict[str, Any]:
    """The row of a severity, without its id. A label from the future counts from when it came."""
    return row_of(
        label_revisions,
        label,
        **dict(zip(BATCH, label.key, strict=True)),
        severity=stored_number(label.severity),
        raw_severity=None if label.raw_severity is None else stored_number(label.raw_severity),
        received_at=now,
        effective_at=min(label.labelled_at, now),
        source=_came_by(label, source),
        severities={name: stored_number(one) for name, one in label.severities} or None,
    )


def signature_row(label: LabelRevision, number: int, *, source: str, now: datetime) -> dict[str, Any]:
    """The row of the signature that came with a severity, without its id; `number` is the severity's."""
    return row_of(label_signatures, label, label=number, received_at=now, source=_came_by(label, source))


def _came_by(label: LabelRevision, source: str) -> str:
    return HTTP_LOG if label.record is not None and label.record.partition.log_id == HTTP_LOG else source


def withheld(record: Record) -> Record:
    """A refused record as it may be kept where somebody's texts must not be: its place and its key."""
    return replace(record, value=None, headers=())


def storable(text: str) -> str:
    """Free text of ours as every database takes it: no NUL, no lone surrogates (both may come in by a quote)."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
