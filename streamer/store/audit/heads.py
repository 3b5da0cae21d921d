"""The log of heads: where all Merkle logs stood, leaf by leaf, and the newest checkpoint of it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from streamer.journal import OutboxMessage
from streamer.signing.canonical_json import salt_commitment, seed_commitment
from streamer.signing.merkle import HASH_BYTES, Edge, inclusion_proof, leaf_hash, node_hash, subtrees
from streamer.signing.notes import Restoration, SignedHead, origin_of
from streamer.store.audit import control
from streamer.store.db.engine import Database, upsert
from streamer.store.db.schema import cosignatures, gates, heads, restorations, signed_head
from streamer.store.log.outbox import enqueue
from streamer.store.log.progress import partition_heads

T = TypeVar("T")
NOTHING_SIGNED = SignedHead(0, 0, None, b"")


class Heads:
    """Implements `streamer.audit.checkpointing.HeadStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def standing(self) -> tuple[dict[str, Any], bytes | None, SignedHead]:
        """Where the logs stand by what is committed, all at one moment; the newest leaf; the newest checkpoint.

        No lock is taken. A leaf's transaction reads the control log before it ends: whoever sees it sees that, too.
        """
        with self._database.reading(snapshot=True) as connection:
            head = control.head(connection)
            standing = {
                "record": head.record_id.hex(),
                "control": head.as_said(),
                "partitions": partition_heads(connection),
                "gates": _commitments(connection),
            }
            signed = newest_signed(connection)
            return standing, head_data(connection, signed.size - 1), signed

    def append(
        self,
        data: bytes,
        *,
        before: SignedHead,
        make: Callable[[str, int, bytes], tuple[bytes, OutboxMessage | None]],
        now: datetime,
    ) -> SignedHead | None:
        """Append the leaf of `data` and store the checkpoint of the log with it; None where another process appended one first.

        `before` is the newest checkpoint, as `standing` gave it; `make` returns the checkpoint of an origin, a size and a root,
        and the event of it; None: it is not published.
        """

        def work(connection: sa.Connection) -> SignedHead | None:
            row = connection.execute(sa.select(signed_head.c.size).with_for_update()).scalar_one()
            if row != before.size:
                return None
            log = Edge(row, b"".join(_subtrees(connection, 0, row)))
            ended = log.append(leaf_hash(data))
            note, message = make(origin(connection), log.size, log.root())
            connection.execute(sa.insert(heads).values(leaf_index=row, data=data, nodes=b"".join(ended)))
            new = SignedHead(log.size, before.published, before.published_at, note)
            if message is not None:
                new = new._replace(published=log.size, published_at=now)
                enqueue(connection, message, now)
            connection.execute(sa.update(signed_head).values(new._asdict()))
            return new

        return self._database.writing(work)

    def newest(self) -> SignedHead:
        """The newest checkpoint."""
        return self._read(newest_signed)

    def data(self, index: int) -> bytes | None:
        """What a leaf is the hash of."""
        return self._read(head_data, index)

    def cosigned(self) -> Sequence[Any]:
        """The newest checkpoint that each witness has cosigned."""
        return self._read(all_cosigned)

    def origin(self) -> str:
        """The origin of checkpoints now."""
        return self._read(origin)

    def restorations(self) -> list[Restoration]:
        """Every backup that was restored, the oldest first."""
        return self._read(all_restorations)

    def restore(self, make: Callable[[str, int], tuple[Restoration, str]], *, now: datetime) -> Restoration:
        """Record what was given up; `make` returns that and its signature, given the record's id and a number."""

        def work(connection: sa.Connection) -> Restoration:
            record_id = control.head(connection, lock=True).record_id.hex()
            made, signature = make(record_id, len(all_restorations(connection)) + 1)
            control.insert(connection, restorations, made._asdict() | {"signature": signature}, now=now)
            return made

        return self._database.writing(work)

    def root(self, first: int, end: int) -> bytes:
        """The root over a range of leaves, as `streamer.signing.merkle` asks for it."""
        return self._read(range_root, first, end)

    def _read(self, read: Callable[..., T], *about: int) -> T:
        with self._database.reading() as connection:
            return read(connection, *about)

    def keep_cosigned(self, witness: str, size: int, note: bytes) -> None:
        """Keep what a witness has cosigned, in place of what it cosigned before."""

        def work(connection: sa.Connection) -> None:
            new = upsert(connection, cosignatures).values(witness=witness, size=size, note=note)
            newer = new.on_conflict_do_update(
                index_elements=[cosignatures.c.witness],
                set_={"size": size, "note": note},
                where=cosignatures.c.size <= size,
            )
            connection.execute(newer)

        self._database.writing(work)


def range_root(connection: sa.Connection, first: int, end: int) -> bytes:
    """The root over the leaves from `first` up to, not including, `end`, as proofs ask for it."""
    *left, root = _subtrees(connection, first, end)
    for one in reversed(left):
        root = node_hash(one, root)
    return root


def all_heads(connection: sa.Connection, first: int = 0) -> Iterator[bytes]:
    """What each leaf is the hash of, from one on, up to the first that is not there."""
    query = sa.select(heads.c.leaf_index, heads.c.data).order_by(heads.c.leaf_index)
    while page := connection.execute(query.where(heads.c.leaf_index.between(first, first + 999))).all():
        yield from (data for place, (index, data) in enumerate(page, first) if index == place)
        first += 1_000


def head_data(connection: sa.Connection, index: int) -> bytes | None:
    """What a leaf is the hash of; None where it is not there."""
    query = sa.select(heads.c.data).where(heads.c.leaf_index == index)
    return connection.execute(query).scalar_one_or_none()


def proof_of_head(connection: sa.Connection, index: int) -> dict[str, Any]:
    """Prove that the newest cosigned checkpoint covers a head, with every cosignature, or else the newest of all."""
    cosigned = [one for one in all_cosigned(connection) if one.size > index]
    size = max((one.size for one in cosigned), default=newest_signed(connection).size)
    notes = [one.note for one in cosigned if one.size == size] or [newest_signed(connection).note]
    proof = inclusion_proof(index, size, partial(range_root, connection))
    head = {
        "index": index,
        "data": (head_data(connection, index) or b"").decode(),
        "proof": [one.hex() for one in proof],
    }
    # The same but for the witnesses' lines.
    lines = dict.fromkeys(line for note in notes for line in note.splitlines(keepends=True))
    return {"head": head, "checkpoint": b"".join(lines).decode()}


def newest_signed(connection: sa.Connection) -> SignedHead:
    """The newest checkpoint."""
    row = connection.execute(sa.select(*(signed_head.c[name] for name in SignedHead._fields))).one_or_none()
    return NOTHING_SIGNED if row is None else SignedHead(*row)


def all_restorations(connection: sa.Connection) -> list[Restoration]:
    """Every backup that was restored, the oldest first."""
    query = sa.select(*(restorations.c[name] for name in Restoration._fields)).order_by(restorations.c.id)
    return [Restoration(*row) for row in connection.execute(query)]


def origin(connection: sa.Connection) -> str:
    """The origin of checkpoints now."""
    restored = all_restorations(connection)
    return restored[-1].origin if restored else origin_of(control.head(connection).record_id.hex())


def all_cosigned(connection: sa.Connection) -> Sequence[Any]:
    """The newest checkpoint that each witness has cosigned: `witness`, `size`, `note` with its signature."""
    return connection.execute(sa.select(cosignatures).order_by(cosignatures.c.witness)).all()


def _subtrees(connection: sa.Connection, first: int, end: int) -> list[bytes]:
    """The hashes of the perfect subtrees of a range: each stands with its last leaf, behind the smaller ones that end there."""
    ranges = subtrees(first, end)
    last_leaves = heads.c.leaf_index.in_([last - 1 for _, last in ranges])
    query = sa.select(heads.c.leaf_index, heads.c.nodes).where(last_leaves)
    nodes: dict[int, bytes] = dict(connection.execute(query).fetchall())
    levels = [((last - begin).bit_length() - 1, last) for begin, last in ranges]
    return [nodes[last - 1][HASH_BYTES * level : HASH_BYTES * (level + 1)] for level, last in levels]


def _commitments(connection: sa.Connection) -> list[dict[str, str]]:
    rows = connection.execute(sa.select(gates.c.name, gates.c.audit_salt, gates.c.seed)).all()
    return [
        {"gate": name, "salt": salt_commitment(name, salt), "seed": seed_commitment(name, seed)}
        for name, salt, seed in sorted(rows, key=lambda row: str(row[0]))
    ]
