"""`streamer dead-letters`: messages that were refused, why, and sending them again once the cause is gone."""

import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.broker import announce_now
from streamer.cli.console import counted, note, picked, print_list, tell
from streamer.cli.options import JsonOption
from streamer.errors import UsageError

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_(
    code: str | None = opt.option("CODE", "Only dead letters with this error code, like not_json."),
    limit: int = opt.option("N", "At most this many.", 50, min=1),
    json: JsonOption = False,
) -> None:
    """List the messages that were refused, the newest first. The topic dead-letters has their bytes."""
    with wiring.record() as store:
        letters = store.dead_letters.list(code=code, limit=limit)
    fields = "id topic partition offset code detail at truncated replayed_at replayed_by"
    print_list(
        json,
        letters,
        ["id", "when", "code", "topic/partition/offset", "sent again by", "why"],
        lambda one: [
            one.id, one.at, one.code, f"{one.topic}/{one.partition}/{one.offset}", one.replayed_by or "", one.detail,
        ],
        none="No message was refused." if code is None else f"No message was refused with the code {code}.",
        to_json=lambda one: picked(one, fields),
    )  # fmt: skip


@app.command()
def replay(
    identities: list[int] | None = opt.argument("ID", "Ids, as `dead-letters list` shows them.", None),
    code: str | None = opt.option("CODE", "All with this error code that have not been sent again yet."),
    by: opt.ByOption = "",
    json: JsonOption = False,
) -> None:
    """Send refused messages to their topic again, as they were: bytes, key and headers.

    Do it once the cause is gone: the gate was created, a limit was raised. Each gets a new outcome at a new offset;
    what is still wrong is refused again. Who did it is noted at the dead letter.
    """
    if bool(identities) == (code is not None):
        raise UsageError("name the dead letters: give their ids, or --code CODE for all with one error code")
    settings = wiring.load_settings()
    with wiring.open_store(settings) as store:
        wanted = identities or store.dead_letters.never_replayed(code or "")
        count = store.dead_letters.replay(wanted, by=by) if wanted else 0
    if count:
        announce_now(settings)
    said = [f"Sent {counted(count, 'message', 'messages')} again."] if count else []
    tell(json, {"replayed": count}, *said)
    if not (json or count):
        note(f"No message with the code {code} is left to send again.")
