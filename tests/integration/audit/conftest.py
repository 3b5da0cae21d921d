import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from streamer.audit.verification import VerificationReport
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer_verify.command import checkpoint_lines
from streamer_verify.verifier import Verifier
from tests.integration.audit.alone import verify_bundle
from tests.integration.audit.beside import verify_beside
from tests.integration.audit.history import KEYS, export, settings_for, verify, write_history, written_history
from tests.machine import LONG
from tests.services.postgres import PostgresServer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take each case on one database, every third on PostgreSQL: the checks are one code for both. `make faults` takes all."""
    pairs = defaultdict(list)
    for item in items:
        if item.path.parent == Path(__file__).parent and not LONG:
            pairs[re.sub("sqlite|postgresql", "", item.nodeid)].append(item)
    both = [pair for pair in pairs.values() if len(pair) > 1]
    left_out = {pair[-1 if number % 3 else 0].nodeid for number, pair in enumerate(both)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


@dataclass
class Record:
    """A copy of the history, with its own file of checkpoints, to be changed and verified."""

    url: str
    directory: Path
    settings: Settings

    @property
    def file(self) -> Path:
        return self.directory / "checkpoints.jsonl"

    def verify(self, **options: object) -> VerificationReport:
        """What `audit verify` finds."""
        report = verify(self.settings, **options)  # type: ignore[arg-type]
        if LONG and "rescorer" not in options:
            assert verify_beside(self.settings, **options | {"store": None}) == report
        return report

    def verify_alone(self, *, from_bundle: bool = False, store: Store | None = None) -> Verifier:
        """What the one-file verifier finds in a bundle that is exported now."""
        target = self.directory / "bundle"
        export(self.settings, target, store=store)
        outside = None if from_bundle else checkpoint_lines(self.file.read_bytes())
        return verify_bundle(target, KEYS, outside)


@pytest.fixture(scope="session")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    """The history on each kind of database, written once, when it is first asked for."""
    return {}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def template(
    request: pytest.FixtureRequest,
    histories: dict[str, tuple[str, Path]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    """The history on one kind of database; leave it as it is."""
    if request.param not in histories:
        directory = tmp_path_factory.mktemp("history")
        if request.param == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.create_database()  # it goes with the server
            write_history(url, directory)
        else:
            url = written_history(directory).database.url
        histories[request.param] = (url, directory)
    return histories[request.param]


@pytest.fixture
def record(template: tuple[str, Path], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Record]:
    """A copy of the history."""
    url, directory = template
    shutil.copy(directory / "checkpoints.jsonl", tmp_path)
    if url.startswith("sqlite"):
        shutil.copy(directory / "record.db", tmp_path)
        own = f"sqlite:///{tmp_path / 'record.db'}"
        yield Record(own, tmp_path, settings_for(own, tmp_path))
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"copy_{make_url(url).database}"
    with psycopg.connect(
        host=str(server.folder), user="postgres", dbname="postgres", autocommit=True
    ) as connection:
        # A pooler keeps sessions, and a database with one is no template.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            (make_url(url).database,),
        )
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{make_url(url).database}"')
    own = server.url_of(name)
    yield Record(own, tmp_path, settings_for(own, tmp_path))
    server.drop_database(own)
