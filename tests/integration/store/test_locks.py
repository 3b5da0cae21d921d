"""Locks that outlive a transaction: taken by one, left by the dead, on both databases."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from streamer.errors import Unavailable
from streamer.store.locks import GateBusy
from tests.integration.store.conftest import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_one_leads_and_the_next_takes_over(new_world: Callable[..., World]) -> None:
    world = new_world()
    first, second = (world.open().locks.leadership() for _ in range(2))
    assert (first.held(), second.held(), first.held()) == (True, False, True)
    first.release()
    assert (second.held(), first.held()) == (True, False)
    second.release()


def test_a_gate_is_calibrated_by_one_at_a_time(new_world: Callable[..., World]) -> None:
    world = new_world()
    locks, others = world.store.locks, world.open().locks
    with locks.of_gate("a", wait_seconds=0):
        with pytest.raises(GateBusy, match="another calibration of gate 'a' is under way"):
            others.of_gate("a", wait_seconds=0.2).__enter__()
        with others.of_gate("b", wait_seconds=0):
            pass
        done = threading.Event()

        def wait() -> None:
            with others.of_gate("a", wait_seconds=20):
                done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not done.wait(0.3)
    assert done.wait(20)
    thread.join()


def test_a_lock_is_let_go_of_when_its_block_fails(new_world: Callable[..., World]) -> None:
    world = new_world()
    with pytest.raises(ZeroDivisionError), world.store.locks.of_gate("a", wait_seconds=0):
        raise ZeroDivisionError
    with world.open().locks.of_gate("a", wait_seconds=0):
        pass


def test_who_lost_its_session_lost_the_lead(migrated_postgres_url: str) -> None:
    world = World(migrated_postgres_url)
    first, second = (world.open().locks.leadership() for _ in range(2))
    assert first.held()
    with world.store._database.engine.connect() as connection:
        connection.execute(
            sa.text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        )
    assert second.held()
    with pytest.raises(Unavailable):
        first.held()
    assert not first.held(), "it asks again, and another one leads"
    second.release()
    assert first.held()
    first.release()
    world.close()


def test_a_lock_file_that_is_taken_away_is_no_lock_any_more(migrated_sqlite_url: str, tmp_path: Path) -> None:
    world = World(migrated_sqlite_url)
    first, second = (world.open().locks.leadership() for _ in range(2))
    assert first.held()
    (file,) = tmp_path.glob("*.locks/recalibrator")
    assert file.stat().st_mode & 0o077 == 0
    file.unlink()
    assert second.held(), "a new file is a new lock"
    assert not first.held(), "and the old one notices"
    world.close()


def test_a_link_to_the_database_has_the_same_locks(tmp_path: Path) -> None:
    from streamer.store.engine import Database
    from streamer.store.locks import Locks

    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    first, second = (
        Locks(Database(f"sqlite:///{tmp_path}/{name}")).leadership() for name in ("real.db", "link.db")
    )
    assert (first.held(), second.held()) == (True, False)
    first.release()
    assert second.held()
    second.release()
