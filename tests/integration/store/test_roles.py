"""The three roles on a real PostgreSQL: what each may do, and what is refused to it, by trying."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.engine import make_url

from streamer.errors import UsageError
from streamer.review.items import Mark, Reviewer
from streamer.store import check, create_roles, migrate
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import kept_of
from tests.integration.store.conftest import START, World
from tests.services.postgres import PostgresServer

VIEWS = ("v_decisions", "v_label_queue", "v_risk", "v_risk_intervals", "v_severities")


@dataclass(frozen=True)
class Users:
    """URLs of one database, as somebody in each role."""

    admin: str
    migrate: str
    app: str
    read: str
    nobody: str


_sockets: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def _socket(postgres_server: PostgresServer) -> None:
    _sockets.append(postgres_server.folder)


def connect(url: str) -> psycopg.Connection[Any]:
    """A session of its own, by the server's socket, also where the URL leads through a pooler."""
    parts = make_url(url)
    return psycopg.connect(
        host=str(_sockets[-1]), user=parts.username, dbname=parts.database, autocommit=True,
        options="-c search_path=streamer",
    )  # fmt: skip


@pytest.fixture(scope="module")
def users(postgres_server: PostgresServer) -> Iterator[Users]:
    url = postgres_server.create_database()
    yield from made_for(url)
    postgres_server.drop_database(url)


@pytest.fixture
def new_users(postgres_database_url: str) -> Iterator[Users]:
    """The same over an empty database of the test's own."""
    yield from made_for(postgres_database_url)


def made_for(url: str) -> Iterator[Users]:
    roles = create_roles(url)
    mark = uuid.uuid4().hex[:8]
    names = {"migrate": roles.migrate, "app": roles.app, "read": roles.read, "nobody": None}
    urls = {}
    with connect(url) as admin:
        for name, role in names.items():
            admin.execute(f"CREATE ROLE {name}_{mark} LOGIN" + (f" IN ROLE {role}" if role else ""))
            urls[name] = str(make_url(url).set(username=f"{name}_{mark}"))
    yield Users(url, **urls)
    with connect(url) as admin:
        for name in names:
            admin.execute(f"DROP OWNED BY {name}_{mark}")
            admin.execute(f"DROP ROLE {name}_{mark}")


@pytest.fixture(scope="module")
def recorded(users: Users) -> Iterator[World]:
    """A world that the app role made from its first gate on, with a row in most tables."""
    migrate(users.migrate)
    world = World(users.app)
    world.gate()
    lease, labels = world.lease(), world.lease(topic="streamer.labels")
    world.commit(
        world.slice(lease, world.decision(0, "a"), world.decision(1, "a"), world.dead(2)),
        world.slice(labels, world.label(0.5, "a", offset=0)),
    )
    yield world
    world.close()


def refused(url: str, statement: str) -> None:
    with connect(url) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(statement)


def test_the_app_role_does_everything_that_the_product_does(recorded: World, users: Users) -> None:
    store = recorded.store
    gate = store.gates.get("support-bot")
    store.gates.revise("support-bot", {"alpha": 0.2}, by="ana", reason="less strict")
    assert store.gates.get("support-bot").settings.alpha == 0.2 != gate.settings.alpha
    waiting = store.unpublished([recorded.partition()], limit=10)
    assert waiting
    store.mark_published([waiting[0]])
    store.park(waiting[1], "too large")
    (letter,) = store.dead_letters.list()
    assert store.dead_letters.replay([letter.id], by="ana") == 1
    assert store.evidence.log_faults() == []
    assert check(users.app) is None


def test_the_app_role_reviews(new_users: Users) -> None:
    migrate(new_users.migrate)
    world = World(new_users.app)
    world.gate()
    world.keep(world.decision(0), world.decision(1))
    who = Reviewer(labeller="ana", holder="page")
    skipped = world.store.reviews.next(who, ["support-bot"], hold=timedelta(minutes=1), now=START)
    world.store.reviews.skip(who, skipped.token, now=START)
    item = world.store.reviews.next(who, ["support-bot"], hold=timedelta(minutes=1), now=START)
    assert item is not None
    for count in (1, 2):
        mark = Mark(token=item.token, severity=0.5, name=f"m{count}", count=count)
        world.store.reviews.mark(who, mark, now=START)
    assert world.store.reviews.renew(who, skipped.token, hold=timedelta(minutes=1), now=START)
    world.store.reviews.release(who)
    world.close()


