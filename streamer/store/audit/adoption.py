"""Sealing what earlier versions left unsealed, for the migrations that begin to seal it."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from streamer.signing.canonical_json import canonical_json
from streamer.store.audit import control
from streamer.store.db.schema import (
    alert_acknowledgements,
    alerts,
    batches,
    control_log,
    dead_letter_replays,
    dead_letters,
    erasures,
    learned_scores,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PAGE = 1_000


def adopt_alerts(connection: sa.Connection) -> None:
    """Seal the alerts and acknowledgements that are in no chain yet."""
    _adopt(connection, alerts, alert_acknowledgements)


def adopt_learned_scores(connection: sa.Connection) -> None:
    """Seal the learned scores that are in no chain yet."""
    _adopt(connection, learned_scores)


def adopt_replays(connection: sa.Connection) -> None:
    """Keep and seal the last replay of each message that was sent again: earlier versions kept no other."""
    letter = dead_letters.c
    found = sa.select(letter.id, letter.replayed_at, letter.replayed_by).where(
        letter.replayed_at.is_not(None)
    )
    rows = connection.execute(found.order_by(letter.replayed_at, letter.id)).all()
    for start in range(0, len(rows), _PAGE):
        some = rows[start : start + _PAGE]
        connection.execute(
            sa.insert(dead_letter_replays),
            [{"dead_letter": number, "at": at, "by": by} for number, at, by in some],
        )
    _adopt(connection, dead_letter_replays)


def _adopt(connection: sa.Connection, *tables: sa.Table) -> None:
    now = datetime.now(UTC)
    for table in tables:
        sealed = set(
            connection.execute(
                sa.select(control_log.c.subject).where(control_log.c.kind == table.name)
            ).scalars()
        )
        keys: list[tuple[Any, ...]] = [
            tuple(row.values())
            for row in connection.execute(control.keys_to_seal(table)).mappings()
            if control.subject_of(table, row) not in sealed
        ]
        for start in range(0, len(keys), _PAGE):
            _append(connection, table, keys[start : start + _PAGE], now)


def adopt_erased(connection: sa.Connection) -> None:
    """Seal which texts were erased until now, so that no later erasure can pass for an earlier one."""
    found = [
        seal.hex()
        for table in (batches, dead_letters)
        for seal in connection.execute(
            sa.select(table.c.content_mac).where(table.c.erased_at.is_not(None))
        ).scalars()
    ]
    if not found:
        return
    newest = max(
        moment
        for table in (batches, dead_letters)
        for moment in connection.execute(sa.select(sa.func.max(table.c.erased_at))).scalars()
        if moment is not None
    )
    # A clock that was ahead dated them: they must all be older than this.
    now = max(datetime.now(UTC), newest)
    row = {
        "id": secrets.token_hex(8),
        "at": now,
        "by": "migration",
        "reason": "erased before erasures were kept on record",
        "sooner": False,
        "erased": len(found),
        "digest": digest_of(found),
    }
    connection.execute(sa.insert(erasures).values(row))
    _append(connection, erasures, [(row["id"],)], now)


def _append(connection: sa.Connection, table: sa.Table, keys: Sequence[Sequence[Any]], now: datetime) -> None:
    """Seal rows of a table that may have fewer columns than it has today."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    columns = [column for column in table.c if column.name in there]
    control.append_sealed(
        connection,
        table,
        control.sealed_rows(connection, table, keys, columns=columns),
        now=now,
        migrating=True,
    )


def digest_of(seals: Iterable[str]) -> bytes:
    """Write a set of seals, in hexadecimal, as one SHA-256."""
    return hashlib.sha256(canonical_json(sorted(seals))).digest()
