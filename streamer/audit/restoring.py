"""A restored backup: finding what was signed after it was made, and giving that up on record."""

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence

from streamer.audit import signing
from streamer.audit.checkpointing import Checkpointer, said
from streamer.audit.witnesses import Witness, WitnessFailed, ask
from streamer.errors import BadMessage, UsageError
from streamer.signing.notes import Note, Restoration


def give_up(
    checkpointer: Checkpointer,
    outside: Iterable[bytes],
    witnesses: Sequence[Witness],
    *,
    by: str,
    reason: str,
) -> Restoration:
    """Record that a backup was restored, and sign on under a new origin.

    `outside` are checkpoints kept outside the database, as the topic has them. Witnesses are asked what they have cosigned; who
    does not answer is passed over. Raises `UsageError` where nothing was signed that the record does not have.
    """
    store, now = checkpointer.store, checkpointer.clock()
    newest, present = store.newest(), store.origin()
    ours, lost = [], []
    for one in _own(checkpointer, outside):
        if checkpointer.covers(one, newest):
            ours.append(one.size)
        elif not checkpointer.given_up(one):
            lost.append((one.origin, one.size))
    for witness in witnesses:
        try:
            ask(witness, store)
        except WitnessFailed as failed:
            if failed.cosigned is not None:
                lost.append((present, failed.cosigned))
    if not lost:
        raise UsageError(
            f"nothing is known to be lost: no checkpoint was found that contradicts the {newest.size} heads of the record"
        )
    first = min(size for _, size in lost)
    most = {origin: max(size for name, size in lost if name == origin) for origin, _ in lost}

    def make(record_id: str, number: int) -> tuple[Restoration, str]:
        kept = max((size for size in (newest.size, *ours) if size < first), default=0)
        origin = f"streamer/{record_id}/{secrets.token_hex(8)}"
        made = Restoration(number, now, by, reason, origin, kept, json.dumps(sorted(most.items())))
        return made, checkpointer.signer.sign(made.statement(record_id))

    return store.restore(make, now=now)


def _own(checkpointer: Checkpointer, values: Iterable[bytes]) -> Iterator[Note]:
    """The checkpoints that this record's key has signed; `audit verify` names others."""
    base = "/".join(checkpointer.store.origin().split("/")[:2])
    for value in values:
        try:
            note = said(value)
        except BadMessage:
            continue
        key = checkpointer.signer.verifier_key(note.origin)
        good = any(
            (name, named) == (key.name, key.key_hash) and signing.verify(key.key, note.text, signature)
            for name, named, signature in note.signatures
        )
        if good and (note.origin == base or note.origin.startswith(f"{base}/")):
            yield note
