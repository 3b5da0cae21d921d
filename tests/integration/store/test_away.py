"""The database goes away, locks, or kills us in the middle: `Unavailable`, nothing half done, and on it goes."""

import contextlib
import socket
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from streamer.errors import BadData, Unavailable
from streamer.journal import OutboxMessage
from streamer.store import migrate
from streamer.store.db import engine
from tests.at_once import at_once
from tests.faults.site import wait_until
from tests.integration.store.conftest import World, interrupted
from tests.services.postgres import PostgresServer


def test_a_locked_sqlite_file_is_unavailable(migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.2)
    world = World(migrated_sqlite_url)
    world.gate()
    lease = world.lease()
    other = sqlite3.connect(migrated_sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        world.commit(world.slice(lease, world.decision(0)))
    assert world.store.known([]) == {}  # readers go on
    other.execute("ROLLBACK")
    other.close()
    assert world.commit(world.slice(lease, world.decision(0))) == [["decision"]]
    world.close()


def test_sqlite_keeps_what_it_promises(sqlite_database_url: str):
    migrate(sqlite_database_url)
    database = engine.Database(sqlite_database_url)
    with database.engine.connect() as connection:
        pragma = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    database.close()
    assert pragma == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    path = Path(sqlite_database_url.removeprefix("sqlite:///"))
    assert path.stat().st_mode & 0o077 == 0  # texts and secrets: the owner's alone


def test_postgresql_waits_for_the_disk_whatever_its_habit(migrated_postgres_url: str):
    name = sa.make_url(migrated_postgres_url).database
    database = engine.Database(migrated_postgres_url)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    database.close()
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW search_path").scalar() == "streamer"
    database.close()


def test_a_connection_that_is_killed_in_the_middle_leaves_nothing_behind(postgres_world: World):
    world = postgres_world
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0, "b")))

    def kill() -> None:
        url = sa.make_url(world.url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'streamer' AND state = 'idle in transaction'"
            )

    store = interrupted(world, kill)
    piece = world.slice(lease, world.decision(1, "b", content="two"), world.decision(2), expected=1)
    with pytest.raises(Unavailable):
        store.commit([piece], now=world.clock())
    assert world.rows("SELECT count(*) FROM outcomes") == [(1,)]
    assert world.commit(piece) == [["conflict", "decision"]]
    assert world.store.evidence.log_faults() == []


@pytest.mark.parametrize("where", ["between statements", "before the commit"])
def test_a_stopped_worker_does_not_keep_its_partition_locked(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch, where: str
):
    world = postgres_world
    lease = world.lease()
    world.commit(world.slice(lease, world.decision(0, "b")))
    inside, taken = threading.Event(), threading.Event()
    patient, _ = engine.FROZEN_SECONDS, monkeypatch.setattr(engine, "FROZEN_SECONDS", 1)

    def freeze() -> None:
        inside.set()
        taken.wait(timeout=240)

    if where == "between statements":
        store = interrupted(world, freeze)
    else:
        store = world.open(failpoint=lambda name: freeze() if name == "in_transaction" else None)
    said: list[BaseException] = []

    def work() -> None:
        try:
            store.commit(
                [world.slice(lease, world.decision(1, "b", content="two"), expected=1)], now=world.clock()
            )
        except BaseException as error:
            said.append(error)

    frozen = threading.Thread(target=work)
    frozen.start()
    assert inside.wait(timeout=240)
    monkeypatch.setattr(engine, "FROZEN_SECONDS", patient)
    assert world.lease(store=world.open()).epoch == 2
    assert frozen.is_alive(), "it is frozen still, and keeps nobody waiting"
    taken.set()
    frozen.join(timeout=240)
    assert isinstance(said[0], Unavailable)


def test_a_lock_that_does_not_come_is_unavailable(postgres_world: World, monkeypatch: pytest.MonkeyPatch):
    world = postgres_world
    world.lease()
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.3)
    hasty = world.open()
    with world.store._database.engine.begin() as connection:
        connection.execute(sa.text("SELECT * FROM progress FOR UPDATE"))
        with pytest.raises(Unavailable, match="lock"):
            world.lease(store=hasty)