def test_the_app_role_makes_and_revokes_keys_and_takes_nothing_back(recorded: World, users: Users) -> None:
    key, _ = recorded.store.api_keys.create(gates=["support-bot"], may=["decide"], by="ana")
    recorded.store.api_keys.revoke(key.id, by="ana", reason="over")
    for table in ("api_keys", "api_key_revocations"):
        refused(users.app, f"DELETE FROM {table}")
        refused(users.app, f"UPDATE {table} SET id = id")
        refused(users.read, f"SELECT * FROM {table}")


def test_the_app_role_keeps_accounts_and_takes_nothing_back(recorded: World, users: Users) -> None:
    people = recorded.store.accounts
    people.add("ana", roles=["viewer"], password="correct horse battery", by="root")
    people.close("ana", by="root", reason="left")
    assert [one.revision for one in people.list()] == [2]
    for table, column in (("accounts", "name"), ("proposal_rejections", "run")):
        refused(users.app, f"DELETE FROM {table}")
        refused(users.app, f"UPDATE {table} SET {column} = {column}")
        refused(users.read, f"SELECT * FROM {table}")


def test_doctor_can_tell_who_could_rewrite_the_record(recorded: World, users: Users) -> None:
    assert recorded.store.reports.may_rewrite() is False
    owner = World(users.migrate)
    assert owner.store.reports.may_rewrite() is True
    owner.close()


def test_the_app_role_cannot_change_or_delete_what_was_recorded(recorded: World, users: Users) -> None:
    for table in metadata.tables.values():
        free = kept_of(table).updates
        for column in () if free is None else [c for c in table.columns if c.name not in free]:
            refused(users.app, f'UPDATE {table.name} SET "{column.name}" = "{column.name}"')
        if not kept_of(table).deletes:
            refused(users.app, f"DELETE FROM {table.name}")
        for statement in (
            "TRUNCATE {} CASCADE",
            "DROP TABLE {} CASCADE",
            "ALTER TABLE {} DISABLE TRIGGER ALL",
        ):
            refused(users.app, statement.format(table.name))
    refused(users.app, "UPDATE schema_version SET version_num = '0001'")
    refused(users.app, "CREATE TABLE streamer.mine (id int)")
    refused(
        users.app,
        "CREATE OR REPLACE FUNCTION streamer.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'x'",
    )
    refused(users.app, "SET session_replication_role = replica")
    # The two rights that a trigger narrows.
    with connect(users.app) as connection:
        with pytest.raises(errors.IntegrityConstraintViolation, match="gates is append-only"):
            connection.execute("UPDATE gates SET name = 'other'")
        with pytest.raises(errors.IntegrityConstraintViolation, match="outbox is append-only"):
            connection.execute("DELETE FROM outbox")


def test_the_reading_role_sees_the_views_and_nothing_else(recorded: World, users: Users) -> None:
    with connect(users.read) as connection:
        for view in VIEWS:
            connection.execute(f"SELECT * FROM {view}").fetchall()
        assert connection.execute("SELECT count(*) FROM v_decisions").fetchone() == (1,)
    for table in metadata.tables:
        refused(users.read, f"SELECT * FROM {table}")
        refused(users.read, f"INSERT INTO {table} DEFAULT VALUES")
    refused(users.nobody, "SELECT * FROM streamer.v_decisions")


def test_only_the_migrating_role_migrates_and_what_it_makes_is_granted(new_users: Users) -> None:
    users = new_users
    for url in (users.app, users.read, users.nobody):
        with pytest.raises(UsageError, match="lacks the rights to do it"):
            migrate(url)
    migrate(users.admin)  # an administrator may, and leaves nothing that is his own
    migrate(users.migrate)
    with connect(users.admin) as connection:
        owners = connection.execute(
            "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'streamer'::regnamespace"
        ).fetchall()
    assert owners == [("streamer_migrate",)]
    assert check(users.migrate) is None
    assert check(users.app) is None


def test_who_may_not_make_roles_is_told(users: Users, tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="lacks the rights to do it"):
        create_roles(users.nobody)
    with pytest.raises(UsageError, match="SQLite has no roles"):
        create_roles(f"sqlite:///{tmp_path}/it.db")
