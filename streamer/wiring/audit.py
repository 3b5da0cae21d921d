"""Real parts for checking the record: keys, the maker of checkpoints, and checkpoints from elsewhere."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.errors import BadMessage, UsageError, small_text
from streamer.wiring.parts import connection, now, topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamer.audit.checkpointing import Checkpointer
    from streamer.audit.logged import LogReport
    from streamer.audit.rescoring import Rescorer
    from streamer.audit.signing import Signer
    from streamer.audit.witnesses import Witnesses
    from streamer.settings.settings import Settings
    from streamer.store import Store

TOPIC = "topic"
"""What `--checkpoints` and `--receipts` call a topic; anything else is a file."""


def checkpointer(settings: Settings, store: Store) -> Checkpointer:
    """Return what makes checkpoints. Raises `UsageError` when no private key is configured, or it is none."""
    from streamer.audit.checkpoint_file import CheckpointFile
    from streamer.audit.checkpointing import Checkpointer
    from streamer.audit.signing import Signer

    if settings.audit.private_key is None:
        raise UsageError(
            "no key to sign checkpoints with is configured; `streamer audit keygen --out FILE` makes one, and"
            " STREAMER_AUDIT_PRIVATE_KEY_FILE names it"
        )
    file = settings.audit.checkpoint_file
    return Checkpointer(
        store.checkpoints,
        signer=Signer(settings.audit.private_key),
        topic=topics(settings).checkpoints,
        file=None if file is None else CheckpointFile(Path(file)),
        every=timedelta(seconds=settings.audit.checkpoint_every_seconds),
        clock=now,
    )


def witnesses(
    settings: Settings,
    store: Store,
    more: Sequence[str] = (),
    *,
    show: Callable[[str, float, bool], None] = lambda _kind, _seconds, _failed: None,
) -> Witnesses:
    """Return what sends checkpoints to the configured witnesses and to more. Raises `UsageError` for an address that is none."""
    from streamer.audit.witnesses import WitnessAnswers, Witnesses, witness

    named = dict.fromkeys((*settings.audit.witnesses, *more))
    file = settings.audit.witness_answers
    return Witnesses(
        store.checkpoints,
        [witness(one) for one in named],
        answers=None if file is None else WitnessAnswers(Path(file)),
        clock=now,
        show=show,
    )


def check_witnesses(
    settings: Settings, store: Store
) -> tuple[list[tuple[str, str]], list[str], int, int] | None:
    """Check what witnesses answered: what does not fit, what was not checked, how many answers, how many time stamps.

    None where no file for answers is configured.
    """
    from streamer.audit.checkpoint_file import CheckpointFile
    from streamer.audit.witnesses import check_answers, read_answers
    from streamer.events.checkpoints import checkpoint_hash, decode_checkpoint

    file = settings.audit.witness_answers
    if file is None:
        return None
    if not Path(file).exists():
        return [], [f"what witnesses answered: there is no file {file}"], 0, 0
    answers = read_answers(CheckpointFile(Path(file)).read())
    with store.evidence.snapshot() as snapshot:
        known = {}
        for one in snapshot.checkpoints():
            with suppress(BadMessage):  # verification names what is no checkpoint
                known[decode_checkpoint(one).sequence] = checkpoint_hash(one)
    roots = settings.audit.time_stamp_roots
    faults, notes, stamps = check_answers(answers, known, None if roots is None else roots.encode())
    return faults, notes, len(answers), stamps


def trusted_keys(settings: Settings, file: Path | None) -> list[bytes]:
    """Return the public keys, 32 bytes each, that checkpoints may be signed with; empty when there are none.

    Those in `file`, or else those that are configured, or else that of the configured private key.
    """
    from streamer.audit.signing import Signer, read_public_keys

    if file is not None:
        try:
            return read_public_keys(small_text(file), place=str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the public keys {file}: {error}") from error
    if settings.audit.public_keys is not None:
        return read_public_keys(settings.audit.public_keys, place="audit.public_keys")
    if settings.audit.private_key is not None:
        return [Signer(settings.audit.private_key).public_key]
    return []


def signer(file: Path) -> Signer:
    """Return what signs with the private key in a file. Raises `UsageError`."""
    from streamer.audit.signing import Signer

    try:
        return Signer(small_text(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the private key {file}: {error}") from error


def outside_checkpoints(settings: Settings, where: str | None) -> tuple[list[bytes], str] | None:
    """Read checkpoints that are kept outside the database, and say in words where that is.

    `where` is a file, or ``topic``; None: the configured file, if there is one. Returns None when there is none.
    """
    from streamer.audit.checkpoint_file import CheckpointFile

    if where == TOPIC:
        return _from_topic(settings), f"the topic {topics(settings).checkpoints}"
    named = where if where is not None else settings.audit.checkpoint_file
    if named is None or (where is None and not Path(named).exists()):
        return None
    return CheckpointFile(Path(named)).read(), f"the file {named}"


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
    from streamer.stream.kafka_log import KafkaLog

    log = KafkaLog(connection(settings), log_id=settings.kafka.log_id)
    return compare_with_log(store.evidence.logged, log, topics=topics(settings))


def receipts(settings: Settings, place: str) -> tuple[list[bytes], str]:
    """Read receipts from a file, or with ``topic`` from the topics of actions and of the desk, and say where they come from.

    Raises `UsageError` where they cannot be read, `Unavailable` where the broker does not answer.
    """
    if place != TOPIC:
        from streamer.audit.standalone.verify_bundle import receipt_lines

        try:
            return receipt_lines(Path(place).read_bytes()), place
        except OSError as error:
            raise UsageError(f"cannot read receipts from {place}: {error.strerror}") from error
    from streamer.events.receipts import receipt_line
    from streamer.stream.kafka_log import KafkaLog

    log, named = KafkaLog(connection(settings), log_id=settings.kafka.log_id), topics(settings)
    found = []
    for topic in (named.actions, named.desk):
        ends = {number: end for number, (_, end) in log.bounds(topic).items()}
        found += [receipt_line(record.value, record.headers) for record in log.read(topic, ends)]
    return [line for line in found if line is not None], f"the topics {named.actions} and {named.desk}"


def _from_topic(settings: Settings) -> list[bytes]:
    from streamer.stream.kafka_log import KafkaLog

    log, topic = KafkaLog(connection(settings)), topics(settings).checkpoints
    ends = {number: end for number, (_, end) in log.bounds(topic).items()}
    # A tombstone is not a checkpoint either, and must be reported.
    return [record.value or b"" for record in log.read(topic, ends)]
