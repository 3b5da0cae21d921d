"""Sending checkpoints to witnesses: files, HTTP endpoints and time stamp authorities that others run.

What a witness has kept is out of reach for whoever can change the database and sign checkpoints. A witness that is unavailable
holds nothing up: it gets what it lacks later.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import structlog

from streamer.audit.checkpoint_file import CheckpointFile
from streamer.errors import BadMessage, StreamerError, UsageError
from streamer.events.checkpoints import decode_checkpoint
from streamer.events.cloudevents import rfc3339
from streamer.extras import needed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from streamer.audit.checkpointing import CheckpointStore

log = structlog.get_logger(__name__)

TIME_STAMP = "tsa+"
"""Begins the address of an RFC 3161 time stamp authority; the rest is its URL."""

_PAGE = 100
_TIMEOUT_SECONDS = 10.0
_LONGEST_ANSWER = 65_536
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0


class WitnessFailed(StreamerError):
    """A witness did not take a checkpoint."""


class Witness(Protocol):
    """Somebody else who keeps checkpoints.

    Attributes
    ----------
    name : its address, without what only we should know.
    kind : ``file``, ``http`` or ``time_stamp``.
    """

    name: str
    kind: str

    def keep(self, value: bytes) -> bytes | None:
        """Give it a checkpoint; returns its answer. Raises `WitnessFailed`."""
        ...


class FileWitness:
    """A file on another machine's disk, with one checkpoint a line."""

    kind = "file"

    def __init__(self, path: str) -> None:
        self.name = path
        self.file = CheckpointFile(Path(path))

    def keep(self, value: bytes) -> None:
        """Append it."""
        try:
            checkpoint = decode_checkpoint(value)
            while (last := self.file.last()) is None or decode_checkpoint(
                last
            ).sequence < checkpoint.sequence:
                if last is not None and decode_checkpoint(last).record_id != checkpoint.record_id:
                    raise WitnessFailed("it has the checkpoints of another record")
                self.file.append([value], after=last)
        except OSError as error:
            raise WitnessFailed(f"cannot write: {error.strerror}") from error
        except BadMessage as error:
            raise WitnessFailed(f"its last line is not a checkpoint: {error}") from error


class HttpWitness:
    """An endpoint that gets each checkpoint by POST, as it is published; any answer of 200 to 299 is kept."""

    kind = "http"

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = _without_secrets(url)

    def keep(self, value: bytes) -> bytes:
        """Post it."""
        return _post(self._url, value, "application/json")


class TimeStampWitness:
    """An authority that signs when it saw the SHA-256 of a checkpoint (RFC 3161)."""

    kind = "time_stamp"

    def __init__(self, url: str) -> None:
        with needed_by("a time stamp authority", "evidence"):
            import rfc3161_client  # noqa: F401
        self._url = url
        self.name = TIME_STAMP + _without_secrets(url)

    def keep(self, value: bytes) -> bytes:
        """Ask for a time stamp, and see that it is one of this checkpoint."""
        from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

        request = TimestampRequestBuilder().data(value).hash_algorithm(HashAlgorithm.SHA256).build()
        answer = _post(self._url, request.as_bytes(), "application/timestamp-query")
        stamped, nonce = _stamped(answer)
        if stamped != hashlib.sha256(value).digest() or nonce != request.nonce:
            raise WitnessFailed("the time stamp is of something else")
        return answer


def witness(address: str) -> FileWitness | HttpWitness | TimeStampWitness:
    """Return the witness at an address: a file, ``http(s)://...``, or ``tsa+http(s)://...``.

    Raises
    ------
    UsageError
        When the address is none, or the package for time stamps is missing.
    """
    url = address.removeprefix(TIME_STAMP)
    scheme, given, _ = url.partition("://")
    if scheme.lower() in ("http", "https") and urlsplit(url).hostname:
        return TimeStampWitness(url) if url != address else HttpWitness(url)
    if given or url != address or not address.strip():
        raise UsageError(f"a witness is a file, https://HOST/PATH or tsa+https://HOST/PATH, not {address!r}")
    return FileWitness(address)


