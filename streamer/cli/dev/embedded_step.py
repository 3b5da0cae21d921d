"""`streamer dev` and `streamer demo` from settings: everything on the embedded step."""

import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from streamer.cli.dev.demonstration import DemoObserver
from streamer.cli.dev.embedded import EmbeddedStep
from streamer.cli.dev.look import Look, Looking
from streamer.clouds.cloud import Cloud
from streamer.errors import UsageError, why
from streamer.gates.declared import Unit
from streamer.gates.policy import GateRevision
from streamer.gates.settings import NO_ENCODER
from streamer.recalibration.run import Recalibration
from streamer.report.page import DemoRun
from streamer.settings.settings import Settings
from streamer.store import Store
from streamer.wiring.parts import (
    limits,
    migrate,
    now,
    open_store,
    publish_pending,
    publisher,
    recalibrate,
    topics,
)

DEV_DIRECTORY = Path(".streamer")


def run_dev(
    settings: Settings,
    *,
    endpoint_port: int,
    recalibrator_port: int,
    console_port: int,
    any_port: Collection[str],
    announce: Callable[[Mapping[str, object]], None],
    moved: Callable[[str], None],
    show: Callable[[Look], None] | None = None,
) -> int:
    """Run the embedded broker, a worker, the endpoint, a recalibrator and the console until Ctrl-C, findable by the other commands here.

    Parameters
    ----------
    endpoint_port : where the endpoint listens on the loopback; 0: any free port.
    recalibrator_port : where the recalibrator shows its metrics; 0: any free port.
    console_port : where the console listens on the loopback; 0: any free port.
    any_port : whose metrics, of ``worker`` and ``recalibrator``, take any free port where theirs is in use.
    moved : gets a sentence for each of them that did.
    announce : gets the addresses once all is ready, and as ``request`` a shell line that asks the endpoint.
    show : gets a look at everything every second from then on.
    """
    from streamer.cli.dev.embedded import EmbeddedStep
    from streamer.security.visible import redact_text
    from streamer.settings.sources import find_dev_session
    from streamer.store import absolute_url

    running = find_dev_session()
    if running is not None:
        raise UsageError(
            f"`streamer dev` runs here already (process {running.pid}); stop it first, or use another directory"
        )
    migrate(settings)
    database_url = absolute_url(settings.database.url)
    step = EmbeddedStep(
        settings,
        database_url=database_url,
        directory=(DEV_DIRECTORY / "dev").resolve(),
        shared=True,
        recalibrator_port=recalibrator_port,
        endpoint_port=endpoint_port,
        console_port=console_port,
        any_port=any_port,
    )
    asked = False

    def interrupt(*_: object) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        try:
            step.start()
        except OSError as error:
            if error.filename is None:  # about no file
                raise
            raise UsageError(
                f"cannot write {error.filename}: {why(error)}; run this in a folder that you may write to"
            ) from error
        for service, wanted, url in (
            ("worker", settings.http.port, step.metrics_url),
            ("recalibrator", recalibrator_port, step.recalibrator_url),
        ):
            if service in any_port and urlsplit(str(url)).port != wanted:
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
                    "request": _request(step, store),
                }
            )
            status = step.wait(_nothing if show is None else _every_second(_looking(step, store), show))
    except KeyboardInterrupt:
        return 0
    except Exception:
        if not asked:
            raise
        return 0
    else:
        # Libraries may swallow the interrupt. The services got it too, and one that has ended is no failure then.
        return 0 if asked else status
    finally:
        step.stop()
        signal.signal(signal.SIGINT, before)


_SHOWN = 5
"""Policies and alarms that a look has."""


def _request(step: EmbeddedStep, store: Store) -> str:
    from streamer.cli.dev.embedded_step import first_request

    served = step.endpoint
    return first_request(served["endpoint"], store.gates.list(), encoder=served["encoder"])


