"""Real parts for checking the record: keys, what signs it, and checkpoints from elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.audit.checkpointing import Checkpointer, CheckpointFile, Signing
from streamer.audit.signing import Signer, read_public_keys
from streamer.audit.witnesses import Witness, keep_up, read_witness
from streamer.clouds.line_files import read_whole
from streamer.errors import Unavailable, UsageError, cannot, small_text
from streamer.events.receipts import receipt_line
from streamer.settings.settings import Settings
from streamer.wiring.parts import connection, now, open_store, topics

if TYPE_CHECKING:
    from streamer.audit.logged import LogReport
    from streamer.audit.rescoring import Rescorer
    from streamer.audit.verification import Processes, RecordReader, Segments
    from streamer.store import Store
    from streamer.stream.tail import KafkaLog, TailedRecord
    from streamer.telemetry.recalibrator_metrics import RecalibratorMetrics

TOPIC = "topic"
"""What `--checkpoints` and `--receipts` call a topic; anything else is a file."""


def checkpointer(settings: Settings, store: Store) -> Checkpointer:
    """Return what makes checkpoints. Raises `UsageError` when no private key is configured, or it is none."""
    if settings.audit.private_key is None:
        raise UsageError(
            "no key to sign checkpoints with is configured; `streamer audit keygen --out FILE` makes one, and"
            " STREAMER_AUDIT_PRIVATE_KEY_FILE names it"
        )
    file = settings.audit.checkpoint_file
    return Checkpointer(
        store.heads,
        signer=Signer(settings.audit.private_key),
        topic=topics(settings).checkpoints,
        file=None if file is None else CheckpointFile(Path(file)),
        every=timedelta(seconds=settings.audit.checkpoint_every_seconds),
        clock=now,
    )


def witnesses(settings: Settings) -> list[Witness]:
    """Return who cosigns checkpoints. Raises `UsageError` for one that is none."""
    return list(map(read_witness, settings.audit.witnesses))


def signing(
    stack: ExitStack, settings: Settings, store: Store, metrics: RecalibratorMetrics
) -> Callable[[threading.Event], None]:
    """Return what signs and has witnesses cosign until an event is set. Raises `UsageError`.

    `stack` : at its end another process may sign.
    """
    lease = store.leases.of_signer()
    stack.callback(lease.release)
    leading, others = store.under(lease), witnesses(settings)
    maker = checkpointer(settings, leading)
    service = Signing(maker, lease, settings.audit.sign_every_seconds)
    metrics.of("audit_unsigned_seconds").set_function(service.waiting)

    def shown(name: str, reached: int, failed: bool) -> None:
        metrics.set_unwitnessed(name, maker.lacking(reached), failed)

    def run(stop: threading.Event) -> None:
        for one in others:
            about = (one, leading.heads, stop, service.leads, shown)
            threading.Thread(target=keep_up, args=about, name="streamer-witness", daemon=True).start()
        service.run(stop)

    return run


def trusted_keys(settings: Settings, file: Path | None) -> list[bytes]:
    """Return the public keys, 32 bytes each, that checkpoints may be signed with; empty when there are none.

    Those in `file`, or else those that are configured, or else that of the configured private key.
    """
    if file is not None:
        with cannot(f"read the public keys {file}"):
            return read_public_keys(small_text(file), place=str(file))
    if settings.audit.public_keys is not None:
        return read_public_keys(settings.audit.public_keys, place="audit.public_keys")
    if settings.audit.private_key is not None:
        return [Signer(settings.audit.private_key).public_key]
    return []


def signer(file: Path) -> Signer:
    """Return what signs with the private key in a file. Raises `UsageError`."""
    with cannot(f"read the private key {file}"):
        return Signer(small_text(file))


def outside_checkpoints(settings: Settings, where: str | None) -> tuple[list[bytes], str] | None:
    """Read checkpoints that are kept outside the database, and say in words where that is.

    `where` is a file, or ``topic``; None: the configured file, if there is one. Returns None when there is none.
    """
    from streamer.audit.verification import checkpoint_lines

    if where == TOPIC:
        return _from_topic(settings), f"the topic {topics(settings).checkpoints}"
    named = where if where is not None else settings.audit.checkpoint_file
    if named is None or (where is None and not Path(named).exists()):
        return None
    with cannot(f"read the checkpoints {named}"):
        return checkpoint_lines(read_whole(Path(named))), f"the file {named}"


def known_checkpoints(settings: Settings, where: str | None) -> list[bytes]:
    """Read the checkpoints of a place, as `outside_checkpoints` does, or else of the file and of the topic, as far as these exist."""
    found = outside_checkpoints(settings, where)
    both = where is None and settings.kafka.bootstrap_servers is not None
    return [*(found[0] if found is not None else []), *(_from_topic(settings) if both else [])]


@contextmanager
def beside(
    settings: Settings,
    jobs: int,
    segments: Segments | None = None,
) -> Iterator[Processes | None]:
    """Start the processes that verify a record with so many jobs; none for one."""
    from streamer.audit.verification import Processes

    if jobs == 1:
        yield None
        return
    try:
        with Processes(jobs, partial(_record_reader, settings, segments)) as processes:
            processes.ready()  # before anybody who writes waits for them
            yield processes
    except BrokenExecutor:
        raise Unavailable("a process of --jobs was ended: memory may not suffice") from None


def segments(files: Sequence[Path] | None) -> Segments:
    """Return what was given out, from these files. Raises `UsageError` where one cannot be read."""
    from streamer.audit.verification import Segments

    try:
        return Segments(files or ())
    except OSError as error:
        raise UsageError(f"cannot read the segment {error.filename}: {error.strerror}") from error


def _record_reader(settings: Settings, segments: Segments | None) -> RecordReader:
    from streamer.audit.verification import Lookups, RecordReader

    store = open_store(settings)
    lookups = Lookups(store.gates.history, store.calibration.inputs)
    return RecordReader(lambda moment: store.evidence.joined(moment, segments), lookups)


def rescorer(settings: Settings, tolerance: float | None) -> Rescorer:
    """Return what scores stored texts again, with the configured encoders if there are some; loading each takes seconds."""
    from streamer.audit.rescoring import TOLERANCE, Rescorer
    from streamer.wiring.encoders import encoder, load_candidate_encoder

    return Rescorer(
        {
            one.identity.id: one.embed
            for one in (encoder(settings), load_candidate_encoder(settings))
            if one is not None
        },
        tolerance=TOLERANCE if tolerance is None else tolerance,
    )


def compared_with_log(settings: Settings, store: Store) -> LogReport:
    """Compare the record with what the topics still hold. Raises `UsageError` or `Unavailable` where they cannot be read."""
    from streamer.audit.logged import compare_with_log

    return compare_with_log(store.evidence.logged, _log(settings), topics=topics(settings))


def receipts(settings: Settings, place: str) -> tuple[list[bytes], str]:
    """Read receipts from a file, or with ``topic`` from the topics of actions and of the desk, and say where they come from.

    Raises `UsageError` where they cannot be read, `Unavailable` where the broker does not answer.
    """
    if place != TOPIC:
        from streamer.audit.verification import receipt_lines

        with cannot(f"read receipts from {place}"):
            return receipt_lines(Path(place).read_bytes()), place
    named = topics(settings)
    records = _records(settings, named.actions, named.desk)
    found = [receipt_line(one.value, one.headers) for one in records]
    return [line for line in found if line is not None], f"the topics {named.actions} and {named.desk}"


def _from_topic(settings: Settings) -> list[bytes]:
    # A tombstone is not a checkpoint either, and must be reported.
    return [one.value or b"" for one in _records(settings, topics(settings).checkpoints)]


def _records(settings: Settings, *names: str) -> Iterator[TailedRecord]:
    """What topics hold now, one topic after the other."""
    log = _log(settings)
    for name in names:
        yield from log.read(name, {number: end for number, (_, end) in log.bounds(name).items()})


def _log(settings: Settings) -> KafkaLog:
    from streamer.stream.tail import KafkaLog

    return KafkaLog(connection(settings), log_id=settings.kafka.log_id)