class WitnessAnswers:
    """A file of what witnesses answered, one JSON object a line; it also says which of them has what."""

    def __init__(self, path: Path) -> None:
        self._file = CheckpointFile(path)

    def reached(self, name: str) -> int:
        """Number of the newest checkpoint that a witness has; 0: none. Raises `UsageError`."""
        if not self._file.path.exists():
            return 0
        return max(
            (one["sequence"] for one in read_answers(self._file.read()) if one["witness"] == name), default=0
        )

    def add(self, name: str, value: bytes, answer: bytes | None, at: datetime) -> None:
        """Keep an answer. Raises `OSError`."""
        line = json.dumps(
            {
                "witness": name,
                "sequence": decode_checkpoint(value).sequence,
                "sha256": hashlib.sha256(value).hexdigest(),
                "at": rfc3339(at),
                "answer": None if answer is None else base64.b64encode(answer).decode(),
            }
        ).encode()
        while not self._file.append([line], after=self._file.last()):
            pass


class Sent(NamedTuple):
    """What became of a witness in a round: how many it got, why it got no more, and since when it lacks one."""

    witness: Witness
    sent: int
    failed: str | None
    lacks_since: datetime | None


class Witnesses:
    """Sends each witness what it lacks.

    Parameters
    ----------
    store : where the checkpoints are.
    witnesses : who gets them.
    answers : where their answers are kept; None is enough for files.
    clock : returns the present time, with zone.
    show : given, for each witness in a round of the thread, its kind, how many seconds it has lacked a checkpoint, and whether it
        did not take one.
    """

    def __init__(
        self,
        store: CheckpointStore,
        witnesses: Sequence[Witness],
        *,
        answers: WitnessAnswers | None,
        clock: Callable[[], datetime],
        show: Callable[[str, float, bool], None] = lambda _kind, _seconds, _failed: None,
    ) -> None:
        if answers is None and any(one.kind != "file" for one in witnesses):
            raise UsageError(
                "the answers of witnesses must be kept somewhere: set STREAMER_AUDIT_WITNESS_ANSWERS to a file"
            )
        self._store = store
        self._witnesses = witnesses
        self._answers = answers
        self._clock = clock
        self._show = show
        self._reached: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def send(self) -> list[Sent]:
        """Send each what it lacks, once. Raises `Unavailable` while the database is."""
        return [self._send(one) for one in self._witnesses]

    def wake(self) -> None:
        """See to it soon, in a thread of its own: nothing waits for a witness."""
        if self._witnesses and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streamer-witnesses", daemon=True)
            self._thread.start()
        self._wake.set()

    def _send(self, one: Witness) -> Sent:
        count = 0
        try:
            reached = self._known(one)
            while missing := self._store.after(reached, limit=_PAGE):
                if one.kind == "time_stamp":
                    # The newest names the one before it, and so all of them.
                    newest = self._store.newest()
                    missing = missing if newest is None else [newest]
                for value in missing:
                    answer = one.keep(value)
                    if self._answers is not None and one.kind != "file":
                        self._answers.add(one.name, value, answer, self._clock())
                    reached = self._reached[one.name] = decode_checkpoint(value).sequence
                    count += 1
            return Sent(one, count, None, None)
        except (WitnessFailed, UsageError, BadMessage, OSError) as error:
            log.warning("audit.witness_failed", witness=one.name, error=str(error))
            waiting = self._store.after(self._reached.get(one.name, 0), limit=1)
            since = decode_checkpoint(waiting[0]).made_at if waiting else None
            return Sent(one, count, str(error), since)

    def _known(self, one: Witness) -> int:
        if one.name not in self._reached:
            if isinstance(one, FileWitness):
                last = one.file.last()
                self._reached[one.name] = 0 if last is None else decode_checkpoint(last).sequence
            else:
                self._reached[one.name] = 0 if self._answers is None else self._answers.reached(one.name)
        return self._reached[one.name]

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            self._wake.wait()
            self._wake.clear()
            try:
                sent = self.send()
            except (
                Exception
            ):  # the database is unavailable, which its readers say, or a bug: checkpoints are never lost
                log.warning("audit.witnesses_wait", exc_info=True)
                sent = []
            present = self._clock()
            for one in sent:
                since = one.lacks_since
                lacks = 0.0 if since is None else max(0.0, (present - since).total_seconds())
                self._show(one.witness.kind, lacks, one.failed is not None)
            away = not sent or any(one.failed for one in sent)
            pause = min(2 * pause, _LONGEST_PAUSE) if away else _FIRST_PAUSE
            time.sleep(pause)


