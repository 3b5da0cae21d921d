"""Whichever value of the record somebody changes, `audit verify` names it; or its column is said to be no evidence."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from streamer import wiring
from streamer.store.audit import control
from streamer.store.db.schema import give_outs, metadata
from streamer.store.db.schema.types import UtcDateTime, no_evidence
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.tampering_table import make_site
from tests.machine import LONG

KINDS: Final = {
    "batches": "erased_at IS NULL",
    "dead_letters": "erased_at IS NULL",
    "judgements": "for_score",
    "label_revisions": "source",
    "label_signatures": "source",
    "outcomes": "kind",
    "responses": "text IS NULL",
}
"""By what the rows of a table differ in what seals them: a row of each is changed."""

SEALED_ALL_THE_SAME: Final = ("judgements.id, for_score: 0",)
"""Columns that are no evidence in rows of one kind, in those of another."""


def names_of(column: sa.Column[Any]) -> tuple[str, str]:
    """By which a list may name a column: its table's, and its own."""
    return column.table.name, f"{column.table.name}.{column.name}"


def is_evidence(column: sa.Column[Any]) -> bool:
    return no_evidence().keys().isdisjoint(names_of(column))


def of_the_same_form(value: Any) -> Any:
    """JSON that says something else."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return ("B" if value[:1] == "A" else "A") + value[1:]
    if isinstance(value, list):
        return [*value[:-1], of_the_same_form(value[-1])] if value else ["x"]
    if isinstance(value, dict) and value:
        name = next(iter(value))
        return value | {name: of_the_same_form(value[name])}
    return {"x": 1}


def made_up(column: sa.Column[Any], value: Any) -> Any:
    """Another value that the column could have, as SQLite stores it; `value` may be NULL."""
    if isinstance(column.type, sa.Boolean):
        return 1 - (value or 0)
    if isinstance(column.type, UtcDateTime):
        return "2026-01-02 03:04:05.000006"
    if value is None:
        kinds = ((sa.Integer, 7), (sa.Double, 0.125), (sa.LargeBinary, bytes(32)))
        return next((new for kind, new in kinds if isinstance(column.type, kind)), '{"x": 1}')
    if isinstance(value, int):
        return value + 1_000_003
    if isinstance(value, float):
        return value * 0.5 + 0.125
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    try:
        return json.dumps(of_the_same_form(json.loads(value)))
    except ValueError:
        return of_the_same_form(value)


def changes(database: sqlite3.Connection, column: sa.Column[Any]) -> Iterator[tuple[str, int, Any]]:
    """Yield what is changed, in which row, and to what: to what another row has, and to NULL where that may be.

    Of each kind a row from the middle, one with a value where there is one.
    """
    table, name = column.table.name, f'"{column.name}"'
    kind = KINDS.get(table, "1")
    for (one,) in database.execute(f"SELECT DISTINCT {kind} FROM {table} ORDER BY 1").fetchall():
        rows = database.execute(
            f"SELECT rowid, {name} FROM {table} WHERE {kind} = ? ORDER BY {name} IS NULL, rowid", (one,)
        ).fetchall()
        row, value = rows[sum(value is not None for _, value in rows) // 2]
        what = f"{table}.{column.name}" + ("" if kind == "1" else f", {kind}: {one}")
        others = database.execute(
            f"SELECT {name} FROM {table} WHERE {name} IS NOT NULL AND {name} IS NOT ? ORDER BY rowid LIMIT 1",
            (value,),
        ).fetchall()
        yield what, row, others[0][0] if others else made_up(column, value)
        if value is not None and column.nullable and is_evidence(column):
            yield f"{what}, to NULL", row, None


def write(database: sqlite3.Connection, column: sa.Column[Any], row: int, value: Any) -> None:
    """Change a value; where another row alone may have that one, to a value that none has."""
    table, name = column.table.name, f'"{column.name}"'
    update = f"UPDATE {table} SET {name} = ? WHERE rowid = ?"
    try:
        database.execute(update, (value, row))
    except sqlite3.IntegrityError:
        ((present,),) = database.execute(f"SELECT {name} FROM {table} WHERE rowid = ?", (row,)).fetchall()
        database.execute(update, (made_up(column, present), row))
    database.commit()


def test_whichever_value_is_changed_it_is_named_or_said_to_be_no_evidence(tmp_path: Path):
    """A column that is new, and in no log, fails here: seal it, or say in its table's `no_evidence` why not.

    Of each column one change in turn: another's value or NULL, in a row of one kind. `make faults` makes them all.
    """
    site = make_site(tmp_path)
    left: dict[str, Any] = dict.fromkeys(("file", "by", "reason"), "made up") | {"bytes": 1, "heads": 1}
    left |= {"id": 1, "at": wiring.now(), "through": "2026-05", "sha256": "ab" * 32, "logs": "[]"}
    with wiring.open_store(site.settings) as store:  # the second verifier refuses such a record
        store._database.writing(lambda one: control.insert(one, give_outs, left, now=left["at"]))
    with breaking_in(site.settings.database.url):
        pass  # no trigger is left, and copies have none
    (own := tmp_path / "copy").mkdir()
    copy = site.copy(own)
    unnamed, empty, number = [], [], 0
    with (
        closing(sqlite3.connect(tmp_path / "record.db")) as kept,
        closing(sqlite3.connect(own / "record.db")) as changed,
        wiring.open_store(copy.settings) as store,
    ):
        changed.execute("PRAGMA ignore_check_constraints = ON")
        for table in metadata.sorted_tables:
            if table.name in no_evidence():
                continue
            if not kept.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]:
                empty.append(table.name)
            for column in filter(is_evidence, table.columns):
                all_changes = list(changes(kept, column))
                number += 1
                for what, row, value in all_changes if LONG else [all_changes[number % len(all_changes)]]:
                    write(changed, column, row, value)
                    if copy.named_by(store) == "nobody":
                        unnamed.append(what)
                    kept.backup(changed)
        # All that is no evidence is changed at once, but for what somebody names all the same.
        rest = [
            (column, *change)
            for table in metadata.sorted_tables
            if table.name not in no_evidence()
            for column in table.columns
            if not is_evidence(column)
            for change in changes(kept, column)
        ]
        for column, what, row, value in rest:
            if what not in SEALED_ALL_THE_SAME:
                write(changed, column, row, value)
        assert copy.named_by(store) == "nobody", f"one of these is evidence: {[what for _, what, *_ in rest]}"
        kept.backup(changed)
        assert copy.named_by(store) == "nobody", "it was put back"
    assert empty == [], "nothing could be changed in these tables"
    assert unnamed == []


def test_whatever_is_no_evidence_is_there():
    there = {
        name for table in metadata.sorted_tables for column in table.columns for name in names_of(column)
    }
    assert no_evidence().keys() <= there
