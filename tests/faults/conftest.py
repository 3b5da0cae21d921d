from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.matrix import LONG, Matrix
from tests.faults.recalibrators import Place
from tests.faults.site import Site, a_site
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer

_MATRIX = Matrix()


@pytest.fixture
def site(
    kafka_broker: KafkaBroker, migrated_postgres_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Site]:
    """A site on the shared Kafka and PostgreSQL."""
    with (
        ExitStack() as stack,
        a_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as one,
    ):
        yield one


@pytest.fixture
def own_site(
    own_kafka_broker: KafkaBroker, own_postgres_server: PostgresServer, tmp_path: Path
) -> Iterator[Site]:
    """A site whose broker and database the test may kill."""
    url = own_postgres_server.create_migrated_database()
    with ExitStack() as stack, a_site(own_kafka_broker, url, "own.", tmp_path, stack) as one:
        yield one


@pytest.fixture
def place(
    kafka_broker: KafkaBroker, migrated_database_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Place]:
    """A record with one labelled gate, for recalibrators; once on each database."""
    with ExitStack() as stack:
        yield Place(migrated_database_url, kafka_broker, topic_prefix, tmp_path, stack)


@pytest.fixture
def matrix() -> Matrix:
    """Where a test leaves what its case of the fault matrix came to."""
    return _MATRIX


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that take minutes to the long run."""
    if not LONG:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LONG and _MATRIX.rows:
        terminalreporter.section("the fault matrix")
        terminalreporter.write_line(_MATRIX.table())
