"""Having checkpoints cosigned by witnesses that others run (https://c2sp.org/tlog-witness).

A witness signs a checkpoint once it has seen a proof that the log only grew since the last one that it signed: what it has
signed cannot be replaced by another history, not even by whoever can change the database and has the key. One that is
unavailable holds nothing up, and needs the newest checkpoint alone when it is back.
"""

import base64
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog

from streamer.audit import signing
from streamer.audit.checkpointing import HeadStore
from streamer.errors import StreamerError, Unavailable, UsageError
from streamer.extras import needed_by
from streamer.signing.merkle import consistency_proof
from streamer.signing.notes import COSIGNATURE, Note, VerifierKey, read_note, read_verifier_key

log = structlog.get_logger(__name__)

_TIMEOUT_SECONDS = 10.0
_LONGEST_ANSWER = 65_536
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class WitnessFailed(StreamerError):
    """A witness did not cosign a checkpoint.

    `cosigned` is how many heads of another history of this record it has cosigned; None: it said nothing of that.
    """

    def __init__(self, message: str, *, cosigned: int | None = None) -> None:
        super().__init__(message)
        self.cosigned = cosigned


class Witness(NamedTuple):
    """Somebody else who cosigns checkpoints: the key, and where `add-checkpoint` is."""

    key: VerifierKey
    url: str


def read_witness(text: str) -> Witness:
    """Read a witness as ``KEY URL``. Raises `UsageError`."""
    key, _, url = text.partition(" ")
    try:
        found = read_verifier_key(key)
        parts = urlsplit(url)
        if found.kind != COSIGNATURE or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("its key is for no cosignature, or its address is none")
    except ValueError as error:
        raise UsageError(
            f"a witness is NAME+HASH+KEY https://..., as who runs it says, not {text!r}: {error}"
        ) from None
    return Witness(found, url.rstrip("/"))


def ask(one: Witness, store: HeadStore) -> int:
    """Have a witness cosign the newest checkpoint, and keep what it answers; returns its size. Raises `WitnessFailed`."""
    reached = reached_by(one, store)
    newest = store.newest()
    status = 0
    for _ in range(2):
        if newest.size in (0, reached):
            return newest.size
        proof = consistency_proof(reached, newest.size, store.root) if reached else []
        lines = [b"old %d" % reached, *(base64.b64encode(node) for node in proof), b"", newest.note]
        status, answer = _post(f"{one.url}/add-checkpoint", b"\n".join(lines))
        if status == 200:
            cosigned_note = newest.note + _good_line(one.key, newest.note, answer)
            store.keep_cosigned(one.key.name, newest.size, cosigned_note)
            return newest.size
        if status != 409:
            break
        if (reached := _size(answer)) > newest.size:
            raise WitnessFailed(
                f"it has cosigned checkpoint {reached}, and the record ends at {newest.size}: was a backup restored? Then run"
                " `streamer audit restored`",
                cosigned=reached,
            )
    failed = _REFUSALS.get(status, f"it answered with status {status}")
    raise WitnessFailed(failed, cosigned=reached if status == 422 else None)


_REFUSALS = {
    403: "it does not trust the key of the checkpoint (403): give who runs it the verifier key of `streamer audit checkpoint`",
    404: "it does not know this record (404): give who runs it the verifier key of `streamer audit checkpoint`",
    409: "it says two sizes in turn that it has cosigned (409)",
    422: "it has cosigned another history of this record (422); `streamer audit verify` with its checkpoint says more",
}


def _good(key: VerifierKey, note: Note) -> Iterator[bytes]:
    """The good cosignatures by a key among the signatures of a checkpoint (https://c2sp.org/tlog-cosignature)."""
    for name, named, value in note.signatures:
        said = b"cosignature/v1\ntime %d\n%s" % (int.from_bytes(value[:8]), note.text)
        if (name, named) == (key.name, key.key_hash) and signing.verify(key.key, said, value[8:]):
            yield value


def reached_by(one: Witness, store: HeadStore) -> int:
    """How many heads a witness has cosigned under the present origin, as far as is known."""
    origin, key = b"%s\n" % store.origin().encode(), one.key.name
    return next((it.size for it in store.cosigned() if it.witness == key and it.note.startswith(origin)), 0)


def send(witnesses: Iterable[Witness], store: HeadStore) -> dict[str, str | None]:
    """Ask each once; returns why it failed, or None. Raises `Unavailable` while the database is."""
    return {one.key.name: _failure(one, store) for one in witnesses}


def keep_up(
    one: Witness,
    store: HeadStore,
    stop: threading.Event,
    leads: Callable[[], bool],
    show: Callable[[str, int, bool], None],
) -> None:
    """Ask a witness again and again until `stop` is set, while this process signs (`leads`).

    `show` is given its name, how many heads it has cosigned, and whether it failed just now.
    """
    pause = _FIRST_PAUSE
    while not stop.wait(pause):
        failed = False
        try:
            if leads():
                failed = _failure(one, store) is not None
                show(one.key.name, reached_by(one, store), failed)
        except Exception as error:
            failed = True
            if not isinstance(error, Unavailable):  # which others report
                log.exception("audit.witness_failed", witness=one.key.name)
        pause = min(2 * pause, _LONGEST_PAUSE) if failed else _FIRST_PAUSE


def _failure(one: Witness, store: HeadStore) -> str | None:
    try:
        ask(one, store)
    except (WitnessFailed, LookupError) as error:
        log.warning("audit.witness_failed", witness=one.key.name, error=str(error))
        return str(error)
    return None


def _good_line(key: VerifierKey, note: bytes, answer: bytes) -> bytes:
    """The witness's own signature line of its answer."""
    try:
        found = next(_good(key, read_note((note + answer).decode())), None)
    except ValueError:
        found = None
    if found is None:
        raise WitnessFailed("its answer has no good signature by its key")
    return key.line(found)


def _size(answer: bytes) -> int:
    text = answer.decode("ascii", "replace").removesuffix("\n")
    if not text.isdigit() or len(text) > 18:
        raise WitnessFailed("its answer says no size")
    return int(text)


def _post(url: str, data: bytes) -> tuple[int, bytes]:
    with needed_by("a witness", "service"):
        from streamer_client import door

        try:
            reply = door.ask("POST", url, seconds=_TIMEOUT_SECONDS, most=_LONGEST_ANSWER, content=data)
        except door.ReplyFailed as failed:
            raise WitnessFailed(str(failed)) from None
    return reply.status, reply.content
