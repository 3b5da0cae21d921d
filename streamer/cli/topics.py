"""`streamer topics`: the topics on the broker."""

from collections.abc import Callable

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli.broker import require_broker
from streamer.cli.console import tell
from streamer.cli.options import JsonOption
from streamer.settings.settings import Settings

app = typer.Typer(no_args_is_help=True)

_EMBEDDED = "the embedded broker of `streamer dev` makes its topics itself; these commands are for Kafka"


def _of_kafka(ask: Callable[[Settings], list[str]]) -> tuple[list[str], str | None]:
    """What is found on the broker; and what to say in place of it where it is the embedded one."""
    from streamer.stream.embedded_broker import is_embedded

    settings = wiring.load_settings()
    require_broker(settings)
    return ([], _EMBEDDED) if is_embedded(settings.kafka.log_id) else (ask(settings), None)


@app.command()
def create(json: JsonOption = False) -> None:
    """Create the topics that are missing, with the configured partitions. Safe to repeat."""
    created, instead = _of_kafka(wiring.create_topics)
    said = f"created {', '.join(created)}" if created else "every topic exists already"
    tell(json, {"created": created}, instead or said)


@app.command()
def check(json: JsonOption = False) -> None:
    """Check that every topic exists with the right settings: partitions, size limits, compaction. Exit status 3 if not."""
    problems, instead = _of_kafka(wiring.check_topics)
    said = problems or [instead or "every topic exists with the right settings"]
    tell(json, {"ok": not problems, "problems": problems}, *said)
    if problems:
        raise typer.Exit(FOUND)
