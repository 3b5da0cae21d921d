"""Migrations: from nothing, with one more to come, twice at once, and in agreement with the tables that the code knows."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from streamer.errors import Unavailable, UsageError
from streamer.store import check, migrate, open_store, schema_state
from streamer.store.db import migrate as migrations
from streamer.store.db.engine import SCHEMA, Database
from streamer.store.db.migrate import head, revisions
from streamer.store.db.schema import metadata
from streamer.store.db.schema.types import is_month
from tests.at_once import at_once
from tests.integration.store.conftest import START, dead_letter_message, policy_message
from tests.services.service_forks import FORKS

ROOT = Path(__file__).resolve().parents[3]


def alembic(url: str, *arguments: str, status: int = 0) -> str:
    """Run Alembic's own command line as its users do, from the root of the repository."""
    environment = os.environ | {"STREAMER_DATABASE_URL": url}
    done = FORKS.run(arguments, module="alembic", environment=environment, folder=ROOT, seconds=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


def loaded() -> ScriptDirectory:
    """The scripts of our migrations as Alembic has them."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    return ScriptDirectory.from_config(config)


def tables_of(url: str) -> dict[str, Any]:
    """Everything that the database itself knows of our tables."""
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            inspector = sa.inspect(connection)
            return {
                name: {
                    "columns": sorted(
                        (c["name"], str(c["type"]), c["nullable"], str(c["default"]), bool(c.get("identity")))
                        for c in inspector.get_columns(name)
                    ),
                    "primary key": inspector.get_pk_constraint(name),
                    "checks": sorted(
                        (c["name"], c["sqltext"]) for c in inspector.get_check_constraints(name)
                    ),
                    "uniques": sorted(
                        (c["name"], tuple(c["column_names"])) for c in inspector.get_unique_constraints(name)
                    ),
                    "foreign keys": sorted(
                        (
                            c["name"],
                            tuple(c["constrained_columns"]),
                            c["referred_table"],
                            tuple(c["referred_columns"]),
                        )
                        for c in inspector.get_foreign_keys(name)
                        if not is_month(c["referred_table"])
                    ),
                    "indexes": sorted(
                        (
                            i["name"],
                            tuple(i["column_names"]),
                            bool(i["unique"]),
                            sorted((k, str(v)) for k, v in i.get("dialect_options", {}).items()),
                        )
                        for i in inspector.get_indexes(name)
                    ),
                }
                for name in inspector.get_table_names()
                if not is_month(name)
                if name != "schema_version"
            }
    finally:
        database.close()


def emptied(url: str) -> None:
    """Drop everything."""
    database = Database(url)
    if database.sqlite:
        database.close()
        Path(str(database.url.database)).unlink()
        return
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP SCHEMA {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}")
    database.close()


NEXT = """
from alembic import op

revision = "9998"
down_revision = serves = "{head}"


def upgrade() -> None:
    op.execute("ALTER TABLE gate_revisions ADD COLUMN extra TEXT")
"""


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The program has one more migration; its revision."""
    folder = tmp_path / "migrations"
    shutil.copytree(ROOT / "migrations", folder)
    (folder / "versions" / "r9998_next.py").write_text(NEXT.format(head=head()))
    monkeypatch.setattr(migrations, "_MIGRATIONS", folder)
    revisions.cache_clear()
    yield "9998"
    revisions.cache_clear()


def test_migrations_and_tables_say_the_same(database_url: str):
    migrate(database_url)
    migrated = tables_of(database_url)
    emptied(database_url)
    assert tables_of(database_url) == {}
    database = Database(database_url)
    with database.engine.begin() as connection:
        metadata.create_all(connection)
    database.close()
    assert tables_of(database_url) == migrated
    assert set(migrated) == set(metadata.tables)


def test_revisions_are_named_by_their_files_in_the_order_that_alembic_runs_them():
    scripts = loaded()
    assert [script.revision for script in scripts.walk_revisions()] == list(reversed(revisions()))
    assert scripts.get_current_head() == head()


def test_alembics_own_commands(database_url: str):
    migrate(database_url)
    assert f"{head()} (head)" in alembic(database_url, "current")
    assert re.findall(r"-> (\d{4})", alembic(database_url, "history")) == list(reversed(revisions()))
    assert "No new upgrade operations detected" in alembic(database_url, "check")
    emptied(database_url)
    alembic(database_url, "upgrade", "head")
    assert check(database_url) is None


def test_alembic_makes_no_database_to_look_at(tmp_path: Path):
    for command in ("current", "check"):
        said = alembic(f"sqlite:///{tmp_path / 'none.sqlite3'}", command, status=1)
        assert f"there is no database {tmp_path / 'none.sqlite3'}; `streamer db upgrade` creates it" in said
        assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_printed_sql_makes_the_same_tables(database_url: str):
    migrate(database_url)
    migrated = tables_of(database_url)
    script = alembic(database_url, "upgrade", "head", "--sql")
    assert script == script.encode("ascii", "replace").decode()
    emptied(database_url)
    database = Database(database_url)
    try:
        if database.sqlite:
            with closing(sqlite3.connect(str(database.url.database))) as file:
                file.executescript(script)
        else:
            plain = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
            with psycopg.connect(plain, autocommit=True) as server:
                server.execute(script)
    finally:
        database.close()
    assert tables_of(database_url) == migrated
    assert check(database_url) is None
    open_it(database_url)


def test_a_command_loads_nothing_that_it_has_no_use_for(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    migrate(url)
    code = """if True:
        import sys
        from streamer.cli import main
        main(["gate", "list"])
        sys.exit(bool({"alembic", "psycopg", "scipy", "structlog"} & set(sys.modules)))"""
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=240, env=os.environ | {"STREAMER_DATABASE_URL": url}
    )


def test_two_migrations_at_once_are_one(database_url: str):
    at_once(migrate, *[database_url] * 3)
    assert check(database_url) is None


def open_it(url: str) -> None:
    open_store(
        url, clock=lambda: START, policy_message=policy_message, dead_letter_message=dead_letter_message
    ).close()


def test_an_unmigrated_database_is_refused_with_what_to_do(database_url: str):
    with pytest.raises(UsageError, match="streamer db upgrade"):
        open_it(database_url)
    migrate(database_url)
    open_it(database_url)


def test_a_database_of_the_version_before_is_refused_until_it_is_upgraded(
    database_url: str, request: pytest.FixtureRequest
):
    migrate(database_url)
    before = head()
    following = request.getfixturevalue("next_version")
    with pytest.raises(
        UsageError, match=rf"is at revision {before}, not {following}; run `streamer db upgrade`"
    ):
        open_it(database_url)
    assert before in (check(database_url) or "")
    state = migrate(database_url)
    assert (state.before, state.revision) == (before, following)
    assert "extra" in (check(database_url) or ""), "the copy has the migration alone"


def test_a_database_of_before_the_baseline_is_refused_with_how_to_export_it(database_url: str):
    migrate(database_url)
    database = Database(database_url)
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE schema_version SET version_num = '0047'"))
    database.close()
    for act in (open_it, migrate, check):
        with pytest.raises(UsageError) as refused:
            act(database_url)
        said = str(refused.value)
        assert (
            f"at revision 0047, which an older version made, and this one reads databases made from revision {head()} on"
            in said
        )
        assert "git checkout pre-0.1 && streamer db upgrade && streamer audit export --out BUNDLE.zip" in said


def test_a_newer_database_is_refused(database_url: str):
    migrate(database_url)
    database = Database(database_url)
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE schema_version SET version_num = '9999', serves = '9999'"))
    database.close()
    for act in (open_it, migrate, check):
        with pytest.raises(
            UsageError, match="9999, which a newer version made, for programs of revision 9999 and"
        ):
            act(database_url)


def test_our_tables_live_in_their_own_schema(postgres_database_url: str):
    migrate(postgres_database_url)
    engine = sa.create_engine(postgres_database_url)
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        assert inspector.get_table_names("public") == []
        wanted = {*metadata.tables, "schema_version", "decisions_before", "responses_before"}
        assert set(inspector.get_table_names(SCHEMA)) == wanted
        wanted = {"v_decisions", "v_label_queue", "v_risk", "v_risk_intervals", "v_severities"}
        assert set(inspector.get_view_names(SCHEMA)) == wanted
    engine.dispose()


def test_a_new_sqlite_file_and_its_folders_are_made_by_migrating_alone(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/some/where/streamer.db"
    for act in (open_it, check):
        with pytest.raises(UsageError, match="streamer db upgrade"):
            act(url)
    assert not (tmp_path / "some").exists()
    assert migrate(url).current
    assert check(url) is None
    open_it(url)


def test_urls_that_cannot_be(tmp_path: Path):
    with pytest.raises(UsageError):
        migrate("sqlite:///:memory:")
    (tmp_path / "file").write_text("this is no database, but long enough to be looked at as one" * 20)
    with pytest.raises(UsageError, match="not a SQLite database"):
        migrate(f"sqlite:///{tmp_path}/file")
    with pytest.raises(UsageError, match="cannot be created"):
        migrate(f"sqlite:///{tmp_path}/file/below/it.db")


def test_a_server_that_is_away_is_unavailable_and_the_password_stays_secret():
    for act in (migrate, check, open_it):
        with pytest.raises(Unavailable) as caught:
            act("postgresql://ana:hunter2@127.0.0.1:1/streamer")
        assert "hunter2" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)


def test_a_migration_that_gets_no_lock_gives_up_soon_and_changes_nothing(
    postgres_database_url: str, request: pytest.FixtureRequest
):
    migrate(postgres_database_url)
    before = head()
    following = request.getfixturevalue("next_version")
    engine = sa.create_engine(postgres_database_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.gate_revisions IN ACCESS SHARE MODE"))
        with pytest.raises(Unavailable, match="lock timeout"):
            migrate(postgres_database_url, lock_seconds=0.3)
        assert schema_state(postgres_database_url).revision == before
    engine.dispose()
    assert migrate(postgres_database_url, lock_seconds=0.3).revision == following


def test_a_migration_waits_for_a_writer_of_sqlite(sqlite_database_url: str):
    writer = sqlite3.connect(sa.make_url(sqlite_database_url).database or "", check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, writer.rollback)
    release.start()
    assert migrate(sqlite_database_url).current
    assert check(sqlite_database_url) is None
    release.join()
    writer.close()
