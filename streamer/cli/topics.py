"""`streamer topics`: the topics on the broker."""

import typer

from streamer import wiring
from streamer.cli import FOUND
from streamer.cli.broker import require_broker
from streamer.cli.console import print_json, say
from streamer.cli.options import JsonOption

app = typer.Typer(no_args_is_help=True)

_EMBEDDED = "the embedded broker of `streamer dev` makes its topics itself; these commands are for Kafka"


@app.command()
def create(json: JsonOption = False) -> None:
    """Create the topics that are missing, with the configured partitions. Safe to repeat."""
    from streamer.stream.embedded_broker import is_embedded

    settings = wiring.load_settings()
    require_broker(settings)
    created = () if is_embedded(settings.kafka.log_id) else wiring.create_topics(settings)
    if json:
        print_json({"created": list(created)})
    elif is_embedded(settings.kafka.log_id):
        say(_EMBEDDED)
    else:
        say(f"created {', '.join(created)}" if created else "every topic exists already")


@app.command()
def check(json: JsonOption = False) -> None:
    """Check that every topic exists with the right settings: partitions, size limits, compaction. Exit status 3 if not."""
    from streamer.stream.embedded_broker import is_embedded

    settings = wiring.load_settings()
    require_broker(settings)
    problems = () if is_embedded(settings.kafka.log_id) else wiring.check_topics(settings)
    if json:
        print_json({"ok": not problems, "problems": list(problems)})
    elif is_embedded(settings.kafka.log_id):
        say(_EMBEDDED)
    else:
        for problem in problems or ["every topic exists with the right settings"]:
            say(problem)
    if problems:
        raise typer.Exit(FOUND)