def read_answers(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Read a file of answers. Raises `UsageError` for a line that is none."""
    found = []
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            (one["witness"] + one["sha256"] + one["at"], one["sequence"] + 0, one["answer"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"line {number} of the witnesses' answers is not one of them") from error
        found.append(one)
    return found


def check_answers(
    answers: Sequence[Mapping[str, Any]], checkpoints: Mapping[int, str], roots: bytes | None
) -> tuple[list[tuple[str, str]], list[str], int]:
    """Compare what witnesses were given with the checkpoints of the record, and verify their time stamps.

    Parameters
    ----------
    checkpoints : SHA-256 of each by number.
    roots : certificates in PEM that time stamp authorities must lead to; None: their signatures are not checked.

    Returns
    -------
    tuple
        What does not fit, as place and detail; what was not checked; how many time stamps were verified.
    """
    faults, stamps, unverified = [], 0, 0
    for one in answers:
        place = f"checkpoint {one['sequence']} ({one['witness']})"
        if checkpoints.get(one["sequence"]) != one["sha256"]:
            faults.append((place, "the witness was given another checkpoint of this number"))
        elif str(one["witness"]).startswith(TIME_STAMP):
            if roots is None:
                unverified += 1
                continue
            wrong = _stamp_fault(one, roots)
            stamps += wrong is None
            if wrong is not None:
                faults.append((place, wrong))
    notes = [f"{unverified} time stamps: set STREAMER_AUDIT_TIME_STAMP_ROOTS"] if unverified else []
    return faults, notes, stamps


def _stamp_fault(one: Mapping[str, Any], roots: bytes) -> str | None:
    with needed_by("a time stamp", "evidence"):
        from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response
    from cryptography import x509

    try:
        builder = VerifierBuilder()
        for certificate in x509.load_pem_x509_certificates(roots):
            builder = builder.add_root_certificate(certificate)
        response = decode_timestamp_response(base64.b64decode(one["answer"] or ""))
        if response.tst_info.message_imprint.message != bytes.fromhex(one["sha256"]):
            return "its time stamp is of something else"
        builder.build().verify(response, bytes.fromhex(one["sha256"]))
    except (ValueError, VerificationError) as error:
        return f"its time stamp is not good: {error}"
    return None


def _stamped(answer: bytes) -> tuple[bytes, int | None]:
    from rfc3161_client import decode_timestamp_response

    try:
        response = decode_timestamp_response(answer)
        if response.status not in (0, 1):
            raise WitnessFailed(f"the authority refused (status {response.status})")
        return response.tst_info.message_imprint.message, response.tst_info.nonce
    except ValueError as error:
        raise WitnessFailed("the answer is not a time stamp") from error


def _post(url: str, data: bytes, kind: str) -> bytes:
    with needed_by("a witness at an address", "service"):
        from streamer.security import door

        try:
            reply = door.ask(
                "POST",
                url,
                seconds=_TIMEOUT_SECONDS,
                most=_LONGEST_ANSWER,
                headers={"Content-Type": kind},
                content=data,
            )
        except door.ReplyFailed as failed:
            raise WitnessFailed(str(failed)) from None
    if not 200 <= reply.status < 300:
        raise WitnessFailed(f"it answered with status {reply.status}")
    return reply.content


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
