"""Checkpoints as signed notes: what the transparency ecosystem calls `tlog-checkpoint`, `signed-note` and `tlog-cosignature`
(https://c2sp.org). A checkpoint is three lines, origin, size and root of a log, and under them signatures, a line each.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, NamedTuple

ED25519: Final = 1
"""The kind of a log's own signature, over the text."""

COSIGNATURE: Final = 4
"""The kind of a witness's Ed25519 signature, over the time and the text."""

_NOTE = re.compile(
    r"(?P<text>(?P<origin>[^\x00-\x1f\x7f]+)\n(?P<size>0|[1-9][0-9]{0,18})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?:[^\x00-\x1f\x7f]+\n)*)\n"
    r"(?P<lines>(?:\u2014 [^\s+]+ [A-Za-z0-9+/]+={0,2}\n)+)"
)
_KEY = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")


class Signature(NamedTuple):
    """A line under a note: who, the four bytes that name the key, and what these have signed with it."""

    name: str
    key_hash: bytes
    value: bytes


class Checkpoint(NamedTuple):
    """A checkpoint as it was read; its signatures are not looked at. `text` is what they cover."""

    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: tuple[Signature, ...]


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


def checkpoint_text(origin: str, size: int, root: bytes) -> bytes:
    """What a checkpoint says."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n".encode()


def cosigned(text: bytes, at: int) -> bytes:
    """What a witness signs of a checkpoint's text at a time, in seconds since 1970."""
    return b"cosignature/v1\ntime %d\n%s" % (at, text)


def read_checkpoint(note: bytes) -> Checkpoint:
    """Read a checkpoint. Raises `ValueError` where it is none."""
    found = _NOTE.fullmatch(note.decode())
    if found is None:
        raise ValueError("this is no signed checkpoint")
    root = base64.b64decode(found["root"])
    if base64.b64encode(root).decode() != found["root"]:
        raise ValueError("its root is not in base64")
    return Checkpoint(
        found["origin"], int(found["size"]), root, found["text"].encode(), read_signatures(found["lines"])
    )


def read_signatures(lines: str) -> tuple[Signature, ...]:
    """Read signature lines, as they stand under a note. Raises `ValueError` for anything else."""
    found = []
    for line in lines.splitlines():
        dash, name, encoded = line.split(" ")
        value = base64.b64decode(encoded, validate=True)
        if dash != "\u2014" or len(value) <= 4:
            raise ValueError("this is no signature")
        found.append(Signature(name, value[:4], value[4:]))
    return tuple(found)


def read_verifier_key(text: str) -> VerifierKey:
    """Read a key of 32 bytes as ``name+hash+key``. Raises `ValueError` where it is none."""
    found = _KEY.fullmatch(text)
    raw = b"" if found is None else base64.b64decode(found[3], validate=True)
    if found is None or len(raw) != 33:
        raise ValueError(f"{text!r} is no key as NAME+HASH+KEY")
    key = VerifierKey(found[1], raw[0], raw[1:])
    if key.key_hash.hex() != found[2]:
        raise ValueError(f"{text!r} has a hash that is not that of its name and key")
    return key
