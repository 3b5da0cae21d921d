"""Databases with the tables in them, for tests that are not about how the tables come to be: migrating takes a second."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url

from streamer import wiring
from streamer.store import migrate
from tests.run_folder import made_once

if TYPE_CHECKING:
    from streamer.settings.settings import Settings


def migrated_file() -> Path:
    """An empty, migrated SQLite database, to be copied."""
    return made_once("migrated.sqlite3", lambda file: migrate(f"sqlite:///{file}"))


def migrated(database: str | Settings) -> None:
    """Bring the database of a URL or of settings to the newest version: a copy, where it is a SQLite file yet to come."""
    parts = make_url(database if isinstance(database, str) else database.database.url)
    if parts.get_backend_name() == "sqlite" and not (file := Path(str(parts.database))).exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(migrated_file(), file)
    elif isinstance(database, str):
        migrate(database)
    else:
        wiring.migrate(database)
