"""A record whose owner is no superuser, and answers in which nothing can be seen: under traffic, with the oracle."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from streamer import wiring
from streamer.events.actions import decode_action
from streamer.store import create_roles
from tests.faults import oracle
from tests.faults.matrix import Matrix
from tests.faults.site import GATE, Site, a_site, event, publish, wait_until
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer

UNSEEN = ("\u200b\u2060\ufeff", "\u3164", " \u00ad\u202e", "\u2800", "\U000e0041\ufe0f\u0301")


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


def unseen(number: int) -> bytes:
    """A batch whose answers agree, so that they ship, but for those in which nothing can be seen."""
    content: Any = {
        "responses": [
            {
                "id": f"r{i}",
                "text": UNSEEN[(number + i) % 5] if number % 4 == 3 or i == number % 3 else f"answer {i}",
                "embedding": [1.0, number + 1.0, 0.01 * i, *[0.0] * 13],
            }
            for i in range(4)
        ]
    }
    return event(number, **content)


def test_answers_that_nobody_sees_never_ship(site: Site, matrix: Matrix) -> None:
    named = wiring.topics(site.settings)
    with wiring.publisher(site.settings) as publisher:
        for number in range(60):
            publisher.send(named.responses, unseen(number), key=str(number).encode())
    worker = site.start_worker()
    wait_until(lambda: site.decided() == 60, "all is decided")
    found = site.check()
    shipped = 0
    for record in oracle.read_all(wiring.connection(site.settings), named.actions):
        action = decode_action(record.value)
        assert action.gate == GATE
        number = int(action.batch_id.removeprefix("batch-"))
        for i, response in enumerate(action.responses):
            blank = number % 4 == 3 or i == number % 3
            assert not (blank and response.action == "ship")
            shipped += response.action == "ship"
    assert shipped == 45 * 3
    report = json.loads(site.command("audit", "verify", "--json", status=3).stdout)
    # The site puts a threshold in force that no labels found: that is named, and nothing else is.
    assert [fault["detail"].partition(":")[0] for fault in report["faults"]] == [
        "its inputs cannot be calibrated"
    ]
    assert worker.terminate() == 0
    matrix.add("26 answers in which nothing can be seen", found)
