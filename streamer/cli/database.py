"""`streamer db`: the schema of the database, its roles, and erasing old texts."""

import sys
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli.console import counted, print_fields, print_json, say, tell
from streamer.cli.options import ByOption, JsonOption, ReasonOption, argument, flag, option, seconds
from streamer.errors import UsageError
from streamer.security.visible import redact_text

app = typer.Typer(no_args_is_help=True)


@app.command()
def upgrade(
    lock_timeout: str | None = option(
        "TIME",
        "On PostgreSQL: how long to wait for a table in use before giving up with nothing changed. Default: 10s.",
    ),
) -> None:
    """Upgrade the database's schema to this version: all of it or nothing. Safe to repeat.

    Run it before new workers start; those that run continue.
    """
    settings = wiring.load_settings()
    state = wiring.migrate(
        settings, lock_seconds=None if lock_timeout is None else seconds(lock_timeout, "--lock-timeout")
    )
    name = redact_text(settings.database.url)
    if state.before is None:
        say(f"Created the tables of {name}: revision {state.revision}.")
    elif state.before != state.revision:
        say(f"Upgraded the tables of {name} from revision {state.before} to {state.revision}.")
    else:
        say(f"The tables of {name} are up to date: revision {state.revision}.")


@app.command()
def check(json: JsonOption = False) -> None:
    """Check that the database answers and its schema is this version's. Exit status 3 when it is not."""
    settings = wiring.load_settings()
    try:
        problem = wiring.check_database(settings)
    except UsageError as error:
        problem = str(error)
    found = {"database": redact_text(settings.database.url), "ok": problem is None, "problem": problem}
    tell(json, found, problem or "The schema is up to date.")
    if problem is not None:
        raise typer.Exit(FOUND)


@app.command()
def roles(json: JsonOption = False) -> None:
    """Create the three roles of a PostgreSQL database and grant what each may do. Safe to repeat.

    streamer_migrate owns the tables: for db upgrade and db prune. streamer_app runs everything else: it reads and
    adds, and cannot change or delete what was recorded. streamer_read sees the views. None can log in: make your own
    users their members. Run it once, as the owner of the database with the right CREATEROLE or as a superuser; every
    db upgrade grants for new tables. A user whose rights are not enough gets the SQL statements that an administrator
    must run first, one a line on standard output, and exit status 2.
    """
    from streamer.store.db.roles import RightsMissing, create_roles

    settings = wiring.load_settings()
    try:
        created = create_roles(settings.database.url, insecure=settings.insecure)
    except RightsMissing as error:
        tell(json, {"administrator": error.statements}, *error.statements)
        raise UsageError(
            f"{error.what}; an administrator must run what standard output shows, in this database;"
            " then run `streamer db roles` again"
        ) from error
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


@app.command()
def months(
    ahead: int = option("N", "How many months after this one to make.", 2, min=0, max=120),
    json: JsonOption = False,
) -> None:
    """Make the partitions of this month and the next ones, and record new batches in this month's. Safe to repeat.

    On PostgreSQL, as a member of streamer_migrate. Run it as each month (UTC) begins: until then batches are recorded in the
    month before.
    """
    from streamer.store import make_months

    settings = wiring.load_settings()
    made = make_months(settings.database.url, now=wiring.now(), ahead=ahead, insecure=settings.insecure)
    tell(json, {"made": made}, *made, f"{counted(len(made), 'partition was', 'partitions were')} made.")


