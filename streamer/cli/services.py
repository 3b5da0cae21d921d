"""`streamer worker`, `serve`, `recalibrator` and `dev`: what runs until it is stopped."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.console import (
    lines_are_logged,
    log_lines,
    note,
    output,
    print_fields,
    print_json,
    say,
    warn,
)
from streamer.cli.options import JsonOption
from streamer.gates.settings import NO_ENCODER
from streamer.security.visible import redact
from streamer.settings.settings import Settings
from streamer.settings.sources import misspelt_variables

if TYPE_CHECKING:
    from streamer.cli.dev.look import Look

log = structlog.get_logger(__name__)


def run_processes(settings: Settings, count: int, *, json: bool) -> int:
    """Run workers 1 to `count`, each in a process of its own, and return the exit status.

    Worker i shows its metrics i - 1 ports above the settings' (0: any free ones); the encoder's
    threads are shared out. When a worker ends unasked, the others are asked to end, and its
    status is the result, 128 + n for signal n: whoever restarts services then starts all of them
    again. They end too when this process is killed.
    """
    environment = dict(os.environ)
    if settings.encoder.threads is None:
        environment["STREAMER_ENCODER_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // count))
    ended: SimpleQueue[int | None] = SimpleQueue()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: ended.put(None))
    workers = [
        subprocess.Popen(  # noqa: S603 - our own program
            [
                *(sys.executable, "-m", "streamer", "worker", "--until-stdin-closes"),
                *("--process", str(place + 1)),
                *("--port", str(settings.http.port and settings.http.port + place)),
                *(["--json"] if json else []),
            ],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches them by way of this process, once
        )
        for place in range(count)
    ]

    def wait(place: int) -> None:
        workers[place].wait()
        ended.put(place)

    for place in range(count):
        threading.Thread(target=wait, args=(place,), daemon=True).start()
    first = ended.get()
    for one in workers:
        one.terminate()
    statuses = [code if (code := one.wait()) >= 0 else 128 - code for one in workers]
    if first is None:
        return max(statuses)
    log.error("worker.process_ended", process=first + 1, status=statuses[first])
    return statuses[first]


_RECALIBRATOR_PORT = 9470
"""Where deploy/prometheus looks for a recalibrator."""

PortOption = Annotated[int | None, opt.port("Port of /metrics, /healthz and /readyz", ...)]

UntilStdinClosesOption = Annotated[
    bool,
    opt.flag(
        "--until-stdin-closes", "Also stop when standard input ends, so that a parent's death stops it.", ...
    ),
]


def worker(
    port: PortOption = None,
    processes: int = opt.option("COUNT", "Workers to run, each in a process.", 1, min=1, max=256),
    process: Annotated[int | None, typer.Option(hidden=True)] = None,
    until_stdin_closes: UntilStdinClosesOption = False,
    json: JsonOption = False,
) -> None:
    """Run one worker until SIGTERM or Ctrl-C: decide every batch on the responses topic.

    Run at most one per partition. Of `--processes` each shows its metrics and health at the next
    port and has its number in the log; when one dies, all end with its exit status. A worker that
    stops loses nothing: the next one continues where the database says. With --json the first line
    on standard output is an object with its addresses; a line for each process.

    Exit status: 0 stopped and drained, 1 crashed, 65 too many records were refused, 70 another worker
    took its partitions, 75 the database gave no lease in time, 78 a topic was deleted and recreated, 124 it did
    not stop in time.
    """
    from streamer.wiring import run_worker

    run: Callable[..., int] = run_worker
    if processes > 1:
        run = lambda settings, **_: run_processes(settings, processes, json=json)  # noqa: E731
    run_service(run, port, until_stdin_closes=until_stdin_closes, json=json, process=process)


def recalibrator(
    port: PortOption = None,
    kafka: bool = opt.flag(
        "--kafka/--no-kafka", "Publish policies and alerts; without it they wait for a broker.", True
    ),
    until_stdin_closes: UntilStdinClosesOption = False,
    json: JsonOption = False,
) -> None:
    """Run the recalibrator until SIGTERM or Ctrl-C: calibrate each gate when it is due, as the gate's rule says.

    Each gate's rule permits nothing, proposals, or new thresholds within limits (`streamer gate set --help`).
    `streamer recalibrate` still works beside it. Of several recalibrators of one database one leads, and another takes
    over when it is gone. With --json the first line on standard output is an object with its addresses.

    Exit status: 0 stopped on request, 1 crashed, 124 did not stop in time.
    """
    from streamer.wiring import run_recalibrator

    run = partial(run_recalibrator, kafka=kafka)
    run_service(run, port, until_stdin_closes=until_stdin_closes, json=json)


def run_service(
    run: "Callable[..., int]",
    port: int | None,
    *,
    until_stdin_closes: bool,
    json: bool,
    process: int | None = None,
) -> None:
    """Run a service until it is told to stop, and exit with its status; `process` is its number in the log."""
    from streamer.telemetry.logs import configure_logging

    settings = wiring.load_settings(http=opt.given(port=port))
    log_lines(configure_logging(settings.logging.format, settings.logging.level, process=process))
    _warn_of_misspelt()
    _leave_at_sigterm()
    if until_stdin_closes:
        stop_when_stdin_closes()
    raise typer.Exit(run(settings, announce=_announce_json if json or collected() else _announce))


def dev(
    port: PortOption = None,
    endpoint_port: int = opt.port("Port of the HTTP endpoint on 127.0.0.1", 0),
    recalibrator_port: int | None = opt.option(
        "PORT",
        f"Port of the recalibrator's /metrics; 0: any free port. Default: {_RECALIBRATOR_PORT}.",
        min=0,
        max=65535,
    ),
    console_port: int = opt.port("Port of the console on 127.0.0.1", 0),
    view: bool = opt.flag(
        "--view/--no-view",
        "Show throughput, risk against the budget, policies and alarms on the full screen.",
        True,
    ),
    json: JsonOption = False,
) -> None:
    """Run an embedded broker, a worker, the HTTP endpoint, a recalibrator and the console until Ctrl-C, to try things on.

    It prints the console's link, which lets whoever has it do everything, and a `curl` line that asks the endpoint. The other commands find it by themselves while they are run in the same
    directory. The embedded broker keeps
    its log in memory, about 5 MiB a partition, and forgets it at the end; the record stays in the database. Metrics
    are at the ports 9464 and 9470, where deploy/prometheus looks for them; if one is in use and you named none, at any free one.
    """
    from streamer.cli.dev.embedded import Beside
    from streamer.cli.dev.embedded_step import run_dev

    settings = wiring.load_settings(http=opt.given(port=port))
    any_port = {"worker"} if port is None and "http.port" not in settings.origins else set()
    any_port |= {"recalibrator"} if recalibrator_port is None else set()
    begin(settings)
    _warn_of_misspelt()
    loading = "" if settings.encoder.name == NO_ENCODER else "; loading the encoder takes some seconds"
    note(f"Starting an embedded broker, a worker, the endpoint, a recalibrator and the console{loading}.")
    beside = Beside(
        endpoint=endpoint_port,
        recalibrator=_RECALIBRATOR_PORT if recalibrator_port is None else recalibrator_port,
        console=console_port,
        moving=any_port,
    )
    run = partial(run_dev, settings, beside, moved=note)
    if view and not json and _on_a_terminal():
        with _living_view() as show:
            status = run(announce=lambda _facts: None, show=show)
        raise typer.Exit(status)
    raise typer.Exit(run(announce=_announce_json if json or collected() else _announce_dev))


def begin(settings: "Settings") -> None:
    """Have what a person runs until Ctrl-C write its log as the settings say, and end by SIGTERM likewise."""
    from streamer.telemetry.logs import configure_logging

    configure_logging(settings.logging.format, settings.logging.level)
    log_lines(settings.logging.format == "json")
    end_on_sigterm()


def collected() -> bool:
    """Whether standard output goes where the JSON log goes, and not to a person."""
    return lines_are_logged() and not _on_a_terminal()


def _on_a_terminal() -> bool:
    return sys.stdout.isatty()


@contextmanager
def _living_view() -> "Iterator[Callable[[Look], None]]":
    """Take over the whole terminal at the first update, and restore it at the end."""
    from rich.live import Live

    from streamer.cli.dev_screen import draw

    live = Live(console=output(), screen=True, auto_refresh=False, vertical_overflow="ellipsis")

    def show(look: "Look") -> None:
        if not live.is_started:
            live.start()
        live.update(draw(look), refresh=True)

    try:
        yield show
    finally:
        live.stop()


def _announce(facts: "Mapping[str, object]") -> None:
    shown = {name: redact(name, value) for name, value in facts.items()}
    if "http" in shown:
        shown["http"] = f"{shown['http']}/metrics, /healthz, /readyz"
    print_fields(shown)


def _announce_dev(facts: "Mapping[str, object]") -> None:
    # On lines of their own, so that no terminal breaks what is clicked or copied.
    _announce({name: value for name, value in facts.items() if name not in ("request", "console")})
    say(f"console  {facts['console']}")
    note(
        "Ready; press Ctrl-C to stop. In another terminal, in this directory: streamer gate create NAME, "
        "streamer publish FILE --gate NAME, streamer tail actions. In a browser, with the link above, which does everything: the "
        "console. Or ask by HTTP:"
    )
    say(str(facts["request"]))


def _announce_json(facts: "Mapping[str, object]") -> None:
    print_json({name: redact(name, value) for name, value in facts.items()})
    sys.stdout.flush()


def _leave_at_sigterm() -> None:
    """Let a SIGTERM that comes before the worker is under way be a normal end; then it handles the signal itself."""

    def end(_number: int, _frame: object) -> None:
        # At once: nothing is leased yet, and an exception in the middle of a query would come out as another error.
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)


def stop_when_stdin_closes() -> None:
    def wait() -> None:
        # The descriptor itself: a thread inside the buffered reader would break the interpreter's shutdown.
        while os.read(0, 65536):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stdin-watch", daemon=True).start()


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that what it started is stopped and its note removed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _warn_of_misspelt() -> None:
    for name in misspelt_variables(Settings):
        warn(f"{name} is set but is not a setting; is it misspelt? `streamer config show` lists them all")


def serve(
    kafka: bool = opt.flag("--kafka/--no-kafka", "Publish decisions to the actions topic, too.", True),
    host: str = opt.option("HOST", "Address to listen on, of this machine's own.", "127.0.0.1"),
    port: int = opt.port("Port to listen on", 8080),
    wait: float = opt.option(
        "SECONDS", "Most time that a request may take; it may ask for less.", 30.0, min=0.001, max=3600
    ),
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

    run = partial(run_serving, kafka=kafka, host=host, port=port, wait=wait)
    run_service(run, None, until_stdin_closes=until_stdin_closes, json=json)