def _looking(step: EmbeddedStep, store: Store) -> Looking:
    from streamer.cli.dev.look import Line, Looking

    def policies() -> list[Line]:
        return [
            Line(at=one.at, gate=one.gate, text=f"policy {one.version} {one.event} by {one.by}: {one.reason}")
            for one in store.policies.recent_events(_SHOWN)
        ]

    def alarms() -> list[Line]:
        raised = [one.alert for one in store.alerts.list(limit=_SHOWN)]
        return [Line(at=one.raised_at, gate=one.gate, text=f"{one.kind}: {one.message}") for one in raised]

    return Looking(
        worker=step.metrics_url,
        recalibrator=step.recalibrator_url,
        policies=policies,
        alarms=alarms,
        request=lambda: _request(step, store),
        addresses=[
            ("broker", step.broker.bootstrap),
            ("endpoint", step.endpoint["endpoint"]),
            ("metrics", f"{step.metrics_url}/metrics"),
        ],
        console=step.console or "",
        clock=now,
    )


def _nothing() -> None:
    """Nobody looks."""


def _every_second(looking: Looking, show: Callable[[Look], None]) -> Callable[[], None]:
    due = 0.0

    def turn() -> None:
        nonlocal due
        if time.monotonic() >= due:
            show(looking.look())
            due = time.monotonic() + 1.0

    return turn


def run_demo(
    settings: Settings,
    *,
    data: Path | None,
    unit: Unit,
    alpha: float,
    method: str,
    seed: int,
    watch: DemoObserver,
) -> tuple[DemoRun, Path]:
    """Play the demo on an embedded step of its own, with a new database; returns the run and its page."""
    from streamer.cli.dev.demonstration import Stage, Story, check, play
    from streamer.cli.dev.embedded import EmbeddedStep
    from streamer.report.page import write_report
    from streamer.wiring.encoders import encoder_identity

    watch.phase("read the response clouds" if data is not None else "make up response clouds")
    clouds, origin = _demo_clouds(data, seed)
    check(clouds, limits(settings))
    directory = (DEV_DIRECTORY / f"demo-{now():%Y%m%d-%H%M%S-%f}").resolve()
    try:
        directory.mkdir(mode=0o700, parents=True)  # its page and its database show people's texts
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {directory}: {why(error)}; run this in a folder that you may write to"
        ) from error
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
        reached = own.model_copy(
            update={
                "kafka": own.kafka.model_copy(
                    update={"bootstrap_servers": step.broker.bootstrap, "log_id": step.broker.log_id}
                )
            }
        )

        def recalibrate_now(gate: str) -> Recalibration:
            done = recalibrate(reached, gate, by="demo", reason="streamer demo")
            publish_pending(reached)
            return done

        run = play(
            Story(
                clouds=clouds,
                origin=origin,
                simulated=data is None,
                unit=unit,
                alpha=alpha,
                method=method,
                seed=seed,
            ),
            Stage(
                step=step,
                store=store,
                topics=topics(reached),
                publisher=lambda: publisher(reached),
                recalibrate=recalibrate_now,
                encoder_id=encoder_identity(own).id,
                clock=now,
            ),
            watch,
        )
    page = directory / "report.html"
    run = replace(run, next_steps=_demo_next_steps(directory, data))
    write_report(run, page)
    return run, page


def _demo_clouds(data: Path | None, seed: int) -> tuple[list[Cloud], str]:
    from streamer.clouds.cloud_files import read_clouds
    from streamer.clouds.simulation import simulate_clouds
    from streamer.clouds.tables.answers import Reading

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


NEW_GATE = "try"
"""The gate that the line creates where there is none that could answer."""


def first_request(endpoint: str, gates: Sequence[GateRevision], *, encoder: str) -> str:
    """Write what asks for a decision when it is pasted into a shell, in short lines; also a second time.

    Parameters
    ----------
    endpoint : root of the service.
    gates : all that there are; the first that decides by text, or by scores in the event, is asked.
    encoder : what the service embeds texts with; `NO_ENCODER`: nothing.
    """
    fitting = (
        (one.gate, one.settings.scorer == "external")
        for one in gates
        if one.settings.scorer == "external" or one.settings.encoder == encoder
    )
    first = next(fitting, None)
    gate, scored = first or (NEW_GATE, encoder == NO_ENCODER)
    create = f"streamer gate create {gate}{' --scorer external' if scored else ''}\n"
    one, two = (f', "score": {score}' if scored else "" for score in (0.9, 0.8))
    return (
        ("" if first else create)
        + f"curl {endpoint}/v1/gates/{gate}/decisions --json '\n"
        + f'  {{"prompt": "Who?", "responses": [{{"id": "a", "text": "Ada."{one}}},\n'
        + f'    {{"id": "b", "text": "Ada Lovelace."{two}}}]}}\''
    )
