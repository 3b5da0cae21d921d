"""`streamer dev` and `streamer demo` from settings: everything on the embedded step."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from streamer.cli.console import PatientInterrupt
from streamer.cli.dev.demonstration import Asked, Demonstration, DemoObserver, check
from streamer.cli.dev.embedded import Beside, EmbeddedStep
from streamer.cli.dev.look import Look, Looking, request_of
from streamer.clouds.cloud import Cloud
from streamer.clouds.cloud_files import read_clouds
from streamer.clouds.simulation import simulate_clouds
from streamer.clouds.tables.answers import Reading
from streamer.errors import UsageError, cannot
from streamer.report.page import DemoRun, write_report
from streamer.security.visible import redact_text
from streamer.settings.settings import Settings
from streamer.settings.sources import find_dev_session
from streamer.store import absolute_url
from streamer.wiring.parts import limits, migrate, now, open_store

DEV_DIRECTORY = Path(".streamer")
_ELSEWHERE = "; run this in a folder that you may write to"


def run_dev(
    settings: Settings,
    beside: Beside,
    *,
    announce: Callable[[Mapping[str, object]], None],
    moved: Callable[[str], None],
    show: Callable[[Look], None] | None = None,
) -> int:
    """Run the embedded broker, a worker and what is beside it until Ctrl-C, findable by the other commands here.

    `announce` gets the addresses once all is ready, and as ``request`` a shell line that asks the endpoint; `moved` a sentence for
    each service whose metrics took another port; `show` a look at everything every second from then on.
    """
    running = find_dev_session()
    if running is not None:
        raise UsageError(
            f"`streamer dev` runs here already (process {running.pid}); stop it first, or use another directory"
        )
    migrate(settings)
    database_url = absolute_url(settings.database.url)
    directory = (DEV_DIRECTORY / "dev").resolve()
    step = EmbeddedStep(settings, database_url=database_url, directory=directory, shared=True, beside=beside)
    with PatientInterrupt() as interrupt:
        try:
            _start(step)
            for service, wanted, url in (
                ("worker", settings.http.port, step.metrics_url),
                ("recalibrator", beside.recalibrator, step.recalibrator_url),
            ):
                if service in beside.moving and urlsplit(str(url)).port != wanted:
                    moved(
                        f"Port {wanted}, where Prometheus looks for the {service}, is in use: its metrics are at {url}"
                    )
            with open_store(settings) as store:
                announce(
                    {
                        "broker": step.broker.bootstrap,
                        "database": redact_text(database_url),
                        "endpoint": step.endpoint["endpoint"],
                        "console": step.console,
                        "http": step.metrics_url,
                        "recalibrator": step.recalibrator_url,
                        "worker log": str(step.log_path),
                        "request": request_of(step, store),
                    }
                )
                looking = Looking(step, store)
                status = step.wait((lambda: None) if show is None else _every_second(looking, show))
        except KeyboardInterrupt:
            return 0
        except Exception:
            if not interrupt.wanted:
                raise
            return 0
        finally:
            step.stop()
        # Libraries may swallow the interrupt. The services got it too, and one that has ended is no failure then.
        return 0 if interrupt.wanted else status


def _start(step: EmbeddedStep) -> None:
    try:
        step.start()
    except OSError as error:
        if error.filename is None:  # about no file
            raise
        with cannot(f"write {error.filename}", _ELSEWHERE):
            raise


def _every_second(looking: Looking, show: Callable[[Look], None]) -> Callable[[], None]:
    due = 0.0

    def turn() -> None:
        nonlocal due
        if time.monotonic() >= due:
            show(looking.look())
            due = time.monotonic() + 1.0

    return turn


def run_demo(
    settings: Settings, asked: Asked, *, data: Path | None, watch: DemoObserver
) -> tuple[DemoRun, Path]:
    """Play the demo on an embedded step of its own, with a new database; returns the run and its page."""
    watch.phase("read the response clouds" if data is not None else "make up response clouds")
    clouds, origin = _demo_clouds(data, asked.seed)
    check(clouds, limits(settings))
    directory = (DEV_DIRECTORY / f"demo-{now():%Y%m%d-%H%M%S-%f}").resolve()
    with cannot(f"make the folder {directory}", _ELSEWHERE):
        directory.mkdir(mode=0o700, parents=True)  # its page and its database show people's texts
    database_url = f"sqlite:///{directory / 'audit.db'}"
    own = settings.model_copy(
        update={
            "database": settings.database.model_copy(update={"url": database_url}),
            "kafka": type(settings.kafka)(),
            "http": settings.http.model_copy(update={"host": "127.0.0.1", "port": 0}),
        }
    )
    migrate(own)
    watch.phase("start the embedded broker and the worker, load the encoder")
    with (
        EmbeddedStep(own, database_url=database_url, directory=directory) as step,
        open_store(own) as store,
    ):
        kafka = {"bootstrap_servers": step.broker.bootstrap, "log_id": step.broker.log_id}
        reached = own.model_copy(update={"kafka": own.kafka.model_copy(update=kafka)})
        run = Demonstration(
            settings=reached,
            step=step,
            store=store,
            watch=watch,
            clouds=clouds,
            origin=origin,
            simulated=data is None,
            asked=asked,
        ).play()
    page = directory / "report.html"
    run = replace(run, next_steps=_demo_next_steps(directory, data))
    write_report(run, page)
    return run, page


def _demo_clouds(data: Path | None, seed: int) -> tuple[list[Cloud], str]:
    if data is not None:
        clouds = list(read_clouds(data, Reading(trust_score=True), needs_answers=True))
        return clouds, f"{len(clouds)} response clouds read from {data}."
    clouds = simulate_clouds(seed=seed)
    return clouds, (
        f"{len(clouds)} response clouds that this program made up (seed {seed}): questions with right, wrong and "
        "noisy answers. No language model was asked."
    )


def _demo_next_steps(directory: Path, data: Path | None) -> list[tuple[str, str]]:
    database = f"STREAMER_DATABASE_URL=sqlite:///{directory / 'audit.db'}"
    return [
        (f"{database} streamer threshold show demo", "the policy that decided, and what it promises"),
        (f"{database} streamer doctor", "the state of everything, with what to do"),
        *(
            [("streamer demo --data clouds.jsonl.gz", "the same on your own response clouds")]
            if data is None
            else []
        ),
        ("streamer demo --gate-unit response", "each response decides for itself, as in the paper"),
        ("streamer dev", "a broker, a worker and an HTTP endpoint to try your own answers on"),
    ]
