"""Having checkpoints cosigned by witnesses that others run (https://c2sp.org/tlog-witness).

A witness signs a checkpoint once it has seen a proof that the log only grew since the last one that it signed: what it has
signed cannot be replaced by another history, not even by whoever can change the database and has the key. One that is
unavailable holds nothing up, and needs the newest checkpoint alone when it is back.
"""

from __future__ import annotations

import base64
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import structlog

from streamer.audit import signing
from streamer.audit.standalone.verify_bundle import read_note
from streamer.errors import StreamerError, Unavailable, UsageError
from streamer.extras import needed_by
from streamer.signing.merkle import consistency_proof
from streamer.signing.notes import COSIGNATURE, VerifierKey, read_verifier_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamer.audit.checkpointing import HeadStore
    from streamer.audit.standalone.verify_bundle import Note


log = structlog.get_logger(__name__)

_TIMEOUT_SECONDS = 10.0
_LONGEST_ANSWER = 65_536
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class WitnessFailed(StreamerError):
    """A witness did not cosign a checkpoint."""


class Witness(NamedTuple):
    """Somebody else who cosigns checkpoints: the key, and where `add-checkpoint` is."""

    key: VerifierKey
    url: str

    @property
    def name(self) -> str:
        """As it signs."""
        return self.key.name


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


def ask(one: Witness, store: HeadStore, *, reached: int) -> int:
    """Have a witness cosign the newest checkpoint, and keep what it answers; returns the size that it has cosigned.

    `reached` : the size of the last one that it cosigned. Raises `WitnessFailed`.
    """
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
            store.keep_cosigned(one.name, newest.size, cosigned_note)
            return newest.size
        if status != 409:
            break
        if (reached := _size(answer)) > newest.size:
            raise WitnessFailed(
                f"it has cosigned checkpoint {reached}, and the record ends at {newest.size}: was a backup restored?"
            )
    raise WitnessFailed(_REFUSALS.get(status, f"it answered with status {status}"))


_REFUSALS = {
    403: "it does not trust the key of the checkpoint (403): give who runs it the verifier key of `streamer audit checkpoint`",
    404: "it does not know this record (404): give who runs it the verifier key of `streamer audit checkpoint`",
    409: "it says two sizes in turn that it has cosigned (409)",
    422: "it has cosigned another history of this record (422); `streamer audit verify` with its checkpoint says more",
}


def good_cosignature(key: VerifierKey, note: bytes) -> bool:
    """Report whether a checkpoint has a good cosignature by a key (https://c2sp.org/tlog-cosignature)."""
    return any(_good(key, read_note(note.decode())))


def _good(key: VerifierKey, note: Note) -> Iterator[bytes]:
    """The good signatures by a key among those of a checkpoint."""
    for name, named, value in note.signatures:
        said = b"cosignature/v1\ntime %d\n%s" % (int.from_bytes(value[:8]), note.text)
        if (name, named) == (key.name, key.key_hash) and signing.verify(key.key, said, value[8:]):
            yield value


class Witnesses:
    """Keeps witnesses up with the newest checkpoint, each in a thread of its own.

    Parameters
    ----------
    show : given how long, in seconds, the oldest head that each witness lacks has waited, and whether it failed just now.
    lacking : returns that time for a witness that has cosigned so many heads.
    leads : whether this process signs; `run` asks nobody while it does not.
    """

    def __init__(
        self,
        store: HeadStore,
        witnesses: list[Witness],
        *,
        lacking: Callable[[int], float],
        show: Callable[[str, float, bool], None] = lambda _name, _seconds, _failed: None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self.witnesses = witnesses
        self._lacking = lacking
        self._show = show
        self._leads = leads

    def reached(self) -> dict[str, int]:
        """How many heads each witness has cosigned."""
        there = {one.witness: one.size for one in self._store.cosigned()}
        return {one.name: there.get(one.name, 0) for one in self.witnesses}

    def send(self) -> dict[str, str | None]:
        """Ask each once; returns why it failed, or None. Raises `Unavailable` while the database is."""
        return {one.name: self._ask(one)[1] for one in self.witnesses}

    def run(self, stop: threading.Event) -> None:
        """Ask them again and again until `stop` is set."""
        threads = [
            threading.Thread(target=partial(self._keep_up, one, stop), name="streamer-witness", daemon=True)
            for one in self.witnesses
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, one: Witness) -> tuple[int, str | None]:
        reached = self.reached()[one.name]
        try:
            return ask(one, self._store, reached=reached), None
        except (WitnessFailed, LookupError) as error:
            log.warning("audit.witness_failed", witness=one.name, error=str(error))
            return reached, str(error)

    def _keep_up(self, one: Witness, stop: threading.Event) -> None:
        pause = _FIRST_PAUSE
        while not stop.wait(pause):
            if not self._leads():
                continue
            try:
                reached, failed = self._ask(one)
                self._show(one.name, self._lacking(reached), failed is not None)
            except Unavailable:
                failed = "the database does not answer, which others report"
            except Exception:
                log.exception("audit.witness_failed", witness=one.name)
                failed = "see the log"
            pause = _FIRST_PAUSE if failed is None else min(2 * pause, _LONGEST_PAUSE)


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
        from streamer.security import door

        try:
            reply = door.ask("POST", url, seconds=_TIMEOUT_SECONDS, most=_LONGEST_ANSWER, content=data)
        except door.ReplyFailed as failed:
            raise WitnessFailed(str(failed)) from None
    return reply.status, reply.content
