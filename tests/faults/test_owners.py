"""Case 23: a record whose owner is no superuser, under traffic."""

from contextlib import ExitStack
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from streamer.store import create_roles
from tests.faults.matrix import Matrix
from tests.faults.site import a_site, publish, wait_until
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer


def test_an_owner_who_is_no_superuser_sets_up_and_upgrades_under_traffic(
    kafka_broker: KafkaBroker,
    own_postgres_server: PostgresServer,
    topic_prefix: str,
    tmp_path: Path,
    matrix: Matrix,
) -> None:
    database = make_url(own_postgres_server.create_database())
    folder = str(own_postgres_server.folder)
    with psycopg.connect(host=folder, user="postgres", dbname="postgres", autocommit=True) as administrator:
        administrator.execute("CREATE ROLE olga LOGIN CREATEROLE")
        administrator.execute(f"ALTER DATABASE {database.database} OWNER TO olga")
    owner = database.set(username="olga").render_as_string()
    create_roles(owner)
    with psycopg.connect(host=folder, user="olga", dbname="postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE worker LOGIN IN ROLE streamer_app")
    worker_url = database.set(username="worker").render_as_string()
    with ExitStack() as stack, a_site(kafka_broker, owner, topic_prefix, tmp_path, stack) as site:
        worker = site.start_worker(STREAMER_DATABASE_URL=worker_url)
        publish(site, 0, 100)
        site.command("db", "roles")
        site.command("db", "upgrade")
        publish(site, 100, 100)
        wait_until(lambda: site.decided() == 200, "all is decided")
        site.command("db", "upgrade", status=2, STREAMER_DATABASE_URL=worker_url)
        site.command("doctor", "--full", STREAMER_DATABASE_URL=worker_url)
        wait_until(
            lambda: not site.store.reports.outbox_pending(), "all is published while there is a worker"
        )
        assert worker.terminate() == 0
        found = site.check()
        assert found.decisions == 200
        matrix.add("23 roles made by an owner who is no superuser, upgraded under traffic", found)
