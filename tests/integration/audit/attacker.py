"""Somebody who has the database's password, this program's source, and time: every guard off, any row changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from streamer.journal import Partition
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import Edge
from streamer.store.audit import control
from streamer.store.audit.outcome_rows import OutcomeRows, pages
from streamer.store.db.engine import Database
from streamer.store.db.schema import (
    batches,
    control_head,
    control_log,
    decisions,
    outcomes,
    progress,
    responses,
)
from streamer.store.log import leaves
from streamer.store.log.progress import in_partition

_LEAF = {"leaf_index": sa.bindparam("index"), "leaf_hash": sa.bindparam("leaf"), "root": sa.bindparam("root")}
_TABLES = {table.name: table for table in control.SEALED_TABLES}


@contextmanager
def breaking_in(url: str) -> Iterator[sa.Connection]:
    """A connection on which nothing is refused; what is done is committed at the end."""
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            if database.sqlite:
                raw: Any = connection.connection.dbapi_connection
                raw.execute("PRAGMA foreign_keys = OFF")
                raw.execute("PRAGMA ignore_check_constraints = ON")
            with connection.begin():
                if not database.sqlite:
                    connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
                for name, table in _triggers(connection, database.sqlite):
                    connection.exec_driver_sql(
                        f"DROP TRIGGER {name}" + ("" if database.sqlite else f" ON {table}")
                    )
                yield connection
    finally:
        database.close()


def remove_checkpoints(connection: sa.Connection) -> None:
    """Remove the log of heads, and the checkpoint of it."""
    connection.exec_driver_sql("DELETE FROM heads")
    connection.exec_driver_sql(
        "UPDATE signed_head SET size = 0, published = 0, published_at = NULL, note = ''"
    )


def _triggers(connection: sa.Connection, sqlite: bool) -> list[tuple[str, str]]:
    query = (
        "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"
        if sqlite
        else "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0"
    )
    return [(name, table) for name, table in connection.exec_driver_sql(query)]


def rebuild_outcomes(connection: sa.Connection) -> None:
    """Compute every partition's log anew over what the tables say now, its head and `progress` too."""
    for head in connection.execute(sa.select(progress)).mappings().all():
        partition = Partition(head["log_id"], head["topic"], head["partition"])
        log, new = Edge(), []
        for page in pages(connection, partition):
            about = OutcomeRows(connection, page)
            for row in page:
                sealed = dict(row) | {"leaf_index": log.size}
                leaf = leaves.leaf(sealed, about.facts(row))
                log.append(leaf)
                made = {"index": sealed["leaf_index"], "leaf": leaf, "root": log.root()}
                if tuple(made.values()) != tuple(row[name] for name in ("leaf_index", "leaf_hash", "root")):
                    new.append({"of": row["offset"], **made})
        if new:
            mine = in_partition(partition, outcomes) & (outcomes.c.offset == sa.bindparam("of"))
            connection.execute(sa.update(outcomes).where(mine).values(_LEAF), new)
        connection.execute(
            sa.update(progress)
            .where(progress.c.topic == head["topic"], progress.c.partition == head["partition"])
            .values(log_size=log.size, log_edge=log.to_bytes())
        )


def rebuild_control(
    connection: sa.Connection, there: dict[str, dict[str, dict[str, Any]]] | None = None
) -> None:
    """Compute the control log anew over what the tables say now; `there`: the rows of those that were read before."""
    head = control.head(connection)
    log = Edge()
    entries = connection.execute(sa.select(control_log).order_by(control_log.c.leaf_index)).mappings().all()
    there = {} if there is None else there
    new = []
    for entry in entries:
        table = _TABLES[entry["kind"]]
        if table.name not in there:
            keys = [tuple(row) for row in connection.execute(sa.select(*table.primary_key.columns))]
            rows = control.sealed_rows(connection, table, keys)
            there[table.name] = {control.subject_of(table, row): row for row in rows}
        row = there[table.name].get(entry["subject"])
        if row is None:
            connection.execute(sa.delete(control_log).where(control_log.c.leaf_index == entry["leaf_index"]))
            # Who renumbers the leaves renumbers what saw them.
            connection.execute(
                sa.update(outcomes)
                .where(outcomes.c.control_size > log.size)
                .values(control_size=outcomes.c.control_size - 1)
            )
            continue
        index = log.size
        leaf = control.leaf(
            head.record_id, index=index, kind=entry["kind"], recorded_at=entry["recorded_at"], row=row
        )
        log.append(leaf)
        made = {"index": index, "leaf": leaf, "root": log.root(), "sealed": canonical_json(row).decode()}
        if tuple(made.values()) != tuple(
            entry[name] for name in ("leaf_index", "leaf_hash", "root", "sealed")
        ):
            new.append({"of": entry["leaf_index"], **made})
    if new:
        connection.execute(
            sa.update(control_log)
            .where(control_log.c.leaf_index == sa.bindparam("of"))
            .values(_LEAF | {"sealed": sa.bindparam("sealed")}),
            new,
        )
    connection.execute(sa.update(control_head).values(log_size=log.size, log_edge=log.to_bytes()))


def reseal(connection: sa.Connection, batch: int) -> None:
    """Seal a batch's texts again under its own salt, which stands beside them."""
    row = connection.execute(sa.select(batches).where(batches.c.id == batch)).mappings().one()
    texts = connection.execute(
        sa.select(responses.c.text).where(responses.c.batch == batch).order_by(responses.c.position)
    ).scalars()
    connection.execute(
        sa.update(batches).where(batches.c.id == batch).values(content_mac=leaves.batch_mac(row, list(texts)))
    )


def batch_of(connection: sa.Connection, gate: str, number: int) -> int:
    named = (batches.c.gate == gate) & (batches.c.batch_id == f"batch-{number}")
    return connection.execute(sa.select(batches.c.id).where(named)).scalar_one()


def cut_tail(connection: sa.Connection, count: int) -> None:
    """Take the last leaves of the first responses partition away, with what they tell of, and mend the head."""
    head = (
        connection.execute(
            sa.select(progress).where(progress.c.partition == 0, progress.c.topic == "streamer.responses")
        )
        .mappings()
        .one()
    )
    here = (outcomes.c.partition == 0) & (outcomes.c.topic == "streamer.responses")
    gone = here & (outcomes.c.leaf_index >= head["log_size"] - count)
    told = sa.select(outcomes.c.batch).where(gone, outcomes.c.kind == "decision")
    ids = list(connection.execute(told).scalars())
    connection.execute(sa.delete(outcomes).where(gone))
    for table, column in (
        (responses, responses.c.batch),
        (decisions, decisions.c.batch),
        (batches, batches.c.id),
    ):
        connection.execute(sa.delete(table).where(column.in_(ids)))
    log, last = Edge(), -1
    for hashed, last in connection.execute(  # noqa: B007
        sa.select(outcomes.c.leaf_hash, outcomes.c.offset).where(here).order_by(outcomes.c.leaf_index)
    ):
        log.append(hashed)
    connection.execute(
        sa.update(progress)
        .where(progress.c.partition == 0, progress.c.topic == "streamer.responses")
        .values(log_size=log.size, log_edge=log.to_bytes(), next_offset=last + 1)
    )
