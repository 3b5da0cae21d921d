"""The composition root: the only place that builds real parts from settings. Only the CLI imports it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamer.errors import UsageError
from streamer.events.limits import RECORD_OVERHEAD_BYTES, Limits
from streamer.events.topics import Topics
from streamer.policy import NO_ENCODER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamer.demonstration import Watch
    from streamer.experiments.clouds import Cloud
    from streamer.experiments.report import DemoRun
    from streamer.journal import OutboxMessage, Partition
    from streamer.policy import Policy, Unit
    from streamer.recalibration.run import Recalibration
    from streamer.scoring.encoder import CachedEncoder
    from streamer.settings import Settings
    from streamer.store import Store
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.health import WorkerHealth
    from streamer.stream.publisher import Publisher
    from streamer.stream.tail import TailedRecord
    from streamer.telemetry.metrics import Metrics

DEV_DIRECTORY = Path(".streamer")


def now() -> datetime:
    """Return the present time, with zone: the clock that real parts are given."""
    return datetime.now(UTC)


def topics(settings: Settings) -> Topics:
    """Return the names of the topics."""
    return Topics(settings.kafka.topic_prefix)


def limits(settings: Settings) -> Limits:
    """Return the bounds for what events may hold."""
    return Limits(
        max_responses=settings.events.max_responses,
        max_text_bytes=settings.events.max_text_bytes,
        max_value_bytes=settings.events.max_value_bytes,
    )


def connection(settings: Settings) -> KafkaConnection:
    """Return how to reach the broker. Raises `UsageError` when none is configured."""
    from streamer.stream.connection import KafkaConnection
    from streamer.stream.embedded_broker import API_VERSION, is_embedded

    return KafkaConnection(
        settings.bootstrap_servers,
        properties={name: str(value) for name, value in settings.kafka.properties.items()},
        api_version=API_VERSION if is_embedded(settings.kafka.log_id) else None,
        allow_plaintext=settings.kafka.allow_plaintext,
    )


# -- the store ----------------------------------------------------------------------------------------------


def open_store(settings: Settings) -> Store:
    """Open the audit store; the caller closes it. Raises `UsageError` when it is not migrated."""
    from streamer.events.dead_letters import dead_letter_message
    from streamer.events.thresholds import threshold_event, threshold_message
    from streamer.store import open_store as open_database

    named = topics(settings)

    def policy_message(policy: Policy) -> OutboxMessage:
        return threshold_message(threshold_event(policy), topic=named.thresholds)

    return open_database(
        settings.database.url,
        clock=now,
        policy_message=policy_message,
        dead_letter_message=partial(
            dead_letter_message, topic=named.dead_letters, max_bytes=limits(settings).max_output_bytes
        ),
    )


def migrate(settings: Settings) -> None:
    """Bring the database's schema up to date, creating it when there is none."""
    from streamer.store import migrate as migrate_database

    migrate_database(settings.database.url)


def check_database(settings: Settings) -> str | None:
    """Tell what is wrong with the database's schema; None when it is up to date."""
    from streamer.store import check

    return check(settings.database.url)


# -- the broker ---------------------------------------------------------------------------------------------


def _topic_plans(settings: Settings) -> list[Any]:
    from streamer.stream.topics import TopicPlan

    named, bounds = topics(settings), limits(settings)
    # Kafka counts key, headers and the batch's own bytes too: the largest value must still pass.
    inputs = {named.responses, named.labels}
    return [
        TopicPlan(
            name=name,
            partitions=1 if name == named.thresholds else settings.kafka.partitions,
            max_message_bytes=(
                bounds.max_value_bytes + RECORD_OVERHEAD_BYTES if name in inputs else bounds.max_output_bytes
            ),
            compacted=name == named.thresholds,
            replication=settings.kafka.replication_factor,
        )
        for name in named.all()
    ]


def create_topics(settings: Settings) -> list[str]:
    """Create the topics that are missing and return their names."""
    from streamer.stream import topics as stream_topics

    return stream_topics.create_topics(connection(settings), _topic_plans(settings))


def check_topics(settings: Settings) -> list[str]:
    """Tell, a line each, how topics differ from what they should be."""
    from streamer.stream import topics as stream_topics

    return [str(each) for each in stream_topics.check_topics(connection(settings), _topic_plans(settings))]


@contextmanager
def publisher(settings: Settings) -> Iterator[Publisher]:
    """Give a publisher that has delivered everything when the block ends."""
    from streamer.stream.publisher import Publisher

    with Publisher(connection(settings), max_request_size=limits(settings).max_output_bytes) as sending:
        yield sending


