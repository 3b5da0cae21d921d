"""A copy of a database is a backup."""

import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from streamer.store.db.engine import Database
from streamer.store.db.schema import metadata
from tests.integration.store.conftest import World


def filled(url: str) -> World:
    """A world with a row in every table that commands and workers write."""
    world = World(url)
    world.gate()
    lease, labels = world.lease(), world.lease(topic="streamer.labels")
    world.commit(
        world.slice(
            lease, world.decision(0, "a"), world.decision(1, "a"),
            world.decision(2, "a", content="two"), world.dead(3),
            world.decision(4, "c", scores=(0.1, 1 / 3), actions=("abstain", "ship"), sampled=False),
        ),
        world.slice(labels, world.label(1 / 3, "a", offset=0)),
    )  # fmt: skip
    world.store.labels.add([world.label(0.25, "a", labeller="bob")], source="file")
    world.store.policies.close("support-bot", by="ana", reason="a test")
    return world


def rows_of(url: str) -> dict[str, list[Any]]:
    """Every row of every table."""
    database = Database(url)
    with database.reading() as connection:
        found = {
            name: sorted(map(repr, connection.execute(sa.select(table))))
            for name, table in metadata.tables.items()
        }
    database.close()
    return found


def test_a_copy_of_a_sqlite_file_under_way_is_a_backup(migrated_sqlite_url: str, tmp_path: Path) -> None:
    world = filled(migrated_sqlite_url)
    source = sqlite3.connect(world.store._database.url.database or "")
    target = sqlite3.connect(tmp_path / "copy.db")
    source.backup(target)
    source.close()
    target.close()
    restored = World(f"sqlite:///{tmp_path / 'copy.db'}")
    assert rows_of(restored.url) == rows_of(world.url)
    assert restored.store.evidence.log_faults() == []
    restored.policy = restored.store.policies.newest("support-bot")
    lease = restored.lease()
    assert lease.next_offset == 5
    assert restored.commit(restored.slice(lease, restored.decision(5, "d"))) == [["decision"]]
    assert restored.store.evidence.log_faults() == []
    restored.close()
    world.close()
