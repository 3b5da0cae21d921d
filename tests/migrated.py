"""Databases with the tables in them, for tests that are not about how the tables come to be: migrating takes a second."""

import shutil
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from streamer import wiring
from streamer.settings.settings import Settings
from streamer.store import migrate
from streamer.store.db.migrate import head
from tests.run_folder import made_once


def migrated_file() -> Path:
    """An empty, migrated SQLite database, to be copied."""
    return made_once("migrated.sqlite3", lambda file: migrate(f"sqlite:///{file}"))


def migrated(database: str | Settings) -> None:
    """Bring the database of a URL or of settings to the newest version: a copy, where it is a SQLite file yet to come.

    One that is at the newest version is left alone: Alembic would load every script to find nothing to do.
    """
    parts = make_url(database if isinstance(database, str) else database.database.url)
    if parts.get_backend_name() == "sqlite" and not (file := Path(str(parts.database))).exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(migrated_file(), file)
    elif _revision(parts) == head():
        pass
    elif isinstance(database, str):
        migrate(database)
    else:
        wiring.migrate(database)


def _revision(url: sa.URL) -> str | None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
