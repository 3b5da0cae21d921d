"""A witness by https://c2sp.org/tlog-witness on this machine, which keeps to the letter of it; it knows one log."""

import base64
import time
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from streamer.signing.merkle import node_hash
from streamer.signing.notes import COSIGNATURE, VerifierKey
from streamer_verify.logs import Note, read_note
from tests.services.loopback import Asked, Loopback


def consistent(old: int, older: bytes, new: int, newer: bytes, proof: Sequence[bytes]) -> bool:
    """Whether a proof is one that a log goes on from another (RFC 9162, 2.1.4.2)."""
    if old == new:
        return older == newer and not proof
    path = list(proof)
    if old & (old - 1) == 0:
        path.insert(0, older)
    if not path:
        return False
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for node in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node_hash(node, fr), node_hash(node, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node_hash(sr, node)
        fn, sn = fn >> 1, sn >> 1
    return fr == older and sr == newer and sn == 0


class StrictWitness(Loopback):
    """Cosigns checkpoints of one log while it is used as a context.

    Attributes
    ----------
    log : the verifier key of the log that it knows now; None: it knows none.
    newest : the checkpoint that it cosigned last, with its signature.
    answers : the status of each answer.
    broken : an answer that it gives whatever it is asked; None: it does as the protocol says.
    """

    def __init__(self, log: VerifierKey | None = None, *, name: str = "witness.example/w1") -> None:
        super().__init__()
        self._private = Ed25519PrivateKey.generate()
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key = VerifierKey(name, COSIGNATURE, public)
        self.log = log
        self.newest: bytes | None = None
        self.answers: list[int] = []
        self.broken: tuple[int, bytes] | None = None
        self._all_known: dict[str, Note] = {}

    def respond(self, asked: Asked, body: bytes) -> None:
        status, content = (404, b"") if asked.path != "/add-checkpoint" else self.answer(body)
        self.answers.append(status)
        asked.answer(content, status, **{"content_type": "text/x.tlog.size"} if status == 409 else {})
        asked.close_connection = True

    @property
    def address(self) -> str:
        """As `audit.witnesses` has it."""
        return f"{self.key} {super().address}"

    @property
    def _known(self) -> Note | None:
        return None if self.log is None else self._all_known.get(self.log.name)

    @property
    def size(self) -> int:
        return 0 if self._known is None else self._known.size

    def answer(self, asked: bytes) -> tuple[int, bytes]:
        if self.broken is not None:
            return self.broken
        head, _, note = asked.partition(b"\n\n")
        first, *lines = head.decode("ascii").split("\n")
        checkpoint = read_note(note.decode())
        proof = [base64.b64decode(line, validate=True) for line in lines]
        assert first.startswith("old ")
        old = int(first[4:])
        assert str(old) == first[4:]
        assert len(proof) <= 63
        if self.log is None or checkpoint.origin != self.log.name:
            return 404, b""
        ours = [
            value
            for name, named, value in checkpoint.signatures
            if (name, named) == (self.log.name, self.log.key_hash)
        ]
        try:
            for signature in ours:
                Ed25519PublicKey.from_public_bytes(self.log.key).verify(signature, checkpoint.text)
        except InvalidSignature:
            ours = []
        if not ours:
            return 403, b""
        if old > checkpoint.size:
            return 400, b""
        if old != self.size:
            return 409, b"%d\n" % self.size
        if self._known is None:
            fits = not proof
        else:
            fits = consistent(old, self._known.root, checkpoint.size, checkpoint.root, proof)
        if not fits:
            return 422, b""
        now = int(time.time())
        signature = now.to_bytes(8) + self._private.sign(
            b"cosignature/v1\ntime %d\n%s" % (now, checkpoint.text)
        )
        self._all_known[checkpoint.origin], self.newest = checkpoint, note + self.key.line(signature)
        return 200, self.key.line(signature)
