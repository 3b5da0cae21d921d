"""PgBouncer before PostgreSQL: nothing relies on a session, nothing is left on one, and the doctor says what it sees."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from streamer.errors import UsageError
from streamer.gates.settings import GateSettings
from streamer.store.db.engine import Database
from tests.at_once import at_once
from tests.integration.store.conftest import World
from tests.services.pgbouncer import PgBouncer, what_pgbouncer_needs
from tests.services.postgres import PostgresServer
from tests.services.requirements import missing

CLIENTS = 6
"""More than the pooler has sessions for."""


@pytest.fixture
def pooled(postgres_server: PostgresServer, migrated_postgres_url: str) -> Iterator[Callable[..., str]]:
    """Put a pooler of a mode before a migrated database; returns the URL through it."""
    if need := what_pgbouncer_needs():
        missing(*need)
    poolers = []

    def start(mode: str, sessions: int = 3) -> str:
        poolers.append(PgBouncer(postgres_server, mode=mode, sessions=sessions))
        poolers[-1].wait()
        return poolers[-1].url_of(str(make_url(migrated_postgres_url).database))

    yield start
    for one in poolers:
        one.remove()


def test_many_clients_share_few_sessions(pooled: Callable[..., str]):
    url = pooled("transaction")
    world = World(url)
    world.gate()
    lease = world.lease()
    for offset in range(8):  # more often than a driver waits before it prepares a statement
        world.commit(world.slice(lease, world.decision(offset), expected=offset))
        lease = world.lease()
    stores = [world.open() for _ in range(CLIENTS)]
    found: list[object] = []

    def work(number: int) -> None:
        store = stores[number]
        for turn in range(12):
            store.gates.revise(
                "support-bot", {"alpha": (turn * CLIENTS + number + 1) / 1000}, by="ana", reason="turn"
            )
            found.append(store.policies.newest("support-bot").version)
            found.append(store.evidence.log_faults())

    at_once(work, *range(CLIENTS))
    assert len(found) == 2 * 12 * CLIENTS, "nobody met a session that did not know what another one does"
    assert [one for one in found if one == []] == [[]] * (12 * CLIENTS)
    assert world.store.policies.newest("support-bot").version == 1 + 12 * CLIENTS

    held = [store.leases.leadership() for store in stores]
    assert sorted(one.held() for one in held) == [False] * (CLIENTS - 1) + [True]
    assert sorted(one.held() for one in held) == [False] * (CLIENTS - 1) + [True]
    for one in held:
        one.release()
    world.close()


def test_nothing_is_left_on_a_session(pooled: Callable[..., str]):
    url = pooled("transaction", 1)
    plain = url.replace("+psycopg", "")
    # The pooler itself gives a session the name of whoever has it, if that has one.
    with psycopg.connect(plain, autocommit=True, prepare_threshold=None, application_name="another") as other:
        before = other.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall()
        world = World(url)
        world.gate("support-bot")
        lease = world.lease()
        world.commit(world.slice(lease, world.decision(0), world.decision(1)))
        leader = world.store.leases.leadership()
        assert leader.held()
        assert other.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall() == before
        for left in ("pg_prepared_statements", "pg_cursors", "pg_listening_channels() AS c"):
            assert other.execute(f"SELECT count(*) FROM {left}").fetchall() == [(0,)], left
        assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
        temporary = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"
        assert other.execute(temporary).fetchone() == (0,)
        leader.release()
        world.close()


def test_what_stands_between_is_seen(
    pooled: Callable[..., str], postgres_server: PostgresServer, migrated_postgres_url: str
):
    name = str(make_url(migrated_postgres_url).database)
    for url, seen in (
        (postgres_server.direct_url_of(name), "direct"),
        (pooled("session"), "session"),
        (pooled("transaction"), "transaction"),
    ):
        world = World(url)
        assert world.store.reports.pooling() == seen
        world.close()


def test_a_pooler_that_permits_no_transactions_is_refused(pooled: Callable[..., str]):
    with pytest.raises(UsageError, match="pool_mode = transaction"):
        World(pooled("statement"))


def test_statements_are_prepared_on_a_direct_connection_alone(
    pooled: Callable[..., str], postgres_server: PostgresServer, migrated_postgres_url: str
):
    name = str(make_url(migrated_postgres_url).database)
    for url, wanted in ((postgres_server.direct_url_of(name), {}), (pooled("transaction"), None)):
        database = Database(url)
        with database.reading() as connection:
            assert connection.info["prepared"] == wanted
            assert connection.execute(sa.text("SHOW search_path")).scalar() == "streamer"
        database.close()


def test_a_snapshot_is_one_moment_through_a_pooler(pooled: Callable[..., str]):
    world = World(pooled("transaction"))
    names = sa.text("SELECT name FROM gates")
    with world.store._database.reading(snapshot=True) as connection:
        assert connection.execute(names).scalars().all() == []
        world.store.gates.create(
            "late", GateSettings(encoder="all-MiniLM-L6-v2@53aa5117"), by="ana", reason=""
        )
        assert connection.execute(names).scalars().all() == []
    with world.store._database.reading() as connection:
        assert connection.execute(names).scalars().all() == ["late"]
    world.close()


@pytest.mark.parametrize("pooler", [None, "transaction", "session"])
def test_a_transaction_is_what_we_ask_for_whatever_the_servers_defaults(
    pooled: Callable[..., str],
    postgres_server: PostgresServer,
    migrated_postgres_url: str,
    pooler: str | None,
):
    database = str(make_url(migrated_postgres_url).database)
    direct = postgres_server.direct_url_of(database)
    with psycopg.connect(direct.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")
        connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = 'off'")
    store = Database(direct if pooler is None else pooled(pooler))
    complaints: list[str] = []

    def settings(connection: sa.Connection) -> list[str]:
        driver = connection.connection.dbapi_connection
        assert isinstance(driver, psycopg.Connection)
        driver.add_notice_handler(lambda diagnostic: complaints.append(str(diagnostic.message_primary)))
        names = ("transaction_isolation", "synchronous_commit", "search_path", "TimeZone")
        return [str(connection.exec_driver_sql(f"SHOW {name}").scalar_one()) for name in names]

    for _ in range(2):
        assert store.writing(settings) == ["read committed", "on", "streamer", "UTC"]
        with store.reading() as connection:
            assert settings(connection)[0] == "read committed"
        with store.reading(snapshot=True) as connection:
            assert settings(connection)[0] == "repeatable read"
    store.close()
    assert not complaints
