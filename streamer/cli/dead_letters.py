"""`streamer dead-letters`: messages that were refused, and why."""

from typing import Annotated

import typer

from streamer.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True, help="Messages that were refused, and why.")


@app.callback()
def _group() -> None:
    """Keep `list` a subcommand although it is the only one."""


@app.command("list")
def list_(
    code: Annotated[
        str | None, typer.Option(metavar="CODE", help="Only this error code, like not_json.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most this many.")] = 50,
    json: JsonOption = False,
) -> None:
    """List the messages that were refused, the newest first. The topic dead-letters has their bytes."""
    from streamer import wiring
    from streamer.cli.console import note, print_json, print_table
    from streamer.settings import load_settings

    with wiring.open_store(load_settings()) as store:
        letters = store.dead_letters.list(code=code, limit=limit)
    if json:
        for one in letters:
            print_json(
                {
                    "id": one.id, "topic": one.topic, "partition": one.partition, "offset": one.offset, "code": one.code,
                    "detail": one.detail, "at": one.at,
                }
            )  # fmt: skip
        return
    if not letters:
        note("No message was refused.")
        return
    print_table(
        ["id", "when", "code", "topic/partition/offset", "why"],
        [
            [one.id, one.at, one.code, f"{one.topic}/{one.partition}/{one.offset}", one.detail]
            for one in letters
        ],
    )