@app.command()
def prune(
    older_than: str = option("TIME", "Erase texts that are at least this old, like 200d.", ...),
    dry_run: bool = flag("--dry-run", "Count what would be erased, and erase nothing."),
    yes: bool = flag("--yes", "Do not ask."),
    sooner_than_six_months: bool = flag(
        "--sooner-than-six-months",
        "Permit an age under 184 days, the time for which records of automatic decisions must commonly be kept.",
    ),
    by: ByOption = "",
    reason: ReasonOption = "old enough",
    json: JsonOption = False,
) -> None:
    """Erase old texts and delete old published messages. What was erased cannot be restored.

    Erased are prompts, responses, references, metadata, refused messages, and what a judge was asked and said.
    Decisions, scores, labels, calibrations and ids stay, and the Merkle logs still verify. A batch that is delivered
    again after that counts as a duplicate, whatever it holds. Who erased, why, and what age allowed it goes on record with it.
    On PostgreSQL: as a member of streamer_migrate.
    """
    from streamer.store import prune as prune_database

    settings = wiring.load_settings()
    run = partial(
        prune_database,
        settings.database.url,
        now=wiring.now(),
        insecure=settings.insecure,
        older_than=timedelta(seconds=seconds(older_than, "--older-than")),
        sooner_than_six_months=sooner_than_six_months,
        by=by,
        reason=reason,
    )
    found = run(dry_run=True)
    if not dry_run and found.total:
        asked = f"Erase {counted(found.total, 'row', 'rows')} permanently?"
        _confirm(asked, "nothing was erased", yes=yes, json=json)
        found = run(dry_run=False)
    if json:
        print_json({"dry_run": dry_run, **asdict(found)})
        return
    print_fields(
        {
            "batches": found.batches,
            "refused messages": found.dead_letters,
            "judgements": found.judgements,
            "texts released at the desk": found.released,
            "published messages": found.messages,
            "parked messages": found.parked,
            "keys of bursts": found.burst_keys,
        }
    )
    say("These would be erased." if dry_run else "Erased.")


def _confirm(question: str, undone: str, *, yes: bool, json: bool) -> None:
    """Ask, unless that was answered before. Raises `UsageError` where there is nobody to ask."""
    if yes:
        return
    if json or not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError(f"{undone}: give --yes, or use --dry-run first to see what would be")
    typer.confirm(question, abort=True, err=True)


@app.command("give-out")
def give_out(
    month: str = argument("MONTH", "Like 2026-05; all that was recorded by its end."),
    out: Path = option("FILE", "A new file that ends in .zip.", ...),
    dry_run: bool = flag("--dry-run", "Say what would leave, or what still needs it."),
    yes: bool = flag("--yes", "Do not ask."),
    by: ByOption = "",
    reason: ReasonOption = "old enough",
    json: JsonOption = False,
) -> None:
    """Move old decisions that were not drawn into a file that verifiers read.

    Safe to repeat: of a month that was given out it compares the file with the SHA-256 on record.

    Drawn decisions stay, the first under each policy, those of the desk, and all leaves and keys:
    the rest is calibrated and verified as before, and no batch is decided again. The file is
    compared with the record first; its SHA-256 goes on record. Texts leave with their decisions.
    On PostgreSQL: as a member of streamer_migrate.
    """
    from streamer.store import give_out as give_out_of

    settings = wiring.load_settings()
    run = partial(
        give_out_of,
        settings.database.url,
        month,
        out,
        now=wiring.now(),
        by=by,
        reason=reason,
        witnesses=[one.key.name for one in wiring.witnesses(settings)],
        keys=wiring.trusted_keys(settings, None),
        insecure=settings.insecure,
    )
    found = run(dry_run=True)
    earlier = "" if found.sha256 is None else " earlier"
    if not dry_run:
        if not earlier:
            asked = f"Move {counted(found.decisions, 'decision', 'decisions')} into {out}?"
            _confirm(asked, "nothing was given out", yes=yes, json=json)
        found = run(dry_run=False)
    left = f"would leave for {out}"
    if found.sha256 is not None:
        left = f"left{earlier} for {found.file}, SHA-256 {found.sha256}"
    said = f"{counted(found.decisions, 'decision', 'decisions')} through {month} {left}."
    tell(json, {"dry_run": dry_run, **asdict(found)}, said)
