"""How a PostgreSQL transaction says of itself that it writes no evidence, and which of those that may are under way."""

import hashlib

import sqlalchemy as sa


def _key(name: str) -> int:
    digest = hashlib.sha256(f"streamer.lock.v1\x00{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


_NO_EVIDENCE = _key("writes neither batches nor labels")


def writes_no_evidence(connection: sa.Connection) -> None:
    """Say of this transaction that it writes neither batches nor labels: nobody who reads these has to wait for its end."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _NO_EVIDENCE})


def first_unfinished() -> sa.TextClause:
    """The least id of a transaction that has begun by the PostgreSQL snapshot ``s``, has not ended, and may write evidence.

    Where there is none, the first id that is not given yet.
    """
    unsigned = _NO_EVIDENCE % 2**64
    return sa.text(
        "(SELECT coalesce(min(x::text::bigint), pg_snapshot_xmax(s)::text::bigint) FROM pg_snapshot_xip(s) AS x"
        " WHERE x::xid NOT IN (SELECT own.transactionid FROM pg_locks AS told"
        " JOIN pg_locks AS own USING (virtualtransaction)"
        " WHERE told.locktype = 'advisory' AND told.objsubid = 1"
        " AND told.classid = :high AND told.objid = :low"
        " AND told.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.transactionid IS NOT NULL))"
    ).bindparams(high=unsigned >> 32, low=unsigned % 2**32)
