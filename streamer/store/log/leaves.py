"""The leaves of a partition's Merkle log: one per outcome, in offset order.

A leaf is the canonical JSON of the outcome. Texts enter as one HMAC under a random salt that is stored beside them: erase
both and the leaf still verifies, while nobody can test guesses of the texts against it. What is hashed is computed by the
same functions from rows about to be written and from rows read back.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from streamer.journal import Headers
from streamer.signing import merkle
from streamer.signing.canonical_json import canonical_json, moment_text
from streamer.store.db.schema.decisions import decisions
from streamer.store.db.schema.types import Columns, Row, UtcDateTime, encode_headers

_OF_RESPONSE = ("response_id", "score", "raw_energy", "action", "drawn")


def leaf(outcome: Row, said: Row) -> bytes:
    """Hash one outcome as a leaf: its row in `outcomes` (all but the hash), and what `facts`
    says of it."""
    sealed = {
        "kind": outcome["kind"],
        "source": [outcome["log_id"], outcome["topic"], outcome["partition"], outcome["offset"]],
        "index": outcome["leaf_index"],
        "recorded_at": instant(outcome["recorded_at"]),
        "facts": said,
    }
    return merkle.leaf_hash(canonical_json(sealed))


def batch_mac(batch: Row, texts: Sequence[str | None]) -> bytes:
    """Seal a batch's texts and content hash under its salt."""
    sealed = canonical_json(
        [batch["content_hash"].hex(), batch["prompt"], batch["references"], batch["metadata"], list(texts)]
    )
    return hmac.digest(batch["salt"], sealed, "sha256")


def dead_letter_mac(letter: Row) -> bytes:
    """Seal a dead letter's original bytes, and the detail that may quote them, under its salt."""
    sealed = canonical_json(
        [_hex(letter["key"]), _hex(letter["value"]), encode_headers(letter["headers"]), letter["detail"]]
    )
    return hmac.digest(letter["salt"], sealed, "sha256")


def message_digest(topic: str, key: bytes | None, value: bytes | None, headers: Headers | str) -> str:
    """The SHA-256 of a message as it is published, in hex; of headers also by their text."""
    text = headers if isinstance(headers, str) else encode_headers(headers)
    digest = hashlib.sha256(canonical_json([topic, _hex(key), text]))
    digest.update(b"" if value is None else b"\x01" + value)
    return digest.hexdigest()


def decision_facts(
    batch: Row, decision: Row, responses: Columns, judgements: Sequence[Row] = ()
) -> dict[str, Any]:
    """What the leaf keeps of a decision: all of it, the texts by their seal. `responses` by columns, in event order.

    What only some gates have enters where it is there.
    """
    own = dict(zip(_ALWAYS, _always(decision), strict=True))
    for name, where, write in _SOMETIMES:
        for one, nothing in where:
            if decision[one] is not nothing:
                own[name] = write(decision)
                break
    uniforms, unread = list(responses["uniform"]), list(responses["not_read"])
    if uniforms.count(None) < len(uniforms):
        own["uniforms"] = uniforms
    if any(unread):
        own["not_read"] = unread
    if judgements:
        own["judged"] = [judgement_facts(row) for row in in_order(judgements)]
    return own | {
        "batch": [batch["gate"], batch["batch_id"], batch["attempt"]],
        "number": batch["id"],
        "created_at": instant(batch["created_at"]),
        "content_mac": batch["content_mac"].hex(),
        "action": message_digest(
            decision["action_topic"],
            decision["action_key"],
            decision["action_value"],
            decision["action_headers"],
        ),
        "responses": [*map(list, zip(*map(responses.__getitem__, _OF_RESPONSE), strict=True))],
    }


class Fact(NamedTuple):
    """What a leaf keeps of some columns of a decision: always, or where one of the columns `where` says something."""

    columns: tuple[sa.Column[Any], ...]
    where: tuple[str, ...]


def decided_facts() -> dict[str, Fact]:
    """The facts that are columns of a decision, by name."""
    found: dict[str, Fact] = {}
    for column in decisions.c:
        if (said := column.info["leaf"]) is not None:
            one = found.get(name := said.name or column.name, Fact((), ()))
            where = () if said.always else (column.name, *([said.beside] if said.beside else []))
            found[name] = Fact((*one.columns, column), (*one.where, *where))
    return found


