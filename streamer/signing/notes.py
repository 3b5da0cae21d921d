"""Who signs checkpoints, what is kept of them, and which were given up with a restored backup (https://c2sp.org/signed-note, tlog-checkpoint, tlog-cosignature)."""

import base64
import hashlib
import json
import re
from datetime import datetime
from typing import NamedTuple

from streamer.signing.canonical_json import moment_text, signed_text

ED25519 = 1
"""The kind of a log's own signature, over the text."""

COSIGNATURE = 4
"""The kind of a witness's Ed25519 signature, over the time and the text."""


class VerifierKey(NamedTuple):
    """A public key, its kind, and the name that it signs under."""

    name: str
    kind: int
    key: bytes

    @property
    def key_hash(self) -> bytes:
        """The four bytes that name it in a signature."""
        return hashlib.sha256(b"%s\n%c%s" % (self.name.encode(), self.kind, self.key)).digest()[:4]

    def line(self, signature: bytes) -> bytes:
        """A line under a note."""
        return f"\u2014 {self.name} {base64.b64encode(self.key_hash + signature).decode()}\n".encode()

    def __str__(self) -> str:
        key = base64.b64encode(bytes([self.kind]) + self.key).decode()
        return f"{self.name}+{self.key_hash.hex()}+{key}"


def read_verifier_key(text: str) -> VerifierKey:
    """Read a key of 32 bytes as ``name+hash+key``. Raises `ValueError` where it is none."""
    name, _, encoded = text.split("+", 2)
    raw = base64.b64decode(encoded, validate=True)
    key = VerifierKey(name, raw[0] if raw else 0, raw[1:])
    if len(raw) != 33 or str(key) != text:
        raise ValueError("its hash is not that of its name and key")
    return key


_NOTE = re.compile(
    r"(?P<text>(?P<origin>[^\x00-\x1f\x7f]+)\n(?P<size>[1-9][0-9]{0,17})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?:[^\x00-\x1f\x7f]+\n)*)\n"
    r"(?P<lines>(?:\u2014 [^\s+]+ [A-Za-z0-9+/]+={0,2}\n)+)"
)


class Note(NamedTuple):
    """A checkpoint; `text` is what its `signatures` cover: name, hash of the key, signature."""

    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: list[tuple[str, bytes, bytes]]


def read_note(note: str) -> Note:
    """Read a checkpoint; its signatures are not looked at. Raises `ValueError` where it is none."""
    found = _NOTE.fullmatch(note)
    if found is None:
        raise ValueError("this is no signed checkpoint")
    lines = [line.split(" ")[1:] for line in found["lines"].splitlines()]
    signatures = [(name, raw[:4], raw[4:]) for name, encoded in lines for raw in [base64.b64decode(encoded)]]
    root = base64.b64decode(found["root"])
    return Note(found["origin"], int(found["size"]), root, found["text"].encode(), signatures)


class SignedHead(NamedTuple):
    """The newest checkpoint and its size; the size of the newest one that was published, and when that was."""

    size: int
    published: int
    published_at: datetime | None
    note: bytes


def origin_of(record_id: str) -> str:
    """The origin of a record's checkpoints until a backup is restored: the name of its log of heads, under which its key signs."""
    return f"streamer/{record_id}"


class Restoration(NamedTuple):
    """Heads of other logs that this record's once was, given up where a backup was restored; numbered from 1.

    `origin` is that of checkpoints from here on, `kept` how many heads stay as they are, and `given_up` a JSON array of origins,
    each with the size of its largest log of heads that is given up.
    """

    id: int
    at: datetime
    by: str
    reason: str
    origin: str
    kept: int
    given_up: str

    def gives_up(self, origin: str, size: int) -> bool:
        """Whether it gives up the log of heads that a checkpoint is of."""
        return size > self.kept and any(
            size <= most for name, most in json.loads(self.given_up) if name == origin
        )

    def statement(self, record_id: str) -> bytes:
        """What its signature covers."""
        said = {**self._asdict(), "at": moment_text(self.at), "record": record_id}
        return signed_text("restoration", said)