def publish_pending(settings: Settings) -> int:
    """Publish what commands left in the outbox, without waiting for a worker; returns how many messages.

    Raises `Unavailable` when the broker does not answer: a worker will do it.
    """
    with open_store(settings) as store, publisher(settings) as sending:
        published = 0
        while batch := store.unpublished([], limit=500):
            for message in batch:
                sending.send(message.topic, message.value, key=message.key, headers=message.headers)
            sending.flush()
            store.mark_published([message.id for message in batch])
            published += len(batch)
        return published


def tail(
    settings: Settings, topic: str, *, from_beginning: bool = False, timeout_seconds: float | None = None
) -> Iterator[TailedRecord]:
    """Yield the records of a topic as they come; ends after `timeout_seconds` without one (None: never)."""
    from streamer.stream.tail import Tail

    with Tail(connection(settings), topic, from_beginning=from_beginning) as followed:
        yield from followed.records(idle=timeout_seconds)


# -- calibration --------------------------------------------------------------------------------------------


def recalibrate(
    settings: Settings, gate: str, *, by: str, dry_run: bool = False, reason: str = "recalibrated"
) -> Recalibration:
    """Run one calibration now and put its threshold in force, unless it is a dry run."""
    from streamer.recalibration.run import Recalibration, calibrate_gate

    with open_store(settings) as store:
        before = store.policies.newest(gate)
        run = calibrate_gate(store.calibration, store.gates.get(gate), now=now())
        after = None
        if not dry_run:
            after = store.calibration.record_run(
                run, guarantee=run.guarantee, by=by, reason=reason, now=now()
            )
        return Recalibration(run=run, before=before, after=after)


# -- services -----------------------------------------------------------------------------------------------


def encoder(settings: Settings) -> CachedEncoder | None:
    """Load the encoder, which takes seconds, behind its cache; None when the worker is to have none."""
    from streamer.scoring.encoder import CachedEncoder
    from streamer.scoring.registry import load_encoder

    if settings.encoder.name == NO_ENCODER:
        return None
    loaded = load_encoder(
        settings.encoder.name, device=settings.encoder.device, threads=settings.encoder.threads
    )
    return CachedEncoder(loaded, capacity_texts=settings.encoder.cache_texts)