def _writer(columns: Sequence[sa.Column[Any]]) -> Callable[[Row], Any]:
    own, kind = itemgetter(*(one.name for one in columns)), columns[0].type
    if len(columns) > 1:
        return lambda row: list(own(row))
    if isinstance(kind, UtcDateTime):
        return lambda row: instant(own(row))
    return (lambda row: own(row).hex()) if isinstance(kind, sa.LargeBinary) else own


_FACTS = [
    (name, one.where, one.columns[0].name, _writer(one.columns)) for name, one in decided_facts().items()
]
_ALWAYS = {name: own for name, where, own, write in _FACTS if not where and isinstance(write, itemgetter)}
_always = itemgetter(*_ALWAYS.values())
_SOMETIMES = [
    (name, [(one, None if decisions.c[one].nullable else False) for one in where or (own,)], write)
    for name, where, own, write in _FACTS
    if name not in _ALWAYS
]
"""Name, columns with the value by which they say nothing, and what writes it."""


def in_order(judgements: Sequence[Row]) -> list[Row]:
    """The judgements of a decision as the leaf has them: by response, whatever order a database returns."""
    return sorted(judgements, key=itemgetter("response_id"))


def judgement_facts(judgement: Row) -> dict[str, Any]:
    """What the leaf keeps of what a judge was asked for a score: all of it, its words by their seal."""
    cost = judgement["cost"]
    return {
        "response": judgement["response_id"],
        "judged_at": instant(judgement["judged_at"]),
        "cost": None if cost is None else float(cost),
        "content_mac": judgement["content_mac"].hex(),
        **{
            name: judgement[name]
            for name in (
                "judge", "mark", "subscores", "failure", "requests", "input_tokens", "output_tokens", "remembered"
            )
        },
    }  # fmt: skip


def judgement_mac(salt: bytes, exchanges: object) -> bytes:
    """Seal what a judge was asked and said under its salt."""
    return hmac.digest(salt, canonical_json(exchanges), "sha256")


def facts(
    kind: str,
    *,
    batch: Row | None,
    decision: Row | None,
    responses: Columns | None,
    judgements: Sequence[Row] = (),
    letter: Row | None,
    label: Row | None,
    signature: Row | None = None,
    control: tuple[int, bytes],
) -> dict[str, Any]:
    """What the leaf of one outcome keeps. Raises `LookupError` when a row that its kind needs is not there.

    `control` is the size and the root of the control log that its transaction saw.
    """
    if kind == "decision" and batch is not None and decision is not None and responses is not None:
        own = decision_facts(batch, decision, responses, judgements)
    elif kind == "duplicate" and batch is not None:
        own = _batch_name(batch)
    elif kind == "conflict" and batch is not None and letter is not None:
        own = _batch_name(batch) | dead_letter_facts(letter)
    elif kind == "dead_letter" and letter is not None:
        own = dead_letter_facts(letter)
    elif kind == "label" and label is not None:
        own = label_facts(label) | signature_facts(signature)
    else:
        raise LookupError(f"a row that a {kind} refers to is missing")
    return own | {"control": [control[0], control[1].hex()]}


def _batch_name(batch: Row) -> dict[str, Any]:
    return {"batch": [batch["gate"], batch["batch_id"], batch["attempt"]]}


def dead_letter_facts(letter: Row) -> dict[str, Any]:
    """What the leaf keeps of a refused record."""
    return {
        "code": letter["code"],
        "timestamp_ms": letter["timestamp_ms"],
        "content_mac": letter["content_mac"].hex(),
    }


def label_facts(label: Row) -> dict[str, Any]:
    """What the leaf keeps of a severity; of fields where there are some."""
    fields = {} if label["severities"] is None else {"severities": label["severities"]}
    return fields | {
        "response": [label["gate"], label["batch_id"], label["attempt"], label["response_id"]],
        "kind": label["kind"],
        "labeller": label["labeller"],
        "severity": label["severity"],
        "raw_severity": label["raw_severity"],
        "labelled_at": instant(label["labelled_at"]),
        "received_at": instant(label["received_at"]),
    }


def signature_facts(signature: Row | None) -> dict[str, Any]:
    """What the leaf keeps of a severity's signature, where one came with it."""
    if signature is None:
        return {}
    return {"signature": signature["signature"], "key_id": signature["key_id"]}


def instant(moment: datetime | None) -> str | None:
    """Write a moment as leaves have it, where there is one."""
    return None if moment is None else moment_text(moment)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
