"""`streamer serve`: the gate as an HTTP service."""

from functools import partial
from typing import Annotated

import typer

from streamer.cli import options as opt
from streamer.cli.services import UntilStdinClosesOption, run_service
from streamer.wording.verdicts import sentence


def serve(
    kafka: Annotated[
        bool, typer.Option("--kafka/--no-kafka", help="Publish decisions to the actions topic, too.")
    ] = True,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on, of this machine's own.")
    ] = "127.0.0.1",
    port: Annotated[int, opt.port("Port to listen on")] = 8080,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.001,
            max=3600,
            help="Most time that a request may take; it may ask for less.",
        ),
    ] = 30.0,
    until_stdin_closes: UntilStdinClosesOption = False,
    json: opt.JsonOption = False,
) -> None:
    """Serve the gates by HTTP until SIGTERM or Ctrl-C: a request gets its decision once it is on record.

    docs/endpoint.md has the requests and responses. With --json the first line on standard output is an object with the
    addresses.

    Exit status: 0 stopped after answering what it had taken, 1 crashed, 70 another process took its slot, 124 it did not
    stop in time.
    """
    from streamer.wiring import run_serving

    run = partial(run_serving, kafka=kafka, host=host, port=port, wait=wait, sentence=sentence)
    raise typer.Exit(run_service(run, None, until_stdin_closes=until_stdin_closes, json=json))