def run_worker(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run one worker until it is told to stop, and return the process's exit status.

    `announce` gets the addresses once they are known, before the worker is ready.
    """
    from streamer.deciding.decider import BatchDecider
    from streamer.deciding.policy_book import PolicyBook
    from streamer.scoring.registry import encoder_identity
    from streamer.stream.dead_letter_cap import DeadLetterLimits
    from streamer.stream.exits import WorkerHalted
    from streamer.stream.health import WorkerHealth
    from streamer.stream.reader_limits import ReaderLimits
    from streamer.stream.worker import Thresholds, WorkerLimits
    from streamer.stream.worker import run_worker as run_stream
    from streamer.telemetry.http import TelemetryServer
    from streamer.telemetry.metrics import Metrics
    from streamer.telemetry.stream_observer import StreamTelemetry
    from streamer.upkeep import Upkeep

    named, bounds = topics(settings), limits(settings)
    broker = connection(settings)
    identity = None if settings.encoder.name == NO_ENCODER else encoder_identity(settings.encoder.name)
    encoder_id = NO_ENCODER if identity is None else identity.id
    metrics = Metrics(encoder=encoder_id)
    health = WorkerHealth(StreamTelemetry(metrics))
    loading = threading.Event()
    with ExitStack() as stack:
        http = stack.enter_context(
            TelemetryServer(
                metrics.exposition,
                alive=lambda: {} if health.alive else {"worker": "stopping"},
                ready=lambda: _unready(health, loading),
                host=settings.http.host,
                port=settings.http.port,
            )
        )
        store = stack.enter_context(open_store(settings))
        if identity is not None:
            store.encoders.register(identity)
        announce(
            {
                "http": http.url,
                "encoder": encoder_id,
                "broker": broker.bootstrap,
                "group": settings.kafka.group_id,
            }
        )
        book = PolicyBook(
            store.policies.active,
            limits=bounds,
            on_change=lambda active: metrics.observe_policy(active.policy),
            on_rejected=lambda _code: metrics.count_rejected_policy_event(),
        )
        book.refresh()
        cached = encoder(settings)
        if cached is not None:
            metrics.watch_encoder(lambda: cached.encoded_texts, lambda: cached.cache_hits)
        loading.set()
        stack.enter_context(
            Upkeep(
                refresh_policies=book.refresh,
                standing=store.reports,
                show=partial(_show_standing, metrics, health),
            )
        )
        decider = BatchDecider(
            book=book, known=store.known, encoder=cached, topics=named, limits=bounds, clock=now
        )
        try:
            asyncio.run(
                run_stream(
                    connection=broker,
                    topics=(named.responses, named.labels),
                    group_id=settings.kafka.group_id,
                    journal=store,
                    decider=decider,
                    log_id=settings.kafka.log_id,
                    thresholds=Thresholds(topic=named.thresholds, on_message=book.hear),
                    limits=WorkerLimits(
                        reader=ReaderLimits(
                            max_buffered_records=settings.worker.buffer_max_records,
                            max_buffered_bytes=settings.worker.buffer_max_bytes,
                        ),
                        dead_letters=DeadLetterLimits(
                            run=settings.worker.dead_letter_max_run,
                            ratio=settings.worker.dead_letter_max_ratio,
                            window=settings.worker.dead_letter_window,
                        ),
                        max_commit_records=settings.worker.commit_max_records,
                        max_commit_bytes=settings.worker.commit_max_bytes,
                        max_output_bytes=bounds.max_output_bytes,
                    ),
                    health=health,
                )
            )
        except WorkerHalted as halted:
            return int(halted.status)
    return 0


def _unready(health: WorkerHealth, loaded: threading.Event) -> list[str]:
    return health.unready() if loaded.is_set() else ["the encoder is being loaded"]


def _show_standing(
    metrics: Metrics, health: WorkerHealth, pending: int, heights: Mapping[Partition, int]
) -> None:
    metrics.set_outbox_pending(pending)
    for partition, height in heights.items():
        # The others are other workers' to show, or of a log that is gone and had the same names.
        if health.reads(partition):
            metrics.set_chain_height(partition.topic, partition.number, height)


def run_dev(settings: Settings, *, announce: Callable[[Mapping[str, object]], None]) -> int:
    """Run the embedded broker and a worker until Ctrl-C, findable by the other commands of this directory."""
    from streamer.dev_session import find_dev_session
    from streamer.embedded import EmbeddedStep
    from streamer.redaction import redact_text
    from streamer.store import absolute_url

    running = find_dev_session()
    if running is not None:
        raise UsageError(
            f"`streamer dev` runs here already (process {running.pid}); stop it first, or use another directory"
        )
    migrate(settings)
    database_url = absolute_url(settings.database.url)
    step = EmbeddedStep(
        settings, database_url=database_url, directory=(DEV_DIRECTORY / "dev").resolve(), shared=True
    )
    try:
        step.start()
        announce(
            {
                "broker": step.broker.bootstrap,
                "database": redact_text(database_url),
                "http": step.metrics_url,
                "worker log": str(step.log_path),
            }
        )
        return step.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        step.stop()


def run_demo(
    settings: Settings,
    *,
    data: Path | None,
    unit: Unit,
    alpha: float,
    method: str,
    seed: int,
    watch: Watch,
) -> tuple[DemoRun, Path]:
    """Play the demo on an embedded step of its own, with a new database; returns the run and its page."""
    from streamer.demonstration import Stage, Story, check, play
    from streamer.embedded import EmbeddedStep
    from streamer.experiments.report import write_report
    from streamer.scoring.registry import encoder_identity

    watch.phase("read the response clouds" if data is not None else "make up response clouds")
    clouds, origin = _demo_clouds(data, seed)
    check(clouds, limits(settings))
    directory = (DEV_DIRECTORY / f"demo-{now():%Y%m%d-%H%M%S-%f}").resolve()
    try:
        directory.mkdir(mode=0o700, parents=True)  # its page and its database show people's texts
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {directory}: {error.strerror}; run this in a folder that you may write to"
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
                encoder_id=encoder_identity(own.encoder.name).id,
                clock=now,
            ),
            watch,
        )
    page = directory / "report.html"
    run = replace(run, next_steps=_demo_next_steps(directory, data))
    write_report(run, page)
    return run, page


def _demo_clouds(data: Path | None, seed: int) -> tuple[list[Cloud], str]:
    from streamer.experiments.clouds import read_clouds
    from streamer.experiments.simulation import simulate_clouds

    if data is not None:
        clouds = list(read_clouds(data))
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
        ("streamer dev", "a broker and a worker to publish your own events to"),
    ]
