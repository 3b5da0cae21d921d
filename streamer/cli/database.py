"""`streamer db`: the schema of the database, who may do what with it, and what it forgets."""

import typer

from streamer.cli import FOUND
from streamer.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True, help="The database: its schema, its roles, what it forgets.")


@app.command()
def upgrade() -> None:
    """Bring the database's schema to this version's. Safe to repeat; run it before new workers start."""
    from streamer import wiring
    from streamer.cli.console import say
    from streamer.redaction import redact_text
    from streamer.settings import load_settings

    settings = load_settings()
    wiring.migrate(settings)
    say(f"The schema of {redact_text(settings.database.url)} is up to date.")


@app.command()
def check(json: JsonOption = False) -> None:
    """Check that the database answers and its schema is this version's. Exit status 3 when it is not."""
    from streamer import wiring
    from streamer.cli.console import print_json, say
    from streamer.errors import UsageError
    from streamer.redaction import redact_text
    from streamer.settings import load_settings

    settings = load_settings()
    try:
        problem = wiring.check_database(settings)
    except UsageError as error:
        problem = str(error)
    if json:
        print_json(
            {"database": redact_text(settings.database.url), "ok": problem is None, "problem": problem}
        )
    elif problem is None:
        say("The schema is up to date.")
    else:
        say(problem)
    if problem is not None:
        raise typer.Exit(FOUND)


@app.command()
def roles(json: JsonOption = False) -> None:
    """Create the three roles of a PostgreSQL database and grant what each may do. Safe to repeat.

    streamer_migrate owns the tables: for db upgrade and db prune. streamer_app runs everything else: it reads and
    adds, and cannot change or delete what was recorded. streamer_read sees the views. None can log in: make your own
    users their members. Run it once as an administrator of the database; every db upgrade grants for new tables.
    """
    from streamer.cli.console import print_fields, print_json, say
    from streamer.settings import load_settings
    from streamer.wiring.database import create_roles

    created = create_roles(load_settings())
    if json:
        print_json(created._asdict())
        return
    print_fields(
        {
            created.migrate: "owns the tables: streamer db upgrade, streamer db prune",
            created.app: "workers and every other command; adds, and cannot change or delete what was recorded",
            created.read: "the views v_*, and nothing else",
        }
    )
    say(f"For each user: CREATE ROLE name LOGIN PASSWORD '...' IN ROLE {created.app};")
