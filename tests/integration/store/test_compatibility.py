"""What older versions recorded: it comes through every migration as it was, and older workers go on beside new ones."""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from streamer.errors import Unavailable
from streamer.events.receipts import without_receipt
from streamer.store import check, downgrade, migrate, schema_state
from streamer.store.db.engine import SCHEMA, Database
from streamer.store.db.migrate import revisions
from tests.integration.store.conftest import World

if TYPE_CHECKING:
    from pathlib import Path

Rows = dict[str, list[dict[str, Any]]]

LOG_FROM = "0003"
"""The first revision that has the log's tables."""

CONTROL_FROM = "0007"
"""The first revision that has the control chain."""


def filled(url: str) -> World:
    """A world with a row in every table that commands and workers write."""
    world = World(url)
    world.gate()
    lease, labels = world.lease(), world.lease(topic="streamer.labels")
    world.commit(
        world.slice(
            lease,
            world.decision(0, "a"),
            world.decision(1, "a"),
            world.decision(2, "a", content="two"),
            world.dead(3),
            world.decision(4, "c", scores=(0.1, 1 / 3), actions=("abstain", "ship"), sampled=False),
        ),
        world.slice(labels, world.label(1 / 3, "a", offset=0)),
    )
    world.store.labels.add([world.label(0.25, "a", labeller="bob")], source="file")
    world.store.policies.close("support-bot", by="ana", reason="a test")
    return world


def rows_of(url: str, shape: dict[str, list[str]] | None = None) -> Rows:
    """Every row of every table (of the tables and columns in `shape`), in the order of its values."""
    database = Database(url)
    found: Rows = {}
    with database.reading() as connection:
        for name, columns in (shape or shape_of(connection)).items():
            table = sa.table(name, *(sa.column(column) for column in columns))
            rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
            found[name] = sorted(rows, key=repr)
    database.close()
    return found


def shape_of(connection: sa.Connection) -> dict[str, list[str]]:
    inspector = sa.inspect(connection)
    return {
        name: [column["name"] for column in inspector.get_columns(name)]
        for name in inspector.get_table_names()
        if name != "schema_version" and not name.startswith("control_")
    }


def test_what_was_recorded_comes_through_every_migration_as_it_was(database_url: str) -> None:
    migrate(database_url)
    world = filled(database_url)
    world.close()
    # Each step down and up again takes as long as all that came before: the oldest, and what is newest.
    for revision in (*reversed(revisions()[-5:-1]), LOG_FROM, revisions()[0]):
        downgrade(database_url, revision)
        before = rows_of(database_url)
        assert any(before.values())
        migrate(database_url)
        shape = {name: list(rows[0]) for name, rows in before.items() if rows}
        assert rows_of(database_url, shape) == {name: rows for name, rows in before.items() if rows}, revision
        world = World(database_url)
        if revision >= LOG_FROM:
            # Links cover the control chain, which is another one once it was dropped.
            assert revision < CONTROL_FROM or world.store.verify_chain() == [], revision
            world.policy = world.store.policies.newest("support-bot")
            assert world.store.known([world.decision(0, "a").key])
        world.close()
    assert check(database_url) is None


def test_older_workers_go_on_while_newer_ones_start(database_url: str) -> None:
    """Migrations only add, and what they add has a default: statements of older versions keep working."""
    before: dict[str, dict[str, Any]] = {}
    views: dict[str, list[str]] = {}
    for revision in revisions():
        migrate(database_url, revision)
        database = Database(database_url)
        with database.engine.connect() as connection:
            inspector = sa.inspect(connection)
            schema = None if database.sqlite else SCHEMA
            now = {
                table: {column["name"]: column for column in inspector.get_columns(table, schema)}
                for table in inspector.get_table_names(schema)
            }
            seen = {
                view: [column["name"] for column in inspector.get_columns(view, schema)]
                for view in inspector.get_view_names(schema)
            }
        database.close()
        for table, columns in before.items():
            for name, column in columns.items():
                assert name in now.get(table, {}), f"{revision} takes {table}.{name} away"
                assert str(now[table][name]["type"]) == str(column["type"]), f"{revision}: {table}.{name}"
                assert now[table][name]["nullable"] == column["nullable"], f"{revision}: {table}.{name}"
            for name in now[table].keys() - columns.keys():
                column = now[table][name]
                assert column["nullable"] or column["default"] is not None, (
                    f"{revision} demands {table}.{name}"
                )
        for view, names in views.items():
            assert set(names) <= set(seen.get(view, [])), f"{revision} takes columns of {view} away"
        before, views = now, seen


def test_what_waits_to_be_published_survives_the_way_back_from_the_queue(database_url: str) -> None:
    migrate(database_url)
    world = filled(database_url)
    sources = [world.partition()]
    waiting = [
        (message.topic, message.key, message.value, without_receipt(message.headers)[0])
        for message in world.store.unpublished(sources, limit=100)
    ]
    assert len({topic for topic, *_ in waiting}) == 3
    world.close()
    downgrade(database_url, "0017")
    migrate(database_url)
    world = World(database_url)
    # Out of the outbox now, as an earlier version's worker would have left them.
    again = world.store.unpublished(sources, limit=100)
    assert not any(message.queued for message in again)
    assert sorted(map(repr, waiting)) == sorted(
        repr((message.topic, message.key, message.value, message.headers)) for message in again
    )
    world.close()


def test_a_migration_that_gets_no_lock_gives_up_soon_and_changes_nothing(postgres_database_url: str) -> None:
    last = revisions()[-2]
    migrate(postgres_database_url, LOG_FROM)
    engine = sa.create_engine(postgres_database_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.gate_revisions IN ACCESS SHARE MODE"))
        began = time.monotonic()
        with pytest.raises(Unavailable, match="lock timeout"):
            migrate(postgres_database_url, lock_seconds=0.3)
        assert time.monotonic() - began < 60
        assert schema_state(postgres_database_url).revision == LOG_FROM
        inspector = sa.inspect(connection)
        assert inspector.get_view_names(SCHEMA) == [], "a later migration left something behind"
    engine.dispose()
    assert migrate(postgres_database_url, last).revision == last
    assert migrate(postgres_database_url, lock_seconds=0.3).current
    assert check(postgres_database_url) is None


def test_a_migration_waits_for_a_writer_of_sqlite(sqlite_database_url: str) -> None:
    migrate(sqlite_database_url, LOG_FROM)
    writer = sqlite3.connect(sa.make_url(sqlite_database_url).database or "", check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, writer.rollback)
    release.start()
    assert migrate(sqlite_database_url).current
    assert check(sqlite_database_url) is None
    release.join()
    writer.close()


def test_a_copy_of_a_sqlite_file_under_way_is_a_backup(migrated_sqlite_url: str, tmp_path: Path) -> None:
    world = filled(migrated_sqlite_url)
    source = sqlite3.connect(world.store._database.url.database or "")
    target = sqlite3.connect(tmp_path / "copy.db")
    source.backup(target)
    source.close()
    target.close()
    restored = World(f"sqlite:///{tmp_path / 'copy.db'}")
    assert rows_of(restored.url) == rows_of(world.url)
    assert restored.store.verify_chain() == []
    restored.policy = restored.store.policies.newest("support-bot")
    lease = restored.lease()
    assert lease.next_offset == 5
    assert restored.commit(restored.slice(lease, restored.decision(5, "d"))) == [["decision"]]
    assert restored.store.verify_chain() == []
    restored.close()
    world.close()