def test_a_deadlock_is_run_again(postgres_world: World):
    world = postgres_world
    world.gate("other")
    barrier = threading.Barrier(2)
    runs: list[str] = []

    def work(names: tuple[str, str]) -> None:
        def transaction(connection: sa.Connection) -> None:
            runs.append(names[0])
            for turn, name in enumerate(names):
                connection.execute(
                    sa.text("SELECT 1 FROM gates WHERE name = :name FOR UPDATE"), {"name": name}
                )
                if turn == 0 and len(runs) <= 2:
                    barrier.wait(timeout=240)

        world.store._database.writing(transaction)

    at_once(work, ("other", "support-bot"), ("support-bot", "other"))
    assert len(runs) >= 3, "the one that lost, once more or, on a busy machine, again"


class LossyLink:
    """Between a client and the server's socket: passes everything on, but loses the answer to one COMMIT."""

    def __init__(self, folder: str) -> None:
        self.lose = False
        self.lost = 0
        self._folder = folder
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._folder}/.s.PGSQL.5432")
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._back, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        # The server may have closed its end before what is left of a connection that was given up comes to it.
        with client, server, contextlib.suppress(OSError):
            while chunk := client.recv(65536):
                if self.lose and b"Q\x00\x00\x00\x0bCOMMIT\x00" in chunk:
                    self.lose = False
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)  # before the server hears of it: no answer can pass
                    server.sendall(chunk)
                    time.sleep(0.5)
                    return
                server.sendall(chunk)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := server.recv(65536):
                client.sendall(chunk)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def test_the_answer_to_a_commit_is_lost_on_the_way(postgres_world: World, postgres_server: PostgresServer):
    world = postgres_world
    link = LossyLink(str(postgres_server.folder))
    name = sa.make_url(world.url).database
    far = World(f"postgresql://postgres@127.0.0.1:{link.port}/{name}?sslmode=disable&gssencmode=disable")
    far.policy = world.policy
    lease = far.lease()
    piece = far.slice(lease, far.decision(0, "a"), far.decision(1, "a"), far.dead(2))
    link.lose = True
    with pytest.raises(Unavailable):
        far.commit(piece)
    assert link.lost == 1
    wait_until(lambda: world.rows("SELECT count(*) FROM outcomes") == [(3,)], "the server has it")
    assert far.commit(piece) == [["decision", "duplicate", "dead_letter"]]
    assert world.rows("SELECT count(*) FROM outcomes") == [(3,)]
    assert world.store.evidence.log_faults() == []
    far.close()
    link.close()


def test_an_error_does_not_quote_peoples_texts(world: World):
    lease = world.lease()
    broken = world.decision(0, content="private matter", sampling_probability=1.5)
    with pytest.raises(BadData, match="sampling_probability") as caught:
        world.commit(world.slice(lease, broken))
    told = "".join(traceback.format_exception(caught.value))
    assert "private" not in told
    assert "b0-0" not in told


@pytest.mark.slow
def test_a_server_that_crashes_and_comes_back(own_postgres_server: PostgresServer):
    url = own_postgres_server.create_database()
    migrate(url)
    world = World(url)
    world.gate()
    lease = world.lease()
    first = world.slice(lease, world.decision(0), world.decision(1))
    world.commit(first)
    own_postgres_server.stop("immediate")
    second = world.slice(lease, world.decision(2), expected=2)
    calls: list[Callable[[], Any]] = [
        lambda: world.commit(second),
        lambda: world.lease(1),
        lambda: world.store.known([world.decision(0).key]),
        lambda: world.store.unpublished([], limit=1),
        lambda: world.store.mark_published([OutboxMessage("t", None, None, (), id=1, queued=True)]),
        lambda: world.store.policies.active(),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            call()
    own_postgres_server.start()

    def answers() -> bool:
        try:
            return bool(world.store.policies.active())
        except Unavailable:
            return False

    wait_until(answers, "it is back, and a pooler between has seen it")
    assert world.commit(first) == [["decision", "decision"]]
    assert world.commit(second) == [["decision"]]
    assert world.store.evidence.log_faults() == []
    world.close()
