"""What Alembic runs, for ``streamer db`` and for its own command line, which reads the database's URL where we do.

``streamer db upgrade`` hands over its connection; ``alembic upgrade`` opens the same kind of transaction here, with the
same locks. With ``--sql`` it prints what would be done.
"""

import sqlalchemy as sa
from alembic import context

from streamer.errors import UsageError
from streamer.settings.settings import load_settings
from streamer.store.db.engine import SCHEMA, Database
from streamer.store.db.migrate import COMPARED, VERSION_TABLE, alone, head, note_served, require_file

OPTIONS = COMPARED | {"render_as_batch": True, "transactional_ddl": True}


def run() -> None:
    """Migrate, or whatever was asked, on the connection that was handed over or on one of our own."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _online(connection, changing=True)
        return
    settings = load_settings()
    database = Database(settings.database.url, insecure=settings.insecure)
    try:
        if context.is_offline_mode():
            print_sql(database)
            return
        command = context.config.cmd_opts.cmd[0].__name__ if context.config.cmd_opts else "upgrade"
        if changing := command in ("upgrade", "stamp"):
            database.make_file()
            opened = alone(database)
        else:
            require_file(database)
            opened = database.reading()
        with opened as connection:
            _online(connection, changing=changing)
    finally:
        database.close()


def _online(connection: sa.Connection, *, changing: bool) -> None:
    context.configure(connection=connection, **OPTIONS)
    context.run_migrations()
    if changing:
        note_served(connection, context.script)


def print_sql(database: Database) -> None:
    """Print one transaction."""
    context.configure(url=database.url, literal_binds=True, dialect_opts={"paramstyle": "named"}, **OPTIONS)
    with context.begin_transaction():
        if not database.sqlite:
            context.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            context.execute(f"SET LOCAL search_path = {SCHEMA}")
        context.run_migrations()
        serves = context.script.get_revision(head()).module.serves
        context.execute(f"UPDATE {VERSION_TABLE} SET serves = '{serves}'")  # noqa: S608  # our own file's


try:
    run()
except UsageError as error:
    if context.config.cmd_opts is None:
        raise
    # One line, on standard error: SQL goes to standard output.
    raise SystemExit(f"alembic: {error}") from None
