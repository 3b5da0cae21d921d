"""Merkle logs (RFC 9162) and the notes in which checkpoints are signed (C2SP)."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from array import array
from collections.abc import Iterable
from typing import NamedTuple

from streamer_verify.values import sha256


class Log:
    """A Merkle log (RFC 9162, section 2.1) while its leaves are read.

    `whole` is false once a leaf was missing: what its roots were is not known from there on.
    """

    __slots__ = ("edge", "size", "whole")

    def __init__(self, size: int = 0, edge: Iterable[bytes] = (), *, whole: bool = True) -> None:
        self.size, self.edge, self.whole = size, list(edge), whole

    def append(self, leaf: bytes) -> None:
        """Append a leaf by its hash."""
        for _ in range((~self.size & (self.size + 1)).bit_length() - 1 if self.whole else 0):
            leaf = hashlib.sha256(b"\x01" + self.edge.pop() + leaf).digest()
        self.edge.append(leaf)
        self.size += 1

    def root(self) -> str:
        """The root in hexadecimal; nothing where it is not known."""
        if not self.whole:
            return ""
        if not self.edge:
            return sha256(b"")
        root = self.edge[-1]
        for left in reversed(self.edge[:-1]):
            root = hashlib.sha256(b"\x01" + left + root).digest()
        return root.hex()


class Marks:
    """What checkpoints saw of one log: each size that it had, the root then, the control log's size, and which one it was."""

    __slots__ = ("_at", "_roots", "controls", "due", "numbers", "sizes")

    def __init__(self) -> None:
        self._at, self._roots, self.due = 0, bytearray(), 0
        self.sizes, self.controls, self.numbers = array("q"), array("q"), array("q")

    def add(self, size: int, root: str, control: int, number: int) -> None:
        """Take what the next checkpoint saw. Raises `ValueError` where it saw less than the one before it."""
        raw = bytes.fromhex(root)
        if len(raw) != 32 or size < (self.sizes[-1] if self.sizes else 0):
            raise ValueError("it saw less than the checkpoint before it")
        if self.sizes and size == self.sizes[-1] and raw == self._roots[-32:]:
            return
        self.sizes.append(size)
        self.controls.append(control)
        self.numbers.append(number)
        self._roots += raw

    def reach(self, size: int) -> list[tuple[str, int]]:
        """The roots that a log of this size should have, and by which checkpoint. Sizes are asked for in their order."""
        found = []
        while self._at < len(self.sizes) and self.sizes[self._at] <= size:
            if self.sizes[self._at] == size:
                found.append((self._roots[32 * self._at : 32 * self._at + 32].hex(), self.numbers[self._at]))
            self._at += 1
        self.due = self.sizes[self._at] if self._at < len(self.sizes) else sys.maxsize
        return found


_NOTE = re.compile(
    r"(?P<text>(?P<origin>[^\x00-\x1f\x7f]+)\n(?P<size>[1-9][0-9]{0,17})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?:[^\x00-\x1f\x7f]+\n)*)\n"
    r"(?P<lines>(?:\u2014 [^\s+]+ [A-Za-z0-9+/]+={0,2}\n)+)"
)


class Note(NamedTuple):
    """A checkpoint (c2sp.org/tlog-checkpoint); `text` is what its `signatures` cover: name, hash of the key, signature."""

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


LOG, WITNESS = 1, 4
"""Kinds of keys: a log's signs the text, a witness's the time and the text."""


def key_hash(name: str, key: bytes, kind: int = LOG) -> bytes:
    """The four bytes by which a signature names its key (c2sp.org/signed-note)."""
    return hashlib.sha256(b"%b\n%c%b" % (name.encode(), kind, key)).digest()[:4]


def read_witness_keys(text: str) -> dict[str, bytes]:
    """Read the keys of witnesses by their names: NAME+HASH+KEY, one a line; an address behind it is passed over.

    Raises `ValueError`.
    """
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, named, encoded = line.partition(" ")[0].split("+", 2)
        raw = base64.b64decode(encoded, validate=True)
        if len(raw) != 33 or raw[0] != WITNESS or key_hash(name, raw[1:], WITNESS).hex() != named:
            raise ValueError(f"{name} is no key of a witness")
        found[name] = raw[1:]
    return found
