"""Which encoder a decision's short name stands for: revision, full weight hash, dimension."""

import sqlalchemy as sa

from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.store.audit import control
from streamer.store.db.schema import encoders
from streamer.store.db.schema.types import row_of
from streamer.store.part import Part


class Encoders(Part):
    """The encoders that workers have run."""

    def register(self, identity: EncoderIdentity) -> None:
        """Remember an encoder before its first decision; one that is known already changes nothing."""
        now = self._clock()
        row = row_of(encoders, identity, id=identity.id, first_seen_at=now)

        def work(connection: sa.Connection) -> None:
            # One statement for both databases: two workers that start at once must not trip over each other.
            inserted = connection.execute(
                sa.text(
                    "INSERT INTO encoders (id, weight_hash, revision, dimension, first_seen_at)"
                    " VALUES (:id, :weight_hash, :revision, :dimension, :first_seen_at) ON CONFLICT DO NOTHING"
                ).bindparams(sa.bindparam("first_seen_at", type_=encoders.c.first_seen_at.type)),
                row,
            )
            if inserted.rowcount:
                key = (identity.id, identity.revision, identity.weight_hash)
                control.append(connection, encoders, [key], now=now)

        self._database.writing(work)

    def dimension(self, identity: str) -> int | None:
        """Return the dimension of an encoder's vectors; None when no worker has run it."""
        return next((known.dimension for known in self.get(identity)), None)

    def get(self, identity: str) -> list[EncoderIdentity]:
        """Return what a name stands for, the first seen first; more than one if revisions share weights."""
        query = sa.select(encoders).where(encoders.c.id == identity).order_by(encoders.c.first_seen_at)
        return [
            EncoderIdentity(
                row["id"].rpartition("@")[0], row["revision"], row["weight_hash"], row["dimension"]
            )
            for row in self._database.mappings(query)
        ]
