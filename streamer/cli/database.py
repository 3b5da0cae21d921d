"""`streamer db`: the schema of the database."""

import typer

from streamer.cli import FOUND
from streamer.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True, help="The database's schema.")


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
